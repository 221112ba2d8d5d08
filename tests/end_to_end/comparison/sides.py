"""The two programs that are compared, each in its own folder, and their common input."""

import json
import pathlib
import shutil
import zlib

from commands import CACHE, PROSE, spool
from comparison import masks
from comparison.differences import between

WAYS = ["before", "after"]


class Side:
    """A program, and the folder that its runs are in."""

    def __init__(self, program, folder):
        self.program, self.root = program, folder

    def folder(self, case):
        """An empty folder."""
        folder = self.root / case.replace(" ", "-")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder

    def said(self, folder, *words):
        status, *texts = spool(*words, program=self.program, cwd=folder)
        return status, *(masks.text(text, folder) for text in texts)


class KernelTables:
    """Those in the cache of both programs. What is measured is replaced by what a rule says, so that the
    seconds of plans are the same in each run of the comparison."""

    RATES = {"bf16_flops": 2e11, "f32_flops": 2e11, "bytes_per_second": 4e10, "from_host_bytes_per_second": 2e10,
             "host_memory_bytes_per_second": 4e10, "launch_seconds": 1e-7, "to_host_bytes_per_second": 1.5e10}

    @staticmethod
    def seconds(kernel):
        slower = 1 + zlib.crc32(kernel["name"].encode()) % 100 / 50  # kernels are off by different factors
        return 1e-6 + slower * max(kernel["flops"] / 2e11, kernel["bytes"] / 4e10)

    def settle(self):
        """Whether the tables were as they should be."""
        settled = True
        for file in (pathlib.Path(CACHE) / "spool").glob("kernels-*.json"):
            text = file.read_text()
            table = json.loads(text)
            table["rates"] = {key: self.RATES[key] for key in table["rates"]}
            for kernel in table["kernels"]:
                kernel["seconds"] = self.seconds(kernel)
            if table != json.loads(text):
                file.write_text(json.dumps(table))
                settled = False
        return settled


class Comparison:
    def __init__(self, programs, root):
        self.root = root
        self.sides = [Side(program, root / way) for program, way in zip(programs, WAYS)]
        self.tables, self.found, self.cases, self.only = KernelTables(), [], [], None
        self.text = root / "text.txt"
        self.text.write_text(PROSE)

    def wants(self, case):
        return not self.only or self.only.search(case)

    def same(self, case, outcome, tables=False):
        """Compares outcome(side, folder) of both; with tables of kernels, once these have what both need."""
        if not self.wants(case):
            return
        for _ in range(9 if tables else 1):
            outcomes = [outcome(side, side.folder(case)) for side in self.sides]
            if not tables or self.tables.settle():
                break
        else:
            raise RuntimeError(f"{case}: each time, kernels are measured that the table lacks")
        self.cases.append(case)
        self.found += between(case, *outcomes)
