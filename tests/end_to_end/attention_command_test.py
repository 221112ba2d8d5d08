"""What computes attention on a GPU, and how its backward is cut, follows the memory of a run.

attention_command_test.py PROGRAM [CASE...]
"""

import json

from commands import Folder, main, spool

LONG = ["--model", "gpt2-124m", "--layers", 2, "--dtype", "bf16", "--batch", 1]
LONG += ["--context", 16384, "--seq", 16384, "--machine", "h200"]


class AttentionCommandTest(Folder):
    def plan(self, *words):
        return json.loads(spool("plan", *LONG, *words, "--json", "-")[1])

    def test_cuts_attention_by_the_memory(self):
        free = self.plan()
        self.assertEqual(free["attention"]["backward_parts"], 1)
        least = self.plan("--memory", "1kB")["minimum_budget_bytes"]
        small = self.plan("--memory", least)["attention"]["backward"]
        self.assertEqual(small["method"], "tensor cores")
        self.assertIn("the plan leaves it", small["why"])
        table = spool("plan", *LONG, "--memory", least)[1]
        self.assertRegex(table, r"backward +tensor cores   the plan leaves it")
        between = least + (free["foretold_peak_bytes"] - least) // 2
        plan = self.folder / "plan.json"
        cut = self.plan("--memory", between, "--save-plan", plan)
        self.assertGreater(cut["attention"]["backward_parts"], 1)
        self.assertLessEqual(cut["foretold_peak_bytes"], between)
        stored = json.loads(plan.read_text())["chunks"]
        self.assertTrue(any(int(n) > 1 for n in stored if n != "nodes"), stored)
        again = self.plan("--plan", plan)
        self.assertEqual(again["attention"], cut["attention"])
        self.assertEqual(again["foretold_peak_bytes"], cut["foretold_peak_bytes"])

    def test_a_plan_for_a_gpu_is_read_there_and_on_a_cpu(self):
        tiny = ["plan", "--model", "gpt2-tiny", "--dtype", "bf16", "--batch", 8, "--seq", 128]
        for number, words in enumerate(([], ["--memory", "20MB"])):
            plan = self.folder / f"{number}.json"
            status, _, said = spool(*tiny, "--machine", "h200", *words, "--save-plan", plan)
            self.assertEqual(status, 0, said)
            for machine in "h200", "cpu:2,avx2,3GHz,20GB/s":
                status, _, said = spool(*tiny, "--machine", machine, "--plan", plan)
                self.assertEqual(status, 0, said)


if __name__ == "__main__":
    main()
