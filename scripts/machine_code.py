#!/usr/bin/env python3
"""Prints what the machine code of CUDA kernels says of their speed, without a GPU.

    scripts/machine_code.py [--all] [FILE...]

FILE is a source, which nvcc compiles as a release does, for sm_90, or what nvcc made of one; without
any, those that kernels/cuda/streams.txt names. Of each kernel that this table names (with --all, of
every kernel) a row has:

    loads         wide loads (of 8 or 16 bytes) from global memory that a thread has under way before
                  it waits for one of them, at most, over all paths through the kernel
    instructions  per element, and
    bytes         per element, moved from and to global memory: on the path through the kernel's
                  loop that moves most bytes, and of those the shortest. Kernels with several passes
                  have their sum. Without a number of elements in the table, of one pass of the path.
    registers     per thread; spilled: bytes of stack that hold registers

A load waits where its scoreboard does: the control bits of each instruction, in the upper of the two
words that `cuobjdump -sass` prints, say which of six scoreboards it sets and for which it waits.
cuobjdump is found where CUOBJDUMP says, in PATH, where scripts/cuobjdump.sh puts it, or in CUDA_PATH
or /usr/local/cuda.
"""

import functools
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
KERNELS = ROOT / "kernels/cuda"
TABLE = KERNELS / "streams.txt"
TOOLS = ROOT / "build/third_party/cuobjdump"  # where scripts/cuobjdump.sh puts it
# As CMake compiles a release.
FLAGS = ["-std=c++20", "-O3", "-DNDEBUG", "-arch=sm_90", "-cubin"]
MAX_STATES = 200_000  # of loads under way, at which the search for the most ends

FUNCTION = re.compile(r"^\s*Function : (\S+)$")
INSTRUCTION = re.compile(r"^\s*/\*([0-9a-f]+)\*/\s+(.*?)\s*;\s+/\* 0x([0-9a-f]{16}) \*/$")
UPPER = re.compile(r"^\s*/\* 0x([0-9a-f]{16}) \*/$")
TARGET = re.compile(r"(0x[0-9a-f]+)\s*$")
WRITTEN = re.compile(r"R(\d+)\b")
REGISTER = re.compile(r"\bR(\d+)\b")
RESOURCES = re.compile(r"Function (\S+):\s+REG:(\d+) STACK:(\d+)")


class Instruction:
    """One instruction: its name with modifiers, and the scoreboards it sets and waits for."""

    def __init__(self, text, upper):
        guard, _, rest = text.partition(" ") if text.startswith("@") else ("", "", text)
        self.operation, _, self.operands = rest.strip().partition(" ")
        self.conditional = guard not in ("", "@PT")
        self.parts = self.operation.split(".")
        board = upper >> 46 & 7
        self.board = board if board < 6 else None
        self.waits = upper >> 52 & 63

    def is_a(self, name):
        return self.parts[0] == name

    def width(self):
        """Bytes that it moves."""
        for bits in ("128", "64", "U16", "S16", "U8", "S8"):
            if bits in self.parts:
                return int(bits.strip("US")) // 8
        return 4

    def target(self):
        found = TARGET.search(self.operands)
        return int(found[1], 16) if found and self.is_a("BRA") else None

    def wide_load(self):
        return self.is_a("LDG") and self.width() >= 8

    def written(self):
        """The register that it writes first, by number, or None."""
        found = WRITTEN.match(self.operands)
        return int(found[1]) if found and self.parts[0] not in ("STG", "STS", "STL") else None

    def loaded(self):
        """Numbers of the registers that a load writes."""
        first = self.written()
        return () if first is None else range(first, first + self.width() // 4)

    def reads(self, register):
        own = self.written() is not None
        return register in map(int, REGISTER.findall(self.operands)[1 if own else 0 :])

    def ends(self):
        return self.parts[0] in ("EXIT", "RET", "BRX", "BPT") or self.is_a("BRA")

    def successors(self, next_place):
        """Where it may go on, as places in the code."""
        found = []
        if not self.ends() or self.conditional or self.may_pass():
            found.append(next_place)
        if self.target() is not None:
            found.append(self.target())
        return found

    def may_pass(self):
        """Whether a branch without a guard has a condition: an operand, or divergence."""
        return self.is_a("BRA") and ("," in self.operands or "DIV" in self.parts)


class Kernel:
    """The code of a kernel: its instructions by place, and what may follow each."""

    def __init__(self, name):
        self.name, self.code, self.registers, self.spilled = name, {}, 0, 0

    @functools.cached_property
    def following(self):
        places = sorted(self.code)
        after = dict(zip(places, [*places[1:], None]))
        return {
            place: [p for p in self.code[place].successors(after[place]) if p in self.code]
            for place in places
        }

    @functools.cached_property
    def blocks(self):
        """Runs of places, by their first, the only one that is entered from elsewhere."""
        places = sorted(self.code)
        after = dict(zip(places, places[1:]))
        entries = {places[0]}
        for place, onward in self.following.items():
            if onward != [after.get(place)]:
                entries |= {*onward, after.get(place)}
        found = {}
        for place in places:
            begin = place if place in entries else begin
            found.setdefault(begin, []).append(place)
        return found

    def loops(self):
        """The innermost ranges, of first and last place, that a branch backwards repeats, about each
        access to wide words of global memory."""
        back = [(p, at) for at, after in self.following.items() for p in after if p <= at]
        widest = {first: max(last for f, last in back if f == first) for first, _ in back}
        found = set()
        for place in self.code:
            around = [r for r in widest.items() if r[0] <= place <= r[1]]
            if self.wide(place) and around:
                found.add(min(around, key=lambda r: r[1] - r[0]))
        return sorted(found)

    def wide(self, place):
        now = self.code[place]
        return now.parts[0] in ("LDG", "STG") and now.width() >= 8

    @functools.cached_property
    def in_flight(self):
        """The most wide loads under way after each place that issues one."""
        most, begin = {}, min(self.code)
        todo, seen = [(begin, ())], {(begin, ())}
        while todo and len(seen) < MAX_STATES:
            block, state = todo.pop()
            for place in self.blocks[block]:
                state = self.after(place, state)
                if self.code[place].wide_load():
                    most[place] = max(most.get(place, 0), len(state))
            for next_block in self.following[self.blocks[block][-1]]:
                if (next_block, state) not in seen:
                    seen.add((next_block, state))
                    todo.append((next_block, state))
        return most

    def after(self, place, state):
        """The loads under way, as pairs of place and scoreboard, once this is issued."""
        now = self.code[place]
        if now.waits:
            state = tuple(load for load in state if not now.waits >> load[1] & 1)
        if now.is_a("DEPBAR"):
            state = ()
        if now.wide_load() and now.board is not None:
            state = tuple(load for load in state if load[0] != place) + ((place, now.board),)
        return state

    def moved(self, place):
        """Bytes from and to global memory, and all that count for a path's choice."""
        now = self.code[place]
        if now.parts[0] in ("LDG", "STG"):
            return now.width(), now.width() if now.width() >= 8 else 0
        return 0, now.width() if now.parts[0] in ("LDS", "STS") and now.width() == 16 else 0

    @functools.cached_property
    def users(self):
        """The instructions that first read a word that a wide load loads."""
        found, places = set(), sorted(self.code)
        for at, place in enumerate(places):
            if not self.code[place].wide_load():
                continue
            for register in self.code[place].loaded():
                for later in places[at + 1 :]:
                    if self.code[later].reads(register):
                        found.add(later)
                        break
                    if self.code[later].written() == register:
                        break
        return found

    def path(self, first, last):
        """Instructions, and bytes of global memory, of the path between that moves and uses most."""
        best = {}
        for place in reversed([p for p in sorted(self.code) if first <= p <= last]):
            onward = [best[p] for p in self.following[place] if place < p <= last and p in best]
            if place != last and not onward and self.following[place]:
                continue  # leaves the loop
            weight, used, steps, memory = max(onward, default=(0, 0, 0, 0))
            moved, counts = self.moved(place)
            used += place in self.users
            best[place] = (weight + counts, used, steps - 1, memory + moved)
        *_, steps, memory = best.get(first, (0, 0, 0, 0))
        return -steps, memory

    def passes(self):
        """Each loop that moves wide words, or else the whole kernel: loads, instructions, bytes."""
        found = []
        for first, last in self.loops():
            loads = [n for place, n in self.in_flight.items() if first <= place <= last]
            found.append((max(loads, default=0), *self.path(first, last)))
        return found or [(self.loads(), *self.path(min(self.code), max(self.code)))]

    def loads(self):
        return max(self.in_flight.values(), default=0)


def kernels_of(sass, usage):
    """The kernels in what cuobjdump prints with -sass and with -res-usage."""
    found, kernel, pending = {}, None, None
    for line in sass.splitlines():
        if match := FUNCTION.match(line):
            kernel = found[match[1]] = Kernel(match[1])
        elif match := INSTRUCTION.match(line):
            pending = int(match[1], 16), match[2]
        elif pending and (match := UPPER.match(line)):
            kernel.code[pending[0]] = Instruction(pending[1], int(match[1], 16))
            pending = None
    for name, registers, stack in RESOURCES.findall(usage):
        if name in found:
            found[name].registers, found[name].spilled = int(registers), int(stack)
    return list(found.values())


def cuobjdump():
    """cuobjdump's path, or None."""
    places = [os.environ.get("CUOBJDUMP"), shutil.which("cuobjdump"), TOOLS / "bin/cuobjdump"]
    places += [pathlib.Path(os.environ.get("CUDA_PATH", "/usr/local/cuda")) / "bin/cuobjdump"]
    return next((str(p) for p in places if p and os.access(p, os.X_OK)), None)


def nvcc():
    """nvcc's path, or None."""
    toolkit = pathlib.Path(os.environ.get("CUDA_PATH", "/usr/local/cuda")) / "bin/nvcc"
    return shutil.which("nvcc") or (str(toolkit) if toolkit.is_file() else None)


def output(*command):
    environment = {k: v for k, v in os.environ.items() if k != "NVCC_APPEND_FLAGS"}
    tools = [str(pathlib.Path(c).parent) for c in command[:1]]
    environment["PATH"] = os.pathsep.join([*tools, environment.get("PATH", "")])
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        sys.exit(f"machine_code: {' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def demangled(names):
    """Kernels' names without what all have: namespaces and parameters."""
    if not shutil.which("c++filt"):
        return names
    done = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True)
    found = []
    for name in done.stdout.splitlines():
        name = re.sub(r"\(anonymous namespace\)::|spool::|cuda::|functors::|__nv_", "", name)
        name = re.sub(r"\((int|bool|[A-Za-z]*::Form|Form)\)", "", name)
        found.append(name.removeprefix("void ").partition("(")[0])
    return found


def read(file):
    """The kernels of a file that nvcc made."""
    found = kernels_of(output(cuobjdump(), "-sass", file), output(cuobjdump(), "-res-usage", file))
    for kernel, name in zip(found, demangled([kernel.name for kernel in found])):
        kernel.name = name
    return found


def compiled(source, root=ROOT):
    """The kernels of a source, compiled as in a release."""
    with tempfile.TemporaryDirectory() as folder:
        include = pathlib.Path(folder) / "spool"
        include.symlink_to(root)
        cubin = str(pathlib.Path(folder) / "kernel.cubin")
        output(nvcc(), *FLAGS, "-I", folder, "-o", cubin, str(source))
        return read(cubin)


def table():
    """Of each line of the table: source, kernel, loads, elements of each pass, most instructions."""
    rows = []
    for line in TABLE.read_text().splitlines():
        if line and not line.startswith("#"):
            source, kernel, loads, elements, most = (word.strip() for word in line.split("|"))
            elements = [int(n) for n in elements.split()]
            rows.append((source, kernel, int(loads), elements, float(most) if most else None))
    return rows


def per_element(kernel, elements):
    """Instructions and bytes per element over the passes; of the first passes that have elements."""
    passes = kernel.passes()
    if not elements:
        return passes[0][1:]
    pairs = list(zip(passes, elements))
    return tuple(sum(one[i] / n for one, n in pairs if n) for i in (1, 2))


def row(kernel, elements):
    instructions, moved = per_element(kernel, elements)
    return (
        f"| `{kernel.name}` | {kernel.loads()} | {instructions:.1f} | {moved:.1f} |"
        f" {kernel.registers} | {kernel.spilled} |"
    )


def missing():
    """What is needed to compile and read kernels and is not there, as a sentence, or None."""
    if not cuobjdump():
        return (
            "there is no cuobjdump here; scripts/cuobjdump.sh fetches it, or install PyPI's"
            " nvidia-cuda-cuobjdump and nvidia-cuda-nvdisasm, or set CUOBJDUMP to where it is"
        )
    return None if nvcc() else "there is no nvcc here"


def main():
    arguments = sys.argv[1:]
    everything = "--all" in arguments
    known = {(source, name): elements for source, name, _, elements, _ in table()}
    files = [a for a in arguments if a != "--all"]
    files = files or [str(KERNELS / s) for s in dict.fromkeys(source for source, _ in known)]
    if lacking := missing():
        sys.exit(f"machine_code: {lacking}")
    print("| kernel | loads | instructions | bytes | registers | spilled |\n|---|---|---|---|---|---|")
    for file in files:
        source = pathlib.Path(file).name
        for kernel in compiled(file) if file.endswith(".cu") else read(file):
            if everything or (source, kernel.name) in known:
                print(row(kernel, known.get((source, kernel.name), [])), flush=True)


if __name__ == "__main__":
    main()
