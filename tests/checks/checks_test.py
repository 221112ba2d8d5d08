"""The checks fail for what they forbid: each runs on a small tree, as it is and with one breach."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from tree import ROOT, verdict

TREE = {
    "CMakeLists.txt": "room(runtime Threads::Threads)\nroom(kernels runtime)\n"
    "room(models/formats kernels)\nroom(models/data\n     models/formats)\n"
    "room(models/cli models/data)\n",
    "runtime/tensor.h": "// A tensor.\n#pragma once\n#include <vector>\n",
    "runtime/files/json.h": "#pragma once\n#include <nlohmann/json_fwd.hpp>\n",
    "kernels/gelu.h": '#include "spool/runtime/tensor.h"\n',
    "kernels/cuda/gelu.cu": '#include <cuda_runtime.h>\n#include "spool/kernels/gelu.h"\n',
    "models/formats/config.cpp": '// Reads config.json.\n#include "spool/runtime/files/json.h"\n',
    "models/data/data.h": '#include "spool/models/formats/formats.h"\n',
    "models/formats/formats.h": "#include <nlohmann/json_fwd.hpp>\n",
    "models/cli/main.cpp": '#include <CLI/CLI.hpp>\nint main() { std::printf("--memory"); }\n',
    "tests/runtime/testing.h": '#include "spool/runtime/tensor.h"\n',
    "tests/kernels/gelu_test.cpp": "// runs: threads\n\n// GELU.\n"
    '#include "tests/runtime/testing.h"\n\n// A case.\nTEST(Gelu, IsItsFormula) {}\n',
    "tests/end_to_end/step_test.cpp": '#include "spool/models/data/data.h"\n',
    "tests/CMakeLists.txt": "check(size)\n",
    "CMakePresets.json": (ROOT / "CMakePresets.json").read_text(),
    "scripts/test.sh": "usual=(release asan tsan tidy)\nnightly_too=(portable)\n",
    "tests/emulator/emulator.h": '#include "spool/kernels/gelu.h"\n',
    "tests/emulator/include/cuda_runtime.h": '#include "../emulator.h"\n',
    "examples/net.cpp": '#include "spool/models/data/data.h"\n',
    "tests/checks/sizes.txt": "# Lines.\nruntime 5 Tensors.\nkernels 3 GELU.\n"
    "models/formats 3 Files.\nmodels/data 1 Batches.\nmodels/cli 2 A program.\n",
}
SIZES = TREE["tests/checks/sizes.txt"]


def include(header):
    return f'#include "{header}"\n'


# These name what the small tree lacks.
NAMES_SCRIPTS = ["checks_test", "commit_subject_test", "headers", "machine_code_test", "streams", "tidy_test"]
QUOTES = '"' * 3

# The check, the file that breaks its rule, the file's text, and a word of what the check says.
BREACHES = [
    ("layering", "runtime/wrong.h", include("spool/kernels/gelu.h"), "runtime does not see kernels"),
    ("layering", "models/formats/wrong.h", include("spool/models/data/data.h"), "does not see"),
    ("layering", "models/data/wrong.h", include("spool/models/cli/commands.h"), "no such file"),
    ("layering", "kernels/wrong.h", include("../runtime/tensor.h"), "headers are included as"),
    ("layering", "kernels/wrong.h", include("spool/kernels/../kernels/gelu.h"), "no such file"),
    ("layering", "kernels/wrong.h", include("tests/runtime/testing.h"), "only tests"),
    ("layering", "kernels/wrong.cpp", "#include <cuda_runtime.h>\n", "CUDA's headers"),
    ("layering", "models/wrong.h", "\n", "stands in no room"),
    ("layering", "models/data/wrong.cpp", "#include <CLI/CLI.hpp>\n", "parses arguments"),
    ("layering", "models/data/wrong.h", "#include <nlohmann/json.hpp>\n", "json_fwd.hpp"),
    ("layering", "models/data/wrong.cpp", "#include <nlohmann/json.hpp>\n", "which JSON"),
    ("layering", "tests/runtime/wrong_test.cpp", include("spool/kernels/gelu.h"), "end_to_end"),
    ("layering", "tests/runtime/wrong.h", include("../kernels/gelu.h"), "headers are included as"),
    ("layering", "tests/support/wrong.h", "\n", "stands in no room"),
    ("layering", "tests/emulator/wrong.h", include("spool/models/data/data.h"), "does not see"),
    ("layering", "examples/wrong.cpp", include("../runtime/tensor.h"), "headers are included as"),
    ("command_line", "models/data/wrong.cpp", 'fail("give a smaller --memory");\n', '"--memory"'),
    ("command_line", "kernels/cuda/wrong.cu", 'fail("--" + name);\n', '"--"'),
    ("command_line", "kernels/wrong.cpp", 'void f() { std::printf("x"); }\n', "std::printf"),
    ("command_line", "kernels/wrong.cpp", 'void f() { fmt::print("x"); }\n', "fmt::print"),
    ("command_line", "kernels/wrong.cpp", 'void f() { std::cout << "x"; }\n', "std::cout"),
    ("command_line", "models/data/wrong.cpp", "auto at = SPOOL_SOURCE_DIR;\n", "source tree"),
    ("style", "kernels/wrong.cpp", "int a;\n\n// ------- backward\nint b;\n", ":3: a section"),
    ("style", "kernels/wrong.cpp", "int a;\n\n/* ==== backward */\nint b;\n", ":3: a section"),
    ("style", "kernels/wrong.cpp", "int a;\n\n// backward -----\nint b;\n", ":3: a section"),
    ("style", "kernels/wrong.cpp", "int a;\n\n// Backward.\n\nint b;\n", ":3: a section"),
    ("style", "tests/end_to_end/wrong.py", "a = 1\n\n# --- backward\nb = 2\n", ":3: a section"),
    ("paths", "docs/wrong.md", "See `runtime/matrix.h`.\n", "names runtime/matrix.h"),
    ("paths", "docs/wrong.md", "See `matrix.h`.\n", "names matrix.h"),
    ("paths", "docs/wrong.md", "```\nls tests/fuzz/\n```\n", ":2: names tests/fuzz/"),
    ("paths", "docs/wrong.md", "See [matrices](matrix.md#all).\n", "names matrix.md"),
    ("paths", "kernels/wrong.cpp", "int a;  // see matrix.h\n", "names matrix.h"),
    ("paths", "tests/kernels/wrong.py", "a = 1  # see matrix.h\n", "names matrix.h"),
    ("paths", "tests/kernels/wrong.py", QUOTES + "See\nmatrix.h." + QUOTES, ":2: names matrix.h"),
    ("style", "kernels/wrong.cpp", "// TO" + "DO\n", "for later"),
    ("style", "kernels/wrong.cpp", "int a;\n" * 401, "401 lines"),
    ("style", "kernels/wrong.cpp", "int a;\n//" + " a" * 50 + "\n", ":2: a comment goes beyond"),
    ("style", "kernels/wrong.cpp", "/* a\n" + "a " * 51 + "*/\n", ":2: a comment goes beyond"),
    ("style", "kernels/wrong.cpp", "int a = 1;  //" + " a" * 45 + "\n", ":1: a comment goes"),
    ("style", "kernels/wrong.cpp", "void f() {\n" + "g();\n" * 45 + "}\n", "47 lines"),
]
SEVERAL = [
    ("folders", {f"runtime/files/{i}.h": "" for i in range(25)}, "runtime/files/: has 26 names"),
    ("folders", {f"models/formats/{i}/x.h": "" for i in range(24)}, "formats/: has 26 names"),
]
PAGE = "benchmarks/results/2026-11-25-cpu.md"
LINKED = f"[cpu]({PAGE}#steps)"
PAGES = {PAGE: "`build/release/benchmarks/step`: 1.02 to 1.11 times, 0.88 ms\n"}
SEVERAL += [
    ("numbers", {"README.md": "It takes 1.02 times as long.\n", **PAGES}, ":1: 1.02 has no link"),
    ("numbers", {"README.md": f"It takes 1.02 to 1.1 times {LINKED}\n", **PAGES}, "1.1 is not in"),
    ("numbers", {"README.md": f"It takes 2 % of that.\n\n{LINKED}\n", **PAGES}, "2 has no link"),
    ("numbers", {"README.md": f"\n## Numbers\n\n| of 8 | 0.9 ms | {LINKED} |\n", **PAGES}, ":4: 0.9"),
    ("numbers", {"README.md": "\n## Numbers\n\nA step takes 1.02 s.\n", **PAGES}, "1.02 has no"),
    ("numbers", {"docs/a.md": f"1.2 times: [cpu](../{PAGE})\n", **PAGES}, "1.2 is not in"),
    ("numbers", {"README.md": f"It takes 1.02 times {LINKED}\n", PAGE: "1.02\n"}, "has no command"),
]
SEVERAL += [
    ("size", {"runtime/more.h": "int a;\n"}, "runtime: has 6 lines, 1 more than its row"),
    ("size", {"tests/checks/sizes.txt": SIZES.replace("3 G", "104 G")}, "101 fewer than its row"),
    ("size", {"tests/checks/sizes.txt": SIZES.replace(" GELU.", "")}, "does not say why kernels"),
    ("size", {"tests/checks/sizes.txt": SIZES.replace("kernels", "kennels")}, "kernels: has 3 lines"),
    ("size", {"tests/checks/sizes.txt": SIZES + "models/zoo 1 Animals.\n"}, "which is no room"),
    ("size", {"tests/checks/sizes.txt": SIZES + "models/cli: some\n"}, ":7: is not a room, its lines"),
    ("size", {"tests/checks/sizes.txt": SIZES + "runtime 9 Again.\n"}, ":7: is not a room, its lines"),
    ("size", {"runtime/more.h": "\n" * 23_998}, "the core has 24,001 lines"),
]
GELU_ON_CUDA = "tests/kernels/cuda/gelu_test.cpp"
NOWHERE = "runs in no stage"
SEVERAL += [
    ("stages", {GELU_ON_CUDA: "// runs: slow\n\nTEST_F(CudaGelu, IsRight) {}\n"}, NOWHERE),
    ("stages", {GELU_ON_CUDA: "TEST(CudaGelu, IsRight) {}\nTEST(CudaGelu, IsSlow) {}\n"}, "CudaGelu.IsSlow runs"),
    ("stages", {"tests/emulator/warp_test.cpp": "// runs: numbers\n\nTEST(Warp, IsRight) {}\n"}, NOWHERE),
    ("stages", {"tests/runtime/file_test.cpp": "TEST(File, DISABLED_IsRead) {}\n"}, NOWHERE),
    ("stages", {"CMakePresets.json": TREE["CMakePresets.json"].replace('"cuda"', "false"), "examples/net.cu": "\n"},
     "example_net runs in no"),
    ("stages", {"CMakePresets.json": TREE["CMakePresets.json"].replace("check|slow", "cuda"),
                "tests/end_to_end/cuda_step_command_test.py": "\n"}, "cuda_step_command_test runs in no"),
]
ALLOWED = [
    ("stages", {GELU_ON_CUDA: "TEST_F(CudaGelu, IsRight) {}\n", "examples/net.cu": "\n", "tests/fuzz/text_fuzz.cpp": "\n",
                "tests/end_to_end/cuda_step_command_test.py": "\n"}),
    ("numbers", {"README.md": f"1.11 times {LINKED}\n\n## Numbers\n\n| 8 | 0.88 ms | {LINKED} |\n", **PAGES}),
    ("numbers", {"README.md": "```\n+10 %\n```\n\n## Numbers\n\n## Other\n\n12.\n", "docs/a.md": "5 %\n"}),
    ("style", {"kernels/a.cpp": "//" + " a" * 49 + "\n" + f'auto a = "// {"a" * 99}";\n'}),
    ("folders", {f"kernels/cpu/{i}.cpp": "" for i in range(30)}),
    ("folders", {f"runtime/files/{i}{suffix}": "" for i in range(24) for suffix in [".h", ".cpp"]}),
    ("command_line", {"runtime/a.cpp": '// See --memory.\nint a = i--; std::snprintf(a, "a--b");\n'}),
    ("paths", {"docs/a.md": "`gelu.h`, `runtime/files/`, `runtime/<room>`, [A](../kernels/gelu.h)\n"}),
    ("paths", {"kernels/a.cpp": '// See tensor.h, files/json.h.\nopen("matrix.h");\n'}),
    ("size", {"tests/checks/sizes.txt": SIZES.replace("3 GELU", "103 GELU")}),
    ("size", {"tests/runtime/more.h": "int a;\n", "runtime/a.md": "A.\n"}),
    ("layering", {"tests/kernels/cuda/a.cpp": include("tests/emulator/emulator.h")}),
]


def write(root, files):
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


def small_tree(folder, files):
    """Writes the small tree with these files besides."""
    root = pathlib.Path(folder)
    shutil.copytree(ROOT / "tests" / "checks", root / "tests" / "checks")
    for name in NAMES_SCRIPTS:
        (root / "tests" / "checks" / f"{name}.py").unlink()
    write(root, {**TREE, **files})
    return root


def run_in(root, check, *words):
    command = [sys.executable, root / "tests" / "checks" / f"{check}.py", *words]
    environment = {name: value for name, value in os.environ.items() if name != "SPOOL_BASE"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    return done.returncode, done.stdout + done.stderr


def run(check, files):
    """The exit status and the output of a check on the small tree with these files besides."""
    with tempfile.TemporaryDirectory() as folder:
        return run_in(small_tree(folder, files), check)


def sizes_faults():
    """What is wrong with the table that size.py writes, and with what it says of a change."""
    with tempfile.TemporaryDirectory() as folder:
        root = small_tree(folder, {"runtime/more.h": "int a;\n", "kernels/gelu.h": ""})
        said = run_in(root, "size", "--update")[1] + run_in(root, "size")[1]
        rows = [line.split() for line in (root / "tests/checks/sizes.txt").read_text().splitlines()]
        if rows[1:3] != [["runtime", "50", "Tensors."], ["kernels", "50", "GELU."]] or "allows" in said:
            yield f"size.py --update writes {rows}:\n{said}"
        if not shutil.which("git"):
            return
        git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", root]
        for words in [["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "All."]]:
            subprocess.run(git + words, capture_output=True, check=True)
        write(root, {"runtime/more.h": "\n", "runtime/new.h": "\n\n", "kernels/cuda/gelu.cu": "\n"})
        _, said = run_in(root, "size")
        for change in ["8 +2 since HEAD: 3 new, 1 gone", "1 -1 since HEAD: 1 new, 2 gone"]:
            if change not in re.sub(" +", " ", said):
                yield f'size.py does not say "{change}":\n{said}'
        write(root, {"runtime/new.h": "\n" * 99})
        if "runtime: grew from 50 lines to 105; say why" not in run_in(root, "size", "--update")[1]:
            yield "size.py --update lets a room grow without a new reason"


def stages_faults():
    """What is wrong with what stages.py says of a build."""
    much = "TEST_F(CudaGelu, IsRight) { open_stream(size_t{900} << 40); }\n"
    own = 'set_tests_properties("kernels/cuda/CudaGelu" PROPERTIES LABELS "cuda"'
    listed = 'add_test("size" true)\nset_tests_properties("size" PROPERTIES LABELS "check")\n'
    listed += 'add_test("kernels/Gelu" true)\n'
    on_cuda = f'add_test("kernels/cuda/CudaGelu" true)\n{own}'
    for tests, source, word in [
        (f"{on_cuda} RUN_SERIAL TRUE)\n", much, ""),
        (f"{on_cuda})\n", "// 900 GiB\n" + much.replace("900", "1"), ""),
        (f"{on_cuda})\n", much, "names more memory than a device has"),
        (f"{on_cuda})\n", much.replace("size_t{900} << 40", "2e3 PB"), "names more memory"),
        (f"{on_cuda})\n", much.replace("size_t{900} << 40", "1'100'000'000'000"), "names more memory"),
        (on_cuda.replace('LABELS "cuda"', "RUN_SERIAL TRUE)\n"), much, "has the labels set()"),
        ("", much, "stages.py has kernels/cuda/CudaGelu"),
        (f'{on_cuda})\nadd_test("kernels/More" true)\n', "// " + much + much[:29] + "}\n", "ctest has kernels/More"),
    ]:
        with tempfile.TemporaryDirectory() as folder:
            root = small_tree(folder, {GELU_ON_CUDA: source})
            write(root, {"build/CTestTestfile.cmake": listed + tests, "build/CMakeCache.txt": ""})
            status, said = run_in(root, "stages", root / "build")
            if status != (1 if word else 0) or word not in said:
                yield f'stages.py does not say "{word}" of {tests}{source}:\n{said}'


errors = []
checks = ["layering", "folders", "paths", "command_line", "style", "numbers", "size", "stages"]
allowed = [(check, {}) for check in checks] + ALLOWED
for check, files in allowed:
    status, said = run(check, files)
    if status != 0:
        errors.append(f"{check} forbids {next(iter(files), 'the small tree')}:\n{said}")

breaches = [(check, {file: text}, word) for check, file, text, word in BREACHES] + SEVERAL
for check, files, word in breaches:
    status, said = run(check, files)
    if status != 1 or word not in said:
        file, text = next(iter(files.items()))
        errors.append(f'{check} does not say "{word}" of {file}, {text!r}:\n{said}')

errors += sizes_faults()
errors += stages_faults()
verdict(errors, f"{len(breaches)} breaches are found, and {len(allowed)} trees without are allowed")
