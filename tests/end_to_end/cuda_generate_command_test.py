"""Texts and losses of a GPU beside those of the cpu.

cuda_generate_command_test.py PROGRAM [CASE...]

The logits of both are compared in tests/end_to_end/cuda/generator_test.cpp: where two tokens are about
as probable, texts may differ.
"""

import json

from commands import spool
from on_cuda import OnCuda, main


class Generate(OnCuda):
    def result(self, *words, device="cuda"):
        status, printed, errors = spool(*words, "--model", self.out, "--device", device, "--json")
        self.assertEqual(status, 0, errors)
        return json.loads(printed)

    def test_losses_are_those_of_the_cpu_also_of_a_text_from_the_gpu(self):
        self.done(steps=30)
        write = ["generate", "--prompt", "Line ", "--tokens", 40, "--temperature", 1]
        written = self.result(*write)
        self.assertGreater(written["tokens"], 0)
        self.assertEqual(self.result(*write), written)
        text = self.folder / "written.txt"
        text.write_text(written["prompt"] + written["text"])
        for data in self.text, text:
            cpu, cuda = (self.result("eval", "--data", data, device=d) for d in ("cpu", "cuda"))
            self.assertEqual(cuda["tokens"], cpu["tokens"])
            self.assertAlmostEqual(cuda["loss"], cpu["loss"], delta=1e-5 * cpu["loss"])


if __name__ == "__main__":
    main()
