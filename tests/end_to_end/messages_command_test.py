"""Messages are one line that names the culprit, in Spool's own words.

messages_command_test.py PROGRAM [CASE...]
"""

import json
import os
import re
import shutil
import struct

from commands import SHAPE, Folder, main, spool
from hostile.values import COMMANDS, flags_of


class Messages(Folder):
    def test_a_loop_of_links_is_named_with_the_systems_reason(self):
        loop, reason = self.folder / "loop", "loop: cannot be"
        loop.symlink_to("loop")
        for flag in ["--log", "--trace", "--save-plan", "--data", "--model", "--merges", "--plan"]:
            self.refused(self.train(flag, loop), 1, reason, "Too many levels of symbolic links")
        for words in [
            ["plan", *SHAPE, "--json", loop],
            ["train", "--resume", "--out", loop],
            ["info", loop],
            ["eval", "--model", loop, "--data", self.text],
            ["convert", loop, self.folder / "new"],
            ["tokenize", self.text, "--merges", loop, "--out", self.folder / "new.bin"],
        ]:
            self.refused(spool(*words), 1, reason, "Too many levels of symbolic links")
        self.refused(self.train("--model", "n" * 300), 1, "File name too long")
        self.assertFalse(self.out.exists())

    def test_a_missing_folder_for_temporary_files_is_named(self):
        moved = {**os.environ, "TMPDIR": str(self.folder / "none")}
        status, _, errors = self.train("--offload", "all", "--optimizer-state", "cpu", env=moved)
        self.assertIn(status, [0, 1])
        self.assertNotIn("filesystem error", errors)

    def test_broken_json_is_named_by_line_and_column(self):
        file = self.folder / "plan.json"
        for text, place in [
            ("", "line 1, column 1: unexpected end of input"),
            ('{"a": [1,}', "line 1, column 10: unexpected '}'"),
            ('{\n  "a": nul\n}', "line 2, column"),
            ('{"a":\n "x\udcff', "line 2, column 4: invalid string: ill-formed UTF-8 byte"),
            ('{"a": 1e999}', "column 11: the number is too large"),
        ]:
            file.write_text(text, errors="surrogateescape")
            result = spool("plan", *SHAPE, "--plan", file)
            self.refused(result, 1, "plan.json: is not JSON: " + place if text[:1] != "{" else place)
            self.assertNotRegex(result[2], r"json\.exception|last read|while parsing")

    def test_control_characters_do_not_reach_standard_error(self):
        odd = "two\nlines\t\x1b[31m\x07"
        for result, code in [
            (self.train("--dtype", odd), 2),
            (self.train("--device", odd), 1),
            (self.train("--data", odd), 1),
            (spool("info", odd), 1),
        ]:
            self.refused(result, code, "two lines \ufffd[31m\ufffd")
        header = json.dumps({"__metadata__": {"\x1b[2J": "\x07\x1b[31m"}}).encode()
        (self.folder / "a.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
        status, printed, errors = spool("info", self.folder / "a.safetensors")
        self.assertEqual(status, 0, errors)
        self.assertIn("\ufffd[2J", printed)
        self.assertNotRegex(printed, "[\x1b\x07]")
        repeated = self.train("--tokenizer", odd, "--tokenizer", "bytes\x1b")
        self.assertEqual(len(repeated[2].splitlines()), 2, repeated[2])
        self.assertNotIn("\x1b", repeated[2])
        self.refused(spool("info", "a" * 100000), 1, "aaa...aaa")

    def test_the_learning_rate_is_blamed_with_the_weight_decay(self):
        for words in [["--lr", 10], ["--weight-decay", 1000]]:
            self.refused(self.train(*words), 1, "product must be below 1 (--lr, --weight-decay)")
        self.refused(self.train("--lr", "inf"), 1, "must be a finite number", "(--lr)")
        self.refused(self.train("--weight-decay", "inf"), 1, "finite", "(--weight-decay)")

    def test_a_run_that_resumes_with_another_model_blames_it(self):
        self.assertEqual(self.train()[0], 0)
        result = spool("train", "--resume", "--out", self.out, "--model", "gpt2-124m")
        self.refused(result, 1, "with the model gpt2-124m", "(--model, --out)")

    def test_the_directory_of_a_run_is_no_file(self):
        link = self.folder / "link"
        link.symlink_to("none")
        for out in [self.text, self.text / "below", link, link / "below"]:
            self.refused(self.train(out=out), 1, "is not a directory", "(--out)")
        self.refused(spool("train", "--resume", "--out", self.text), 1, "is not a directory")
        self.assertEqual(self.train()[0], 0)
        self.refused(self.train(out=self.out / "latest"), 1, "latest: is a checkpoint", "(--out)")

    def test_a_configuration_is_blamed_by_its_field(self):
        self.assertEqual(self.train()[0], 0)
        file = self.out / "latest" / "config.json"
        for key, number in [("n_layer", 0), ("n_layer", 10**9), ("n_head", 3), ("vocab_size", -1)]:
            config = json.loads(file.read_text())
            file.write_text(json.dumps({**config, key: number}))
            shutil.rmtree(self.folder / "model", ignore_errors=True)
            model = shutil.copytree(self.out / "latest", self.folder / "model")
            file.write_text(json.dumps(config))
            for words in [["train", "--out", self.folder / "new"], ["eval"]]:
                result = spool(*words, "--model", model, "--data", self.text)
                self.refused(result, 1, f"config.json: field {key}: ")
                self.assertNotIn("--", result[2])

    def test_weights_that_are_not_finite_are_named(self):
        self.assertEqual(self.train()[0], 0)

        def spoil(file, tensor, value):
            data = bytearray(file.read_bytes())
            length = struct.unpack("<Q", data[:8])[0]
            at = json.loads(data[8 : 8 + length])[tensor]["data_offsets"][0] + 8 + length + 20
            data[at : at + 4] = struct.pack("<f", value)
            file.write_bytes(data)

        tensor = "h.1.mlp.c_fc.weight"
        parts = [f'model.safetensors: tensor "{tensor}": element 5 is not finite']
        model = shutil.copytree(self.out / "latest", self.folder / "model")
        spoil(model / "model.safetensors", tensor, float("nan"))
        tune = ["train", "--steps", 2, "--data", self.text, "--out", self.folder / "new"]
        for words in [tune, ["eval", "--data", self.text], ["generate", "--tokens", 3]]:
            result = spool(*words, "--model", model)
            self.refused(result, 1, *parts)
            self.assertNotIn("learning rate", result[2])
        spoil(self.out / "latest" / "optimizer.safetensors", "m." + tensor, float("inf"))
        result = spool("train", "--resume", "--out", self.out, "--steps", 5)
        self.refused(result, 1, f'optimizer.safetensors: tensor "m.{tensor}": element 5')

    def test_files_with_fields_of_other_types_are_described_or_refused(self):
        log, report = self.folder / "log", self.folder / "report.json"
        self.assertEqual(self.train("--log", log)[0], 0)
        whole = log.read_text()
        for a, b in [('"step":2', '"step":"two"'), ('"step":2', '"step":18446744073709551615')]:
            log.write_text(whole.replace(a, b))
            self.assertEqual(spool("info", log)[0], 0)
            status, _, errors = spool(
                "train", "--resume", "--out", self.out, "--log", log, "--steps", 4
            )
            self.assertEqual(status, 0, errors)
        for text in ['{"format": 1}', '{"format": [], "spool_kernels": 1}', '{"spool_kernels": 1}']:
            report.write_text(text)
            self.refused(spool("plan", *SHAPE, "--json", report), 1, "is not a report of a plan")
            self.refused(self.train("--log", report, out=self.folder / "new"), 1, "exists already")
            self.assertIn(spool("info", report)[0], [0, 1])

    def test_no_flag_of_any_command_takes_an_empty_value(self):
        tried = 0
        for command in COMMANDS:
            for flag in flags_of(command):
                if not flag.kind:
                    continue
                tried += 1
                for words in [[flag.name, ""], [flag.name + "="]]:
                    self.refused(spool(command, *words), 2, f"{flag.name}: the value is empty", command)
        self.assertGreater(tried, 100)
        for words in [["info", ""], ["plot", "", "--out", "x"], ["tokenize", self.text, "", "--out", "x.bin"]]:
            self.refused(spool(*words), 2, "the value is empty")
        self.refused(self.train("--val-data", self.text, ""), 2, "--val-data: the value is empty")
        self.assertFalse(self.out.exists())

    def test_a_value_that_cannot_be_read_is_told_with_what_would_work(self):
        number, whole = "is not a number; write it as in 0.001", "is not a whole number; write it in decimal"
        for flag, value, says in [
            ("--min-lr", "x", number),
            ("--clip", "1,5", number),
            ("--dropout", "0x1p-3", number),
            ("--checkpoint-minutes", "5m", number),
            ("--beta1", "1e-999", "too large or too small"),
            ("--warmup", "2.0", whole),
            ("--keep-checkpoints", 2**31, f"give at most {2**31 - 1}"),
            ("--eval-batches", 2**63 - 1, f"give at most {2**31 - 1}"),
            ("--lr-schedule", "cosin", "is none of cosine, linear, constant, wsd"),
            ("--dtype", "F32", "is none of f32, bf16"),
            ("--memory", "2 apples", "is not an amount of memory"),
        ]:
            self.refused(self.train(flag, value), 2, f"{flag}: ", str(value), says, "see spool train --help")
        self.refused(self.train("--dry-run=no"), 2, "--dry-run takes no value, and 'no' was given")
        self.refused(spool("train", "--lr"), 2, "--lr needs a value")
        self.assertEqual(self.train("--dry-run", "--lr", "+1e-3", "--memory", "1gIb")[0], 0)

    def test_a_smaller_step_is_advised_only_where_one_fits(self):
        fixed = ["plan", *SHAPE, "--context", 256, "--seq", 256, "--batch", 1, "--threads", 1]
        smallest = spool(*fixed, "--memory", "1kB")
        self.refused(smallest, 1, "no smaller batch and no shorter rows were found to fit")
        needed = int(re.search(r"needs [^(]*\((\d+) bytes", smallest[2])[1])
        self.refused(spool(*fixed, "--memory", needed - 1), 1, "; shorter rows may fit")
        self.assertEqual(spool(*fixed, "--memory", needed)[0], 0)
        gpu = "plan --model gpt2-124m --machine h200 --batch 64 --memory".split()
        self.refused(spool(*gpu, "1MiB"), 1, "no smaller batch and no shorter rows were found to fit")
        needed = int(re.search(r"needs [^(]*\((\d+) bytes", spool(*gpu, "1MiB")[2])[1])
        self.refused(spool(*gpu, needed - 1), 1, "; a smaller batch may fit")

    def test_limits_are_named(self):
        most = 2**31 - 1
        for flag in ["--chunk-mlp", "--chunk-loss", "--accumulate", "--final-eval"]:
            self.refused(self.train(flag, most + 1), 1, flag, str(most + 1), f" {most}")
        result = self.train("--batch", 2**20, "--seq", 2**12, "--context", 2**12)
        self.refused(result, 1, f"at most {most} tokens", "(--batch, --seq, --accumulate)")
        self.assertEqual(self.train("--dry-run", "--chunk-mlp", most)[0], 0)

    def test_standard_output_has_one_rule(self):
        for name in ["-", "/dev/stdout", "/dev/fd/1"]:
            for flag in ["--report", "--trace", "--save-plan", "--out"]:
                result = spool("train", *SHAPE, "--data", self.text, flag, name)
                self.refused(result, 2, f"{flag}: '{name}' is standard output, where ", "cannot go")
            for words in [["plot", self.text, "--out", name], ["plan", "--report", name], ["convert", "x", name]]:
                self.refused(spool(*words), 2, "is standard output")
            status, printed, errors = spool("plan", *SHAPE, "--machine", "h200", "--json", name)
            self.assertEqual(status, 0, errors)
            self.assertEqual(json.loads(printed)["format"], "spool-plan-report")
            out = self.folder / f"run{len(name)}"
            status, printed, errors = self.train("--log", name, out=out)
            self.assertEqual(status, 0, errors)
            lines = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
            self.assertEqual([line["step"] for line in lines if "loss" in line], [1, 2, 3])
        here = dict(cwd=self.folder)
        self.assertEqual(self.train("--report", "./-", out="./-run", **here)[0], 0)
        self.assertTrue((self.folder / "-").is_file())


if __name__ == "__main__":
    main()
