"""scripts/tidy.sh checks what has no verdict, and keeps those of sources that are clean: it runs on a small
tree, where cmake and clang-tidy are stand-ins that note what they are asked.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

from tree import ROOT, verdict

# Lists as commands what the tree has in commands.txt.
CMAKE = """
import json, pathlib, sys
build = pathlib.Path(sys.argv[sys.argv.index("-B") + 1])
build.mkdir(parents=True, exist_ok=True)
root = pathlib.Path.cwd()
lines = [line.split(" ", 1) for line in (root / "commands.txt").read_text().splitlines()]
entries = [{"file": str(root / file), "command": flags, "directory": "."} for file, flags in lines]
(build / "compile_commands.json").write_text(json.dumps(entries))
"""
# Complains of the word bad, in a source or in what it includes.
TIDY = """
import pathlib, re, sys
root = pathlib.Path(__file__).parent.parent
if "--version" in sys.argv:
    sys.exit(print((root / "version.txt").read_text()))
source = pathlib.Path(next(word for word in sys.argv if word.endswith((".cpp", ".cu"))))
with open(root / "asked.txt", "a") as asked:
    asked.write(f"{source.relative_to(root)}\\n")
files = [source, *(root / name for name in re.findall(r'include "(.*)"', source.read_text()))]
rules = next(word for word in sys.argv if "-Wp,-MD," in word).rpartition(",")[2]
pathlib.Path(rules).write_text(f"{source.stem}.o: " + " \\\\\\n  ".join(map(str, files)) + "\\n")
if any("bad" in file.read_text() for file in files if file.exists()):
    sys.exit(print(f"{source.name}: bad"))
"""
TREE = {
    "commands.txt": "runtime/a.cpp c++ -O1\nruntime/b.cpp c++ -O1\nkernels/cuda/c.cu c++ -O1\n"
    "tests/runtime/a_test.cpp c++ -O1\nbuild/made.cpp c++ -O1\n",
    "version.txt": "14",
    ".clang-tidy": "Checks: all\n",
    "runtime/a.cpp": '#include "runtime/a.h"\n',
    "runtime/b.cpp": "int b;\n",
    "runtime/a.h": "int a;\n",
    "kernels/cuda/c.cu": "int c;\n",
    "tests/runtime/a_test.cpp": "int t;\n",
    "build/made.cpp": "int m;\n",
}
ALL = {"runtime/a.cpp", "runtime/b.cpp", "kernels/cuda/c.cu"}
errors = []


class Tree:
    """The small tree, and a cache of its own beside it."""

    def __init__(self, folder):
        self.root = pathlib.Path(folder) / "tree"
        self.cache = pathlib.Path(folder) / "cache"
        for path, text in TREE.items():
            self.write(path, text)
        for name in ["tidy.sh", "tidy.py", "verdicts.py", "changed.py"]:
            shutil.copy(ROOT / "scripts" / name, self.root / "scripts" / name)
        for name, text in {"cmake": CMAKE, "clang-tidy-14": TIDY}.items():
            self.write(f"bin/{name}", f"#!{sys.executable}\n{text}")
            (self.root / "bin" / name).chmod(0o755)

    def write(self, path, text):
        """Writes a file that seems an hour old: what was edited during a run is not kept."""
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / "scripts").mkdir(exist_ok=True)
        (self.root / path).write_text(text)
        os.utime(self.root / path, times=(time.time() - 3600,) * 2)

    def run(self, *arguments):
        """The exit status of tidy.sh, what it says, and the sources that clang-tidy was asked about."""
        asked = self.root / "asked.txt"
        asked.unlink(missing_ok=True)
        environment = {
            **os.environ,
            "PATH": f"{self.root / 'bin'}:{os.environ['PATH']}",
            "XDG_CACHE_HOME": str(self.cache),
        }
        done = subprocess.run(
            ["bash", self.root / "scripts/tidy.sh", *arguments],
            capture_output=True,
            text=True,
            cwd=self.root,
            env=environment,
        )
        checked = set(asked.read_text().split()) if asked.exists() else set()
        return done.returncode, done.stdout + done.stderr, checked

    def expect(self, when, wanted, *arguments, status=0, says=""):
        found, said, checked = self.run(*arguments)
        if (found, checked) != (status, wanted) or says not in said:
            errors.append(f"{when}: exits with {found}, checks {sorted(checked)} and says\n{said}")

    def edit(self, path, text, wanted, back=True):
        """After this edit these sources are checked, and after it is undone none, as they were once."""
        old = (self.root / path).read_text()
        self.write(path, text)
        self.expect(f"{path} is edited", wanted)
        self.expect(f"{path} was edited, and checked", set())
        self.write(path, old)
        self.expect(f"{path} is as it was", set())


with tempfile.TemporaryDirectory() as folder:
    tree = Tree(folder)
    tree.expect("at first", ALL, says="3 sources are clean")
    tree.expect("again", set(), says="0 of 3 sources")
    tree.expect("with --all", ALL, "--all")
    tree.expect("with names", set(), "runtime/a.cpp")
    tree.edit("runtime/b.cpp", "int bb;\n", {"runtime/b.cpp"})
    tree.edit("runtime/a.h", "int aa;\n", {"runtime/a.cpp"})
    tree.edit(".clang-tidy", "Checks: some\n", ALL)
    tree.edit("version.txt", "15", ALL)
    tree.edit("commands.txt", TREE["commands.txt"].replace("b.cpp c++ -O1", "b.cpp c++ -O2"), {"runtime/b.cpp"})

    tree.write("runtime/a.h", "bad\n")
    for when in ["a header is bad", "it is bad still"]:
        tree.expect(when, {"runtime/a.cpp"}, status=1, says="a.cpp: bad")
    tree.expect("the bad one is not asked for", set(), "runtime/b.cpp")
    tree.write("runtime/a.h", TREE["runtime/a.h"])
    tree.expect("it is not bad any more", set())

    (tree.root / "runtime/b.cpp").write_text("int now;\n")
    os.utime(tree.root / "runtime/b.cpp", times=(time.time() + 3600,) * 2)
    for when in ["a source is edited meanwhile", "nothing was kept of it"]:
        tree.expect(when, {"runtime/b.cpp"})
    tree.write("runtime/b.cpp", '#include "runtime/gone.h"\n')
    for when in ["a header is removed meanwhile", "nothing was kept of its user"]:
        tree.expect(when, {"runtime/b.cpp"})
    tree.write("runtime/b.cpp", TREE["runtime/b.cpp"])

    shutil.copytree(tree.root, pathlib.Path(folder) / "copy", symlinks=True)
    copy = Tree(folder)
    copy.root = pathlib.Path(folder) / "copy"
    copy.expect("a copy of the tree", set())

    for file in (tree.cache / "spool/tidy").iterdir():
        file.write_bytes(b"damaged")
    tree.expect("the cache is damaged", ALL)
    for file in (tree.cache / "spool/tidy").iterdir():
        os.utime(file, times=(0, 0))
    tree.expect("one of the verdicts is used", set(), "runtime/b.cpp")
    tree.expect("those unused for long are forgotten", ALL - {"runtime/b.cpp"})

    for arguments in [["--al"], ["--all", "--recent"], ["runtime/a.cpp", "--all"]]:
        tree.expect(f"with {arguments}", set(), *arguments, status=1, says="usage: scripts/tidy.sh")

verdict(errors, "clang-tidy is asked about what it has not found clean")
