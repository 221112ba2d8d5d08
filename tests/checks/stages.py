"""Every test runs in some stage of scripts/test.sh without a GPU; and a test of the cuda device that
names more memory than a device has runs beside no other.

stages.py [--list] [BUILD]

--list prints each test with its stages.  In a build's folder ctest must have the tests that this script
expects there, so that what tests/CMakeLists.txt says and what is said here are the same.
"""

import json
import os
import pathlib
import re
import subprocess
import sys

from tree import ROOT, bare, rooms, verdict

TESTS = ROOT / "tests"
PRESETS = json.loads((ROOT / "CMakePresets.json").read_text())
NAMED_STAGES = re.compile(r"^(?:usual|nightly_too)=\((.*)\)$", re.MULTILINE)
CASE = re.compile(r"^TEST(?:_[FP])?\(\s*(\w+),\s*(\w+)\)", re.MULTILINE)
WORDS = re.compile(r"// runs: (.*)\n")
CHECK = re.compile(r"^check\((\w+)", re.MULTILINE)
MOST = 1 << 40  # bytes; a budget above is more than any device has
BYTES = re.compile(
    r"(?P<count>[\d.]+) ?(?P<unit>[TPE]i?B)\b"  # "900TiB"
    r"|_t\{(?P<left>[\d']+)\} << (?P<bits>\d+)"  # size_t{900} << 40
    r"|\b(?P<plain>[1-9][\d']{12,})"  # 1'000'000'000'000'000
)


def most_bytes(text):
    """The largest number of bytes that a source names, if it is above a terabyte or so."""
    sizes = [0]
    for m in BYTES.finditer(text):
        if m["unit"]:
            base = 1024 if "i" in m["unit"] else 1000
            sizes.append(float(m["count"]) * base ** ("TPE".index(m["unit"][0]) + 4))
        elif m["left"]:
            sizes.append(int(m["left"].replace("'", "")) << int(m["bits"]))
        else:
            sizes.append(int(m["plain"].replace("'", "")))
    return max(sizes)


def preset(kind, name):
    """A preset with all that it inherits."""
    own = next(p for p in PRESETS[kind] if p["name"] == name)
    above = preset(kind, own["inherits"]) if "inherits" in own else {}
    variables = {**above.get("cacheVariables", {}), **own.get("cacheVariables", {})}
    return {**above, **own, "cacheVariables": variables}


class Build:
    """What decides which tests a build has, of the variables of CMake."""

    def __init__(self, variables):
        self.cuda, self.sanitize = (variables.get(f"SPOOL_{what}", "") for what in ("CUDA", "SANITIZE"))
        self.examples = str(variables.get("SPOOL_EXAMPLES", "")).lower()
        if self.cuda in ("", "auto"):
            self.cuda = "toolkit" if "CMAKE_CUDA_FLAGS" in variables else "off"


class Stage:
    """One that runs tests: a test preset, and the build that it is of."""

    def __init__(self, name):
        tests = preset("testPresets", name)
        variables = preset("configurePresets", tests["configurePreset"])["cacheVariables"]
        self.name = name
        self.build = Build(variables)
        self.left_out = tests.get("filter", {}).get("exclude", {}).get("label", "(?!)")


class Case:
    """A case of a C++ suite; or a script, a check, an example or a fuzz target: its kind is its only word."""

    def __init__(self, source, words, name=""):
        self.source, self.words, self.name = source, set(words), name

    def in_build(self, build):
        """Whether a build has it, as tests/CMakeLists.txt decides."""
        if "suite" in self.words and build.sanitize == "thread" and "threads" not in self.words:
            return False
        if build.sanitize == "thread" and "night" in self.words and "SPOOL_NIGHTLY" not in os.environ:
            return False
        left_out = {"slow", "library"} if build.sanitize else set()
        left_out |= {"numbers"} if "address" in build.sanitize else set()
        left_out |= {"fuzz", "program on cuda", "ranks on cuda"} if build.sanitize == "thread" else set()
        left_out |= set() if build.cuda == "emulator" else {"emulator", "ranks on cuda"}
        left_out |= set() if build.examples in ("true", "on") else {"example"}
        left_out |= set() if build.cuda != "off" and build.examples in ("true", "on", "cuda") else {"example on cuda"}
        return not self.words & left_out

    def runs_in(self, stage, labels):
        """Whether a stage runs it on a machine that has no GPU."""
        build = stage.build
        if not self.in_build(build) or self.name.startswith("DISABLED_"):
            return False
        if any(re.search(stage.left_out, label) for label in labels):
            return False
        if ("cuda" in labels or "example on cuda" in self.words) and build.cuda != "emulator":
            return False
        numbers = "address" in build.sanitize and "NumberOfThreads" in self.name
        return not (build.sanitize and "Slow" in self.name) and not numbers


class Test:
    """What ctest runs by this name."""

    def __init__(self, name, label, *cases):
        self.name, self.labels, self.cases = name, {label} - {""}, list(cases)

    def sources(self):
        return sorted({case.source for case in self.cases})


def suites():
    """The suites of C++ tests, of the room whose folder they stand in."""
    found = {}
    folders = sorted([*rooms(), "emulator", "end_to_end"], key=len, reverse=True)
    for source in sorted(TESTS.rglob("*_test.cpp")):
        path, text = source.relative_to(TESTS), source.read_text()
        folder = next((f for f in folders if path.is_relative_to(f)), None)
        if folder is None:  # of what is installed: tests/install
            continue
        said = WORDS.match(text)
        words = ["suite", *(said[1].split(", ") if said else []), *(["emulator"] if folder == "emulator" else [])]
        on_cuda = "cuda" if path.parent.name == "cuda" else ""
        for suite, case in CASE.findall(bare(text)):
            name = "/".join([folder, on_cuda, suite] if on_cuda else [folder, suite])
            found.setdefault(name, Test(name, on_cuda)).cases.append(Case(source, words, case))
    return list(found.values())


def others():
    """Scripts that run the program, examples, fuzz targets and checks."""
    for script in TESTS.glob("end_to_end/*_test.py"):
        on_cuda = script.stem.startswith("cuda_")
        case = Case(script, ["program on cuda" if on_cuda else "program"])
        yield Test(f"end_to_end/{script.stem}", "cuda" if on_cuda else "slow", case)
    for example in ROOT.glob("examples/*.c*"):
        case = Case(example, ["example on cuda" if example.suffix == ".cu" else "example"])
        yield Test(f"example_{example.stem}", "", case)
    for target in TESTS.glob("fuzz/*_fuzz.cpp"):
        yield Test(target.stem, "", Case(target, ["fuzz"]))
    for script in [*TESTS.glob("runtime/dlpack/*_test.py"), *TESTS.glob("runtime/mpi/*_test.py")]:
        yield Test(f"runtime/{script.stem}", "", Case(script, ["library"]))
    yield Test("runtime/nccl_one_rank_test", "", Case(TESTS / "runtime/nccl/one_rank_test.py", ["ranks on cuda"]))
    yield Test("models/steps/nccl_test", "", Case(TESTS / "models/steps/nccl/nccl_test.py", ["ranks on cuda"]))
    listed = TESTS / "CMakeLists.txt"
    for name in CHECK.findall(listed.read_text()):
        yield Test(name, "slow" if name == "install" else "check", Case(TESTS / f"checks/{name}.py", ["check"]))


def known_to_ctest(build):
    """The labels of each test of a build, and whether it runs beside no other."""
    command = ["ctest", "--test-dir", build, "--show-only=json-v1"]
    listed = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    found = {}
    for test in listed["tests"]:
        properties = {p["name"]: p["value"] for p in test.get("properties", [])}
        found[test["name"]] = set(properties.get("LABELS", [])), properties.get("RUN_SERIAL", False)
    return found


def errors_of_build(build, tests):
    cache = (pathlib.Path(build) / "CMakeCache.txt").read_text()
    kind = Build(dict(re.findall(r"^(\w+):\w+=(.*)$", cache, re.MULTILINE)))
    expected = {test.name: test for test in tests if any(case.in_build(kind) for case in test.cases)}
    found = known_to_ctest(build)
    for name in sorted(expected.keys() ^ found.keys()):
        if name != "runtime/dlpack_test":  # there if DLPack's header is
            here, there = ("ctest", "stages.py") if name in found else ("stages.py", "ctest")
            yield f"tests/CMakeLists.txt: {here} has {name} in {build}, and {there} does not"
    for name in sorted(expected.keys() & found.keys()):
        test, (labels, serial) = expected[name], found[name]
        if labels != test.labels:
            yield f"tests/CMakeLists.txt: {name} has the labels {labels}, and stages.py says {test.labels}"
        if "cuda" not in labels or serial:
            continue
        for source in test.sources():
            if most_bytes(source.read_text()) > MOST:
                yield (f"{source.relative_to(ROOT)}: {name} names more memory than a device has, and may run "
                       "beside other tests; its first line must be // runs: serial")


def main():
    words = sys.argv[1:]
    script = ROOT / "scripts/test.sh"
    names = [name for found in NAMED_STAGES.findall(script.read_text()) for name in found.split()]
    stages = [Stage(name) for name in names if name != "tidy"]
    tests = sorted([*suites(), *others()], key=lambda test: test.name)
    errors = []
    for test in tests:
        of_test = set()
        for case in test.cases:
            of_case = {stage.name for stage in stages if case.runs_in(stage, test.labels)}
            of_test |= of_case
            if not of_case:
                name = f"{test.name}.{case.name}" if case.name else test.name
                errors.append(f"{case.source.relative_to(ROOT)}: {name} runs in no stage without a GPU")
        if "--list" in words:
            print(f"{test.name}: {' '.join(name for name in names if name in of_test) or 'nowhere'}")
    for build in words:
        if build != "--list":
            errors += errors_of_build(build, tests)
    cases = sum(len(test.cases) for test in tests)
    verdict(errors, f"{len(tests)} tests with {cases} cases run in stages {', '.join(s.name for s in stages)}")


main()
