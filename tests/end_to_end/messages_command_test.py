"""Messages are one line that names the culprit, in Spool's own words.

messages_command_test.py PROGRAM [CASE...]
"""

import json
import os
import shutil
import struct

from commands import SHAPE, Folder, main, spool


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
        self.refused(self.train("--data", ""), 1, "the name of a file is empty", "(--data)")
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


if __name__ == "__main__":
    main()
