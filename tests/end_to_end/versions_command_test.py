"""Files of other versions of the program: those before are read, those after refused by their number.

versions_command_test.py PROGRAM [CASE...]
"""

import json
import os
import pathlib
import shutil

from commands import Folder, SHAPE, main, spool
from comparison.differences import tensors

EARLIER = pathlib.Path(__file__).parents[1] / "reference" / "run"


class Versions(Folder):
    def resumed(self, checkpoint):
        """The losses and norms, by step, of a run resumed from a checkpoint."""
        shutil.rmtree(self.out, ignore_errors=True)
        shutil.copytree(checkpoint, self.out / checkpoint.name)
        os.symlink(checkpoint.name, self.out / "latest")
        log = self.folder / "log"
        log.unlink(missing_ok=True)
        words = ["--resume", self.out, "--data", EARLIER / "text.txt", "--log", log]
        status, _, errors = spool("train", *words)
        self.assertEqual(status, 0, errors)
        return self.losses(log)

    def apart(self, losses, expected):
        """The relative difference of losses and norms."""
        pairs = [(a, b) for step in expected for a, b in zip(losses[int(step)], expected[step])]
        return max(abs(a - b) / b for a, b in pairs)

    def test_a_checkpoint_of_an_earlier_one_goes_on(self):
        expected = json.loads((EARLIER / "losses.json").read_text())
        self.assertEqual(sorted(expected), ["5", "6", "7", "8"])
        checkpoint = EARLIER / "step-000004"
        self.assertLess(self.apart(self.resumed(checkpoint), expected), 1e-3)
        before = tensors((checkpoint / "optimizer.safetensors").read_bytes())[0]
        after = tensors((self.out / "latest" / "optimizer.safetensors").read_bytes())[0]
        described = lambda header: {name: (t["dtype"], t["shape"]) for name, t in header.items()}
        self.assertEqual(described(after), described(before))
        self.assertEqual({name.split(".")[0] for name in before}, {"m", "v", "master"})

    def test_each_row_of_its_state_is_used(self):
        expected = json.loads((EARLIER / "losses.json").read_text())
        checkpoint = self.folder / "step-000004"
        for row in ["m.", "v.", "master."]:
            shutil.copytree(EARLIER / "step-000004", checkpoint, dirs_exist_ok=True)
            file = checkpoint / "optimizer.safetensors"
            whole = bytearray(file.read_bytes())
            start = 8 + int.from_bytes(whole[:8], "little")
            for name, t in tensors(bytes(whole))[0].items():
                if name.startswith(row):
                    first, last = (start + at for at in t["data_offsets"])
                    whole[first:last] = bytes(last - first)
            file.write_bytes(whole)
            self.assertGreater(self.apart(self.resumed(checkpoint), expected), 1e-2, row)

    def test_a_checkpoint_of_a_later_one_is_refused_by_its_number(self):
        self.assertEqual(self.train()[0], 0)
        file = self.out / "latest" / "run.json"
        run = json.loads(file.read_text())
        for number in [2, 17]:
            file.write_text(json.dumps(run | {"format_version": number}))
            said = f"run.json: field format_version: {number} cannot be read; this program reads 1"
            self.refused(spool("train", "--resume", self.out, "--steps", 4), 1, said)
            self.refused(spool("info", self.out), 1, said)

    def test_a_plan_of_a_later_one_is_refused_by_its_number(self):
        file = self.folder / "plan.json"
        homes = ["--parameters", "host"]  # a plan with units has the latest version
        self.assertEqual(spool("plan", *SHAPE, *homes, "--save-plan", file)[0], 0)
        plan = json.loads(file.read_text())
        self.assertEqual(spool("plan", *SHAPE, "--plan", file)[0], 0)
        later = plan["spool_plan"] + 1
        file.write_text(json.dumps(plan | {"spool_plan": later, "more": 1}))
        said = [f"is a plan of version {later}", f"reads versions up to {later - 1}"]
        self.refused(spool("plan", *SHAPE, "--plan", file), 1, *said)
        self.refused(self.train("--plan", file, "--dry-run"), 1, *said)
        self.refused(spool("info", file), 1, *said)


if __name__ == "__main__":
    main()
