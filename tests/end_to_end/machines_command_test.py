"""Plans for machines that are not here: `spool plan --machine`, `spool calibrate --save`.

machines_command_test.py PROGRAM [CASE...]
"""

import json
import os
import re

from commands import Folder, main, spool

SHAPE = "--layers 3 --heads 2 --channels 32 --context 64 --seq 64 --batch 8 --vocab 600".split()
FORM = "cpu:16,avx512,3.5GHz,80GB/s,64GiB"


def instruction_set():
    """That decides how this processor multiplies bf16."""
    with open("/proc/cpuinfo") as file:
        flags = set(re.search(r"^flags\s*:(.*)$", file.read(), re.M)[1].split())
    if {"amx_tile", "amx_bf16"} <= flags:
        return "amx"
    return "avx512bf16" if "avx512_bf16" in flags else "avx512"


class Machines(Folder):
    def setUp(self):
        super().setUp()
        self.environment = {**os.environ, "XDG_CACHE_HOME": str(self.folder / "cache")}

    def plan(self, *words):
        report = self.folder / "report.json"
        report.unlink(missing_ok=True)
        status, printed, errors = spool(
            "plan", *SHAPE, *words, "--json", report, env=self.environment)
        found = json.loads(report.read_text())
        self.assertEqual(status, 1 if "error" in found else 0, errors)
        self.printed, self.errors = printed, errors
        return found

    def saved(self, *words):
        """A table of this machine's kernels."""
        file = self.folder / "there.json"
        status, printed, errors = spool(
            "calibrate", *SHAPE, *words, "--save", file, env=self.environment)
        self.assertEqual(status, 0, errors)
        self.assertIn(str(file), printed)
        return file


class Cpus(Machines):
    def test_takes_the_bytes_of_a_cpu_of_as_many_threads(self):
        for threads in (1, 2, 5):
            for words in (["--recompute", "none", "--chunk-loss", 0],
                          ["--recompute", "norms,gelu,attention", "--chunk-loss", 128, "--dtype", "bf16"]):
                here = self.plan("--threads", threads, *words)
                there = self.plan("--machine", f"cpu:{threads},{instruction_set()},3GHz,50GB/s", *words)
                for key in ("foretold_peak_bytes", "peak_bytes_by_purpose", "peak_is_in"):
                    self.assertEqual(there[key], here[key], (threads, words, key))
                self.assertRegex(self.printed, rf"\n    with --threads +{threads}\n")

    def test_has_no_limit_unless_its_memory_is_given(self):
        report = self.plan("--machine", "cpu:2,avx512,3GHz,50GB/s")
        self.assertIsNone(report["budget_bytes"])
        self.assertEqual(report["budget_is"], "none")
        self.assertEqual(report["foretold_peak_bytes"], report["keep_all_peak_bytes"])
        self.assertRegex(self.printed, r"\n  budget +none   no memory is given for the machine\n")
        self.assertIn("no budget is set", " ".join(report["explanation"]))
        huge = self.plan("--machine", "cpu:2,avx512,3GHz,50GB/s", "--memory", "1000TB")
        self.assertEqual(huge["budget_bytes"], 10**15)
        self.assertNotIn("becomes that", self.errors)
        known = self.plan("--machine", "cpu:2,avx512,3GHz,50GB/s,2GiB", "--memory", "1000TB")
        self.assertLess(known["budget_bytes"], 2 << 30)
        self.assertGreater(known["budget_bytes"], 1 << 30)
        self.assertIn("becomes that", self.errors)
        self.assertRegex(self.printed, r"\n  the program itself +[\d.]+ MiB ")
        tiny = self.plan("--machine", "cpu:2,avx512,3GHz,50GB/s,1MiB")
        self.assertIn("on the device", tiny["error"])

    def test_sends_nothing_to_its_own_memory(self):
        words = ["--machine", "cpu:2,avx2,3GHz,50GB/s,8GiB"]
        least = self.plan(*words, "--memory", "1kB")["minimum_budget_bytes"]
        report = self.plan(*words, "--memory", least)
        self.assertEqual(report["foretold_peak_bytes"], least)
        self.assertEqual((report["host_bytes"], report["disk_bytes"]), (0, 0))
        self.assertEqual(report["attention"], None)

    def test_is_faster_with_more_of_everything(self):
        def seconds(machine):
            return self.plan("--machine", machine, "--dtype", "bf16")["foretold_step_ms"]

        base = seconds("cpu:2,avx512,3GHz,50GB/s")
        self.assertLess(seconds("cpu:4,avx512,3GHz,50GB/s"), base)
        self.assertLess(seconds("cpu:2,avx512,4GHz,50GB/s"), base)
        self.assertLess(seconds("cpu:2,avx512,3GHz,80GB/s"), base)
        self.assertLess(seconds("cpu:2,avx512bf16,3GHz,50GB/s"), base)
        self.assertGreater(seconds("cpu:2,avx512,3GHz,50GB/s,one-port"), base)
        self.assertEqual(seconds("cpu:2,avx2,3GHz,50GB/s"),
                         seconds("cpu:2,avx512,3GHz,50GB/s,one-port"))


class Sheets(Machines):
    def test_kernels_have_their_times_by_name_which_add_up_to_the_step(self):
        report = self.plan("--machine", "h200", "--kernels")
        table = self.printed[self.printed.index("  kernel "):].splitlines()[1:]
        rows = [re.match(r"  (\w+) +(\d+) +([\d.]+)$", line) for line in table]
        rows = [(row[1], int(row[2]), float(row[3])) for row in rows if row]
        *kernels, whole = rows
        self.assertEqual(whole[0], "all")
        times = [seconds for _, _, seconds in kernels]
        self.assertEqual(times, sorted(times, reverse=True))
        self.assertEqual(sum(launches for _, launches, _ in kernels), whole[1])
        self.assertAlmostEqual(sum(times), whole[2], delta=1e-3 * len(times))
        self.assertLessEqual(whole[2], report["foretold_step_ms"] + 1e-3)
        self.assertGreater(whole[2], 0.9 * report["foretold_step_ms"])
        self.assertIn("attention_backward", [name for name, _, _ in kernels])

    def test_may_have_other_memory_and_another_link(self):
        self.assertEqual(self.plan("--machine", "rtx4090")["budget_bytes"], 24_000_000_000)
        self.assertEqual(self.plan("--machine", "rtx4090,400GiB")["budget_bytes"], 400 << 30)
        words = ["--offload", "all", "--model", "gpt2-124m", "--batch", 16]
        fast = self.plan("--machine", "rtx4090,48GiB", *words)
        slow = self.plan("--machine", "rtx4090,link=6GB/s,48GiB", *words)
        self.assertGreater(slow["foretold_step_ms"], fast["foretold_step_ms"])


class Tables(Machines):
    def test_plan_as_the_machine_they_are_of(self):
        file = self.saved("--threads", 2)
        least = self.plan("--threads", 2, "--memory", "1kB")["minimum_budget_bytes"]
        for words in ([], ["--memory", least]):
            here = self.plan("--threads", 2, *words)
            there = self.plan("--machine", file, *words)
            for report in (here, there):  # but for what is free now
                del report["plan_ms"], report["budget_bytes"], report["explanation"][0]
            self.assertEqual(there, here)
        elsewhere = {**self.environment, "XDG_CACHE_HOME": str(self.folder / "empty")}
        status, _, errors = spool("plan", *SHAPE, "--machine", file, env=elsewhere)
        self.assertEqual(status, 0, errors)
        self.assertFalse((self.folder / "empty").exists())

    def test_that_are_damaged_are_refused_by_their_field(self):
        file = self.saved("--threads", 1)
        whole = json.loads(file.read_text())

        def refuses(change, *parts):
            damaged = self.folder / "damaged.json"
            table = json.loads(json.dumps(whole))
            change(table)
            damaged.write_text(json.dumps(table))
            self.refused(spool("plan", *SHAPE, "--machine", damaged), 1, "damaged.json", *parts)

        refuses(lambda t: t.update(spool_kernels=2), "spool_kernels", "version 2")
        refuses(lambda t: t.pop("spool_kernels"), "spool_kernels is missing")
        refuses(lambda t: t.pop("rates"), "rates")
        refuses(lambda t: t.pop("machine"), "machine")
        refuses(lambda t: t["rates"].update(f32_flops=0), "rates.f32_flops")
        refuses(lambda t: t["rates"].update(launch_seconds=float("nan")), "damaged.json")
        refuses(lambda t: t["machine"].update(memory=-1), "machine.memory")
        refuses(lambda t: t["machine"]["cpu"].update(threads=0), "machine.cpu.threads")
        refuses(lambda t: t["machine"]["cpu"].update(bf16_products="many"), "bf16_products")
        refuses(lambda t: t["kernels"][0].update(seconds="fast"), "kernels[0].seconds")
        for text in ("", "{", "[]", "plan", '{"format": "spool-plan-report"}'):
            file.write_text(text)
            self.refused(spool("plan", *SHAPE, "--machine", file), 1, "there.json")
        for name in (self.folder / "none.json", self.folder, "none.json"):
            self.refused(spool("plan", *SHAPE, "--machine", name), 1, str(name))

    def test_replace_only_tables(self):
        other = self.folder / "other.json"
        other.write_text("{}")
        result = spool("calibrate", *SHAPE, "--threads", 1, "--save", other, env=self.environment)
        self.refused(result, 1, "not a table", "--save")
        self.assertEqual(other.read_text(), "{}")
        missing = self.folder / "no" / "folder.json"
        result = spool("calibrate", *SHAPE, "--threads", 1, "--save", missing, env=self.environment)
        self.refused(result, 1, "--save")
        self.assertFalse((self.folder / "cache").exists())
        self.saved("--threads", 1)
        self.saved("--threads", 1)
        self.refused(spool("calibrate", *SHAPE, "--save", "-"), 2, "--save")


class Refusals(Machines):
    def test_say_what_would_work(self):
        for text, *parts in [
            ("h2000", "rtx4090", FORM),
            ("rtx5090,link=6GB/s", "there is no machine", "rtx4090"),
            ("rtx4090,48", "'48' is no amount of memory"),
            ("rtx4090,link=6", "'6' is no rate", "80GB/s"),
            ("rtx4090,link=6GB/s,link=6GB/s", "'link=6GB/s' is a word too many"),
            ("cpu", "there is no machine"),
            ("cpu:", FORM),
            ("cpu:16,avx512,3.5GHz", "has 3 words of 4", FORM),
            ("cpu:0,avx512,3.5GHz,80GB/s", "'0' is no number of threads", "1 to 4096"),
            ("cpu:-1,avx512,3.5GHz,80GB/s", "'-1' is no number of threads"),
            ("cpu:1e9,avx512,3.5GHz,80GB/s", "'1e9' is no number of threads"),
            ("cpu:16,avx1024,3.5GHz,80GB/s", "'avx1024'", "avx2, avx512, avx512bf16 or amx"),
            ("cpu:16,avx512,3.5,80GB/s", "'3.5' is no clock", "3.5GHz"),
            ("cpu:16,avx512,nanGHz,80GB/s", "'nanGHz' is no clock"),
            ("cpu:16,avx512,1e400GHz,80GB/s", "'1e400GHz' is no clock"),
            ("cpu:16,avx512,3.5GHz,80", "'80' is no rate", "give a rate such as 80GB/s"),
            ("cpu:16,avx512,3.5GHz,80GB", "'80GB' is no rate"),
            ("cpu:16,avx512,3.5GHz,1e400GB/s", "'1e400GB/s' is no rate"),
            ("cpu:16,avx512,3.5GHz,80GB/s,64", "'64' is no amount of memory"),
            ("cpu:16,avx512,3.5GHz,80GB/s,two-port", "'two-port'", "one-port"),
            ("cpu:16,avx2,3.5GHz,80GB/s,one-port", "'one-port'", "avx2"),
            ("cpu:16,avx512,3.5GHz,80GB/s,link=6GB/s", "link", "own memory"),
        ]:
            self.refused(spool("plan", *SHAPE, "--machine", text), 2, "--machine", *parts)

    def test_contradictions(self):
        cpu = ["--machine", "cpu:4,avx2,2GHz,20GB/s"]
        self.refused(spool("plan", *SHAPE, *cpu, "--threads", 2), 1, "--threads", "4 threads")
        self.refused(spool("plan", *SHAPE, *cpu, "--device", "cpu"), 1, "--device", "--machine")
        self.assertIn("foretold_peak_bytes", self.plan(*cpu, "--threads", 4))

    def test_of_huge_and_slow_machines_are_plans(self):
        for text in ("cpu:4096,amx,1000GHz,4000000TB/s,4000000TiB", "cpu:1,avx2,1MHz,1B/s,1B",
                     "rtx4090,1B,link=1B/s", "h200,4000000TiB,link=4000000TB/s"):
            self.plan("--machine", text)
            self.assertNotRegex(self.printed + self.errors, r"\b(nan|inf)\b")


if __name__ == "__main__":
    main()
