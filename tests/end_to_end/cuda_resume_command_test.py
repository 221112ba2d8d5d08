"""Runs on a GPU that are interrupted or killed, and go on.

cuda_resume_command_test.py PROGRAM [CASE...]
"""

import re
import signal
import subprocess

from commands import PROGRAM, SHAPE, nightly
from on_cuda import CUDA, OnCuda, main


class Resume(OnCuda):
    def interrupted(self, after, *words):
        """Interrupts a run soon after a step of that number; returns its last step."""
        command = [PROGRAM, "train", *CUDA, "--out", self.out, "--log", self.folder / "log.jsonl", *words]
        run = subprocess.Popen(
            [str(w) for w in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace"
        )
        said = ""
        for line in run.stdout:
            said += line
            step = re.match(r"step (\d+)/", line)
            if step and int(step[1]) >= after:
                break
        run.send_signal(signal.SIGINT)
        said += run.communicate(timeout=300)[0]
        self.assertEqual(run.returncode, 130, said)
        return int(re.search(r"stopped after step (\d+)", said)[1])

    def test_an_interrupt_finds_a_step_in_the_queue(self):
        """A second one, too, as the steps of a run are part of it: it is resumed with all of them."""
        begin = [*SHAPE, "--data", self.text, "--steps", 100000]
        first = self.interrupted(3, *begin)
        last = self.interrupted(first + 2, "--resume")
        self.assertGreaterEqual(last, first + 2)
        self.assertEqual(sorted(self.losses(self.folder / "log.jsonl")), list(range(1, last + 1)))

    @nightly
    def test_resumes_after_a_kill_at_a_random_moment(self):
        self.killed_and_resumed(*CUDA, "--checkpoint-every", 3, "--dropout", 0.1, steps=60)


if __name__ == "__main__":
    main()
