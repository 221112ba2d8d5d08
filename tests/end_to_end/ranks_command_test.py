"""Runs on several ranks end in the files of a run on one, byte for byte.

ranks_command_test.py PROGRAM [CASE...]
"""

import json
import os
import random
import re
import signal
import subprocess
import time

from commands import PROGRAM, SHAPE, Folder, last_step, main, spool

FILES = ["model.safetensors", "optimizer.safetensors", "run.json"]
STEP = ["--accumulate", 12, "--dropout", 0.1, "--eval-every", 2, "--eval-batches", 3]
LLAMA = ["--model", "llama-tiny"]


class Ranks(Folder):
    def run_on(self, ranks, *words, name=None, steps=4):
        """Trains on these ranks, or on one without any; returns the run's folder."""
        out = self.folder / (name or f"ranks-{ranks}")
        log = out.with_suffix(".log")
        on = ["--ranks", ranks, "--log", log] if ranks else []
        status, printed, errors = self.train(*STEP, *words, *on, out=out, steps=steps)
        self.assertEqual(status, 0, errors)
        if ranks:
            self.assertEqual(self.steps_with_numbers(log, ranks)[-2:], [steps, steps])
        peak = printed.split("\npeak ")[1].split("\n")[0]
        self.assertEqual(*[words.split()[-2] for words in f"{peak}".split(", ")], peak)
        return out

    def same(self, one, other):
        for name in FILES:
            theirs = (other / "latest" / name).read_bytes()
            self.assertEqual((one / "latest" / name).read_bytes(), theirs, f"{other.name} {name}")

    def steps_with_numbers(self, log, ranks):
        """The steps after which the log has the numbers of ranks, which took and sent what was foretold."""
        lines = [entry for entry in self.log(log) if "ranks" in entry]
        for line in lines:
            for numbers in line["ranks"]:
                self.assertEqual(numbers["sent_bytes"], numbers["foretold_sent_bytes"], line)
                self.assertEqual(numbers["sent_bytes"] > 0, len(line["ranks"]) > 1, line)
        self.assertEqual([numbers["rank"] for numbers in lines[-1]["ranks"]], list(range(ranks)))
        for numbers in lines[-1]["ranks"]:
            for what in ["peak_bytes", "host_peak_bytes"]:
                self.assertEqual(numbers[what], numbers[f"foretold_{what}"], lines[-1])
        return [line["step"] for line in lines]

    def sums(self, run):
        return json.loads((run / "latest" / "run.json").read_text())["gradient_sums"]

    def test_end_in_the_same_files_on_any_number(self):
        alone = self.run_on(1)
        self.assertEqual(self.sums(alone), "micro-batches")
        for ranks in [2, 3, 12]:
            self.same(alone, self.run_on(ranks))

    def test_end_in_the_same_files_wherever_the_state_is(self):
        for name, words in {"stochastic": ["--dtype", "bf16", "--rounding", "stochastic"],
                            "masters": ["--dtype", "bf16", "--chunk-loss", 16, "--chunk-mlp", 16]}.items():
            alone = self.run_on(1, *words, name=name)
            for place in ["streamed", "cpu"]:
                self.same(alone, self.run_on(4, *words, "--optimizer-state", place, name=name + place))

    def test_train_a_llama_in_every_stage(self):
        whole = self.run_on(12, *LLAMA, "--zero", 0, name="stage-0")
        for stage in [1, 2, 3]:
            self.same(whole, self.run_on(12, *LLAMA, "--zero", stage, name=f"stage-{stage}"))

    def test_store_large_parameters_in_parts(self):
        wide = ["--layers", 2, "--channels", 128, "--accumulate", 4]
        whole = self.run_on(1, *wide, name="whole")
        kept = self.run_on(2, *wide, "--zero", 3, "--mesh", "data=2", name="kept")
        self.same(whole, kept)
        again = self.run_on(4, *wide, "--zero", 3, "--recompute", "gathers,block", name="again")
        self.same(whole, again)
        self.refused(self.train(*STEP, *wide, "--recompute", "gathers", "--ranks", 2), 1, "--recompute", "--zero 3")
        self.refused(self.train(*STEP, *wide, "--zero", 3, "--mesh", "tensor=2", "--shard", "megatron"), 1,
                     "--zero 3 divides parameters among ranks that have micro-batches of their own", "data")
        log = self.folder / "log"
        words = ["train", "--resume", "--out", again, "--steps", 5, "--log", log]
        for on in ["--zero", 3, "--mesh", "data=2,tensor=2", "--shard", "megatron"], ["--ranks", 2, "--zero", 3]:
            status, _, errors = spool(*words, *on)
            self.assertEqual(status, 0, errors)

    def test_of_stage_1_on_one_rank_is_a_run_without_ranks(self):
        alone = self.run_on(None, name="without")
        self.assertEqual(self.sums(alone), {"ranks": 1})
        self.same(alone, self.run_on(1, "--zero", 1, name="one"))
        self.assertEqual(self.sums(self.run_on(3, "--zero", 1)), {"ranks": 3})

    def test_go_on_on_another_number(self):
        whole = self.run_on(1, name="whole", steps=8)
        out = self.run_on(4, "--checkpoint-every", 2, name="moving", steps=8)
        self.same(whole, out)
        parts = self.folder / "parts"
        words = [*SHAPE, *STEP, "--data", self.text, "--out", parts, "--steps", 8,
                 "--checkpoint-every", 2]
        for ranks in [4, 2, 3, None]:
            command = ["train", *words] if ranks == 4 else ["train", "--out", parts, "--resume"]
            on = ["--ranks", ranks] if ranks else []
            run = subprocess.Popen([PROGRAM, *map(str, [*command, *on, "--log", parts.with_suffix(f".{ranks}")])],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, errors="replace")
            log, until = parts.with_suffix(f".{ranks}"), random.randint(2, 8)
            while ranks and run.poll() is None and last_step(log) < until:
                time.sleep(0.002)
            if ranks and run.poll() is None:
                run.send_signal(random.choice([signal.SIGKILL, signal.SIGTERM]))
            errors = run.communicate(timeout=300)[1]
            self.assertIn(run.returncode, [0, -signal.SIGKILL, 130], errors)
            if not (parts / "latest").exists():
                return  # killed before its first checkpoint: nothing can go on
        self.same(whole, parts)

    def test_log_what_each_took_with_each_checkpoint(self):
        log = self.folder / "log"
        words = ["--checkpoint-every", 2, "--log", log]
        self.assertEqual(self.train(*STEP, *words, "--ranks", 3, steps=4)[0], 0)
        status, _, errors = spool("train", "--out", self.out, "--resume", "--steps", 6, *words, "--ranks", 2)
        self.assertEqual(status, 0, errors)
        self.assertEqual(self.steps_with_numbers(log, 2), [2, 4, 4, 6, 6])
        status, printed, errors = spool("plot", log, "--out", self.folder / "page.html")
        self.assertEqual((status, errors), (0, ""))

    def test_trace_exchanges_foretold_and_measured(self):
        trace = self.folder / "trace.json"
        status, printed, errors = self.train(*STEP, "--ranks", 2, "--trace", trace)
        self.assertEqual(status, 0, errors)
        said = re.search(r"foretold [^;]*, exposed exchanges .*s; measured .*, exposed exchanges .*s\n", printed)
        self.assertTrue(said, printed)
        traced = json.loads(trace.read_text())
        for one in traced["otherData"].values():
            self.assertGreater(one["exchange_seconds"], 0)
            self.assertGreaterEqual(one["exposed_exchange_seconds"], 0)
        gradients = [e["pid"] for e in traced["traceEvents"] if e["name"] == "gradients"]
        self.assertEqual(len(set(gradients)), 2)
        self.assertEqual(gradients.count(gradients[0]), gradients.count(gradients[-1]))

    def test_evaluate_to_the_same_number(self):
        out = self.run_on(2)
        words = ["eval", "--model", out, "--data", self.text, "--batch", 3]
        alone = spool(*words)
        for ranks in [1, 2, 3]:
            self.assertEqual(spool(*words, "--ranks", ranks), alone)
        memory = ["--memory", "4MiB", "--json"]
        plain, divided = spool(*words, *memory), spool(*words, *memory, "--ranks", 2)
        self.assertEqual(divided[:2], plain[:2])
        self.assertIn("of each of 2 ranks", divided[2])
        self.refused(spool(*words, "--ranks", 65), 2, "--ranks")
        self.refused(spool(*words, "--ranks", 2, "--memory", "1kB"), 1, "budget")

    def test_say_when_they_crowd_the_processors(self):
        cores = len(os.sched_getaffinity(0))
        crowded = self.train(*STEP, "--ranks", 2, "--threads", cores, "--dry-run")[1]
        self.assertIn(f"{2 * cores} threads of 2 ranks on ", crowded)
        self.assertNotIn("slower than foretold", self.train(*STEP, "--ranks", 1, "--dry-run")[1])
        status, _, errors = self.train(*STEP, "--ranks", 4, "--memory", "1000TiB", "--dry-run")
        self.assertEqual(status, 0, errors)
        self.assertIn("of each of 4 ranks is more than", errors)

    def test_say_when_the_order_of_sums_changes(self):
        self.run_on(None, "--checkpoint-every", 2, name="run", steps=4)
        words = ["--out", self.folder / "run", "--resume", "--steps", 6, "--ranks", 2]
        status, printed, errors = spool("train", *words)
        self.assertEqual(status, 0, errors)
        self.assertIn("from step 5 on, losses differ in their last bits", printed)

    def test_refuse_what_cannot_be_divided(self):
        self.refused(self.train(*STEP, "--ranks", 5), 1, "1, 2, 3, 4, 6 or 12 ranks", "not 5")
        self.refused(self.train(*STEP, "--zero", 1), 1, "--zero", "--ranks")
        self.refused(self.train(*STEP, "--rank-timeout", 9), 1, "--rank-timeout", "--ranks")
        self.refused(self.train(*STEP, "--mesh", "data=2", "--ranks", 3), 1, "--mesh data=2", "3")
        words = ["--data", self.text, "--seq", 16, "--tokens-per-step", 16 * 9, "--ranks", 2]
        self.refused(spool("train", *words), 1, "9 rows", "2 ranks", "multiple of 32 tokens")
        for ranks in ["0", "-1", "two"]:
            self.assertNotEqual(self.train(*STEP, "--ranks", ranks)[0], 0)

    def test_one_sentence_says_why_a_run_does_not_begin(self):
        self.refused(self.train(*STEP, "--ranks", 4, "--memory", "1kB"), 1, "--memory")
        self.assertEqual(self.train(*STEP, "--ranks", 2)[0], 0)
        self.refused(self.train(*STEP, "--ranks", 2), 1, "already has a run")

    def test_foretell_without_training(self):
        printed = self.train(*STEP, "--ranks", 4, "--dry-run")[1]
        out = self.run_on(4)
        self.assertTrue((out / "latest").exists())
        log = self.folder / "log"
        self.assertEqual(self.train(*STEP, "--ranks", 4, "--log", log, out=self.folder / "b")[0], 0)
        self.assertEqual({e["peak_bytes"] for e in self.log(log) if "loss" in e}, {self.foretold(printed)})

    def test_of_a_machine_that_is_named_need_no_flag(self):
        plan = ["plan", *SHAPE, "--machine"]
        status, printed, errors = spool(*plan, "2x4xh200", "--zero", 1)
        self.assertEqual(status, 0, errors)
        self.assertIn("on 8 ranks of h200", printed)
        self.assertIn("ZeRO 1: state divided", printed)
        self.refused(spool(*plan, "8xh200", "--ranks", 4), 1, "4 is not the number of ranks", "has 8")
        self.refused(spool(*plan, "8xh200", "--accumulate", 3), 1, "1 or 3 ranks", "not 8")
        self.refused(spool(*plan, "h200", "--zero", 1), 1, "--zero", "--ranks")

    def test_draw_a_page_of_the_micro_batches_of_one(self):
        for command in [["plan", *SHAPE], ["train", *SHAPE, "--data", self.text, "--out", self.out]]:
            page = self.folder / f"{command[0]}.html"
            status, _, errors = spool(*command, *STEP[:2], "--ranks", 3, "--report", page)
            self.assertEqual(status, 0, errors)
            self.assertIn("exchange", page.read_text())

    def test_wait_for_rank_0_as_long_as_it_plans(self):
        cache = {**os.environ, "XDG_CACHE_HOME": str(self.folder / "cache")}
        words = [*STEP, "--ranks", 2, "--rank-timeout", 1, "--model", "gpt2-tiny"]
        status, _, errors = self.train(*words, steps=1, env=cache)
        self.assertEqual(status, 0, errors)

    def test_make_up_micro_batches_for_all_of_them(self):
        log = self.folder / "log"
        status, _, errors = self.train("--mesh", "data=3", "--log", log)
        self.assertEqual(status, 0, errors)
        self.assertEqual([e["tokens"] for e in self.log(log) if "loss" in e], [96, 192, 288])

    def test_a_signal_saves_after_the_same_step_of_all(self):
        log = self.folder / "log"
        words = [*SHAPE, *STEP, "--data", self.text, "--out", self.out, "--log", log, "--ranks", 4]
        run = subprocess.Popen([PROGRAM, "train", *map(str, words), "--steps", "1000000"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, errors="replace")
        while run.poll() is None and last_step(log) < 2:
            time.sleep(0.002)
        run.send_signal(signal.SIGTERM)
        errors = run.communicate(timeout=60)[1]
        self.assertEqual(run.returncode, 130, errors)
        stored = json.loads((self.out / "latest" / "run.json").read_text())
        self.assertEqual(stored["step"], last_step(log))


if __name__ == "__main__":
    main()
