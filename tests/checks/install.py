"""Programs outside the tree build against an installed Spool and run: install.py BUILD CMAKE
COMPILER. They are programs as research code writes them; they set no language standard, and the
installed tree was moved before. It names no path of this machine, needs no CUDA toolkit, is linked with
no library that Spool opens itself, and has documents and examples, but not the headers of the command line. One program and a plugin that is
loaded twice are built; nightly all of them, programs with -ffast-math, the examples and, where there
is nvcc, a CUDA source, too, and the same of a shared library.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from tree import COMMAND_LINE, ROOT, verdict

BUILD, CMAKE, COMPILER = sys.argv[1:]
NIGHTLY = os.environ.get("SPOOL_NIGHTLY")
DOCUMENTS = ["README.md", "CHANGELOG.md", "LICENSE", "docs/tour.md", "examples/custom_op.cpp"]
OPENED = re.compile(r"(nccl|cudnn|cublas)[A-Z]")  # what functions of libraries begin with that are opened
ABSOLUTE = re.compile(r'[";\s>:(=](/[A-Za-z][^";\s)]*)')


def run(*command):
    """Runs a command and returns its output, which is the verdict if it fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        verdict([f"{' '.join(map(str, command))} failed:\n{done.stdout}"], "")
    return done.stdout


def configure(source, build, *settings, compiler=COMPILER):
    run(
        *[CMAKE, "-S", source, "-B", build, "-G", "Ninja"],
        *[f"-DCMAKE_CXX_COMPILER={compiler}", *settings],
    )


def linked_functions(file):
    """The functions of libraries that a program or library should open itself, and is linked with."""
    words = [line.split() for line in run("nm", file).splitlines()]
    if file.suffix != ".a":
        words += [line.split() for line in run("nm", "--dynamic", file).splitlines()]
    symbols = [(kind, name) for *_, kind, name in filter(lambda w: len(w) > 1, words)]
    needed = {name for kind, name in symbols if kind in "Uw" and OPENED.match(name)}
    return sorted(needed - {name for kind, name in symbols if kind not in "Uw"})  # the emulator's are in it


def faults(prefix):
    """What is wrong with the files of an installed tree."""
    if (prefix / "include" / "spool" / COMMAND_LINE).exists():
        yield f"the headers of {COMMAND_LINE} are installed"
    for document in DOCUMENTS:
        if not (prefix / "share" / "doc" / "spool" / document).is_file():
            yield f"{document} is not installed"
    for header in ["spool.h", "testing.h"]:
        if not (prefix / "include" / "spool" / header).is_file():
            yield f"spool/{header} is not installed"
    libraries = [file for file in (prefix / "lib").rglob("libspool.*") if not file.is_symlink()]
    if not libraries:
        yield "no library is installed"
    for file in [*libraries, *(file for file in [prefix / "bin" / "spool"] if file.exists())]:
        for function in linked_functions(file):
            yield f"{file.name} is linked with {function}, of a library that is opened at run time"
    packages = [file for file in prefix.rglob("*.cmake") if file.is_file()]
    if not packages:
        yield "no CMake package is installed"
    for file in packages:
        for line in file.read_text().splitlines():
            found = ABSOLUTE.search(line)
            if found and not line.lstrip().startswith("#"):
                yield f"{file.name} names a path of this machine: {found[1]}"


def nvcc():
    return shutil.which("nvcc", path=f"{os.environ.get('PATH', '')}:/usr/local/cuda/bin")


def check_fast_math(folder, settings):
    """Programs with flags such as -ffast-math compute what the headers say, with any compiler."""
    flags = ["fast-math", "unsafe-math-optimizations"]
    for compiler in dict.fromkeys([COMPILER, *filter(shutil.which, ["g++", "clang++"])]):
        build = folder / pathlib.Path(compiler).name
        configure(ROOT / "tests" / "install", build, *settings, compiler=compiler)
        run(CMAKE, "--build", build, "--target", *flags)
        for flag in flags:
            run(build / flag)


def check_all_programs(mine, prefix, folder, settings):
    """Every program of tests/install/, and the installed examples, build and run."""
    with_cuda = [f"-DCMAKE_CUDA_COMPILER={nvcc()}", "-DRESEARCH_CUDA=ON"] if nvcc() else []
    configure(ROOT / "tests" / "install", mine, *settings, *with_cuda)
    run(CMAKE, "--build", mine)
    for program in ["regression", "large_rehearsal", "chunks", *(["research_cuda"] if with_cuda else [])]:
        run(mine / program)
    check_fast_math(folder, settings)
    examples = folder / "examples"
    configure(prefix / "share" / "doc" / "spool" / "examples", examples, *settings)
    run(CMAKE, "--build", examples)
    for example in (ROOT / "examples").glob("*.cpp"):
        run(examples / example.stem)


def check_installed(build, folder):
    """Installs a build, moves what is installed, and builds and runs programs against it. Returns
    what the first of them says."""
    first, prefix = folder / "first", folder / "moved"
    run(CMAKE, "--install", build, "--prefix", first)
    first.rename(prefix)
    errors = list(faults(prefix))
    if errors:
        verdict(errors, "")
    mine = folder / "mine"
    settings = [f"-DCMAKE_PREFIX_PATH={prefix}", "-DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON"]
    configure(ROOT / "tests" / "install", mine, *settings)
    run(CMAKE, "--build", mine, "--target", "main", "host", "plugin")
    said = run(mine / "main")
    run(mine / "host", mine / "libplugin.so")
    if NIGHTLY:
        check_all_programs(mine, prefix, folder, settings)
    command = prefix / "bin" / "spool"
    if command.exists():
        run(command, "--help")
    return said.strip()


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    said = check_installed(BUILD, folder)
    if NIGHTLY:
        shared = folder / "shared"
        unwanted = [f"-DSPOOL_{what}=OFF" for what in ["TESTS", "BENCHMARKS", "EXAMPLES"]]
        configure(
            *[ROOT, shared / "build", "-DBUILD_SHARED_LIBS=ON", "-DSPOOL_CUDA=off", *unwanted]
        )
        run(CMAKE, "--build", shared / "build")
        check_installed(shared / "build", shared)

verdict([], f"a program built against the installed library says: {said}")
