"""Every kernel that a step of a model launches on a GPU is in the benchmark of kernels.

kernels_benchmark_command_test.py PROGRAM [CASE...]
"""

import pathlib
import re
import unittest

from commands import main, spool

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SHARED = ["attention_bench", "llama_kernels", "rank_kernels"]
SOURCES = ["benchmarks/kernels.cpp", *(f"benchmarks/shared/{name}.cpp" for name in SHARED)]
STRUCT = re.compile(r'^struct (\w+) \{\n  static constexpr const char\* name = "(\w+)"', re.M)
LAUNCHES = re.compile(r"  kernel +launches +ms\n((?:  \w+ +\d+ +[\d.]+\n)+)")


def launched(model):
    """The names of the kernels of a rehearsed step, as an H200 launches them."""
    words = ["plan", "--model", model, "--dtype", "bf16", "--machine", "h200", "--kernels"]
    status, printed, said = spool(*words)
    if status != 0:
        raise AssertionError(said)
    names = {row.split()[0] for row in LAUNCHES.search(printed)[1].splitlines()}
    return names - {"all"}


def benchmarked():
    """The names of the kernels that the benchmark's sources make."""
    headers = sorted((ROOT / "kernels").glob("*.h"))
    names = dict(pair for header in headers for pair in STRUCT.findall(header.read_text()))
    made = {word for source in SOURCES for word in re.findall(r"return (\w+)\{", (ROOT / source).read_text())}
    return {names[word] for word in made if word in names}


class KernelsBenchmark(unittest.TestCase):
    def test_it_has_the_kernels_of_a_step(self):
        known = benchmarked()
        for model in ("gpt2-tiny", "llama-tiny", "qwen3-0.6b"):
            with self.subTest(model):
                names = launched(model)
                self.assertIn("matmul", names)
                self.assertEqual(sorted(names - known), [])


if __name__ == "__main__":
    main()
