"""What every command must do, however odd its words and files are.

It ends, by itself or when it is interrupted, and not by a signal of its own. If it fails, it says so in
one line that a person can read, and what was there before is there still.
"""

import dataclasses
import os
import re
import resource
import signal
import subprocess
import sys

from commands import PROGRAM

# Messages of other libraries, and of programs that crashed.
FOREIGN = re.compile(
    r"filesystem error|\[json\.exception|std::|what\(\)|terminate|basic_string|bad_\w|Assertion|stoi|stod"
    r"|\b0x[0-9a-f]{4}|syntax error while|last read|_M_|map::|vector|stack smashing|Sanitizer"
)
CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f\x80-\x9f]")
# Lines that are not errors, and errors without the program's name.
TOLD = re.compile(r"^foretold peak |^[a-z ]+ for \d+ s$|^[a-z ]+ \[[#. ]*\]")
WARNING = re.compile(
    rf"the last one counts|plain loops replace oneDNN|besides|training goes on|--context \d+ is beyond the|{TOLD.pattern}"
)
OUTPUTS = {"--log", "--save", "--save-plan", "--trace", "--json", "--report", "--out"}
PATIENCE = 120  # seconds for a program to heed an interrupt; the machine may be slow
MOST_MEMORY = 12 << 30


def pasted(word):
    """A word quoted for a shell."""
    if re.fullmatch(r"[A-Za-z0-9_./:=,+-]+", word):
        return word
    if word.isascii() and word.isprintable() and "'" not in word:
        return f"'{word}'"
    return "$'" + "".join(rf"\x{byte:02x}" for byte in os.fsencode(word)) + "'"


@dataclasses.dataclass
class Case:
    words: list  # of the command line
    more: dict = dataclasses.field(default_factory=dict)  # of the environment
    stdin: bytes = b""
    stdout: str = ""  # a file instead of a pipe
    file_bytes: int = 0  # the most that a file may have; 0: any number

    def __str__(self):
        before = [f"{key}={pasted(value)}" for key, value in self.more.items()]
        before += [f"ulimit -f {self.file_bytes / 1024:.1f};"] if self.file_bytes else []
        after = [f"> {self.stdout}"] if self.stdout else []
        return " ".join([*before, "spool", *map(pasted, map(str, self.words)), *after])


@dataclasses.dataclass
class Outcome:
    code: int
    printed: str
    errors: str
    interrupted: bool


def limits(case):
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_DFL)  # a shell's background jobs ignore some
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if case.file_bytes:
        resource.setrlimit(resource.RLIMIT_FSIZE, (case.file_bytes, case.file_bytes))


def start(case, folder):
    with open(case.stdout or os.devnull, "wb") as stdout:
        return subprocess.Popen(
            [PROGRAM, *map(str, case.words)],
            cwd=folder,
            env={**os.environ, **case.more},
            stdin=subprocess.PIPE,
            stdout=stdout if case.stdout else subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=lambda: limits(case),
        )


def outcome(case, folder, seconds):
    """Runs the program, and interrupts it after these seconds, and again if it goes on; None if it
    does not heed that."""
    run = start(case, folder)
    for interrupts, wait in enumerate([seconds, 15, PATIENCE]):
        try:
            texts = run.communicate(case.stdin if not interrupts else None, timeout=wait)
        except subprocess.TimeoutExpired:
            run.send_signal(signal.SIGINT)
            continue
        printed, errors = ((text or b"").decode(errors="surrogateescape") for text in texts)
        return Outcome(run.returncode, printed, errors, interrupts > 0)
    run.kill()
    run.communicate()
    return None


def contents(folder):
    """For every file and link, what changes if it is written or replaced."""
    found = {}
    for root, folders, names in os.walk(folder):
        for name in names + [f for f in folders if os.path.islink(os.path.join(root, f))]:
            path = os.path.join(root, name)
            status = os.lstat(path)
            link = os.readlink(path) if os.path.islink(path) else ""
            found[os.path.relpath(path, folder)] = (status.st_size, status.st_mtime_ns, link)
    return found


def values_of(words, flags):
    """The values of these flags, and the words without a flag, as paths from the folder."""
    words = [str(word) for word in words]
    named = [b for a, b in zip(words, words[1:]) if a.removesuffix("=") in flags]
    named += [word.split("=", 1)[1] for word in words if word.split("=", 1)[0] in flags and "=" in word]
    return [os.path.normpath(name) for name in named if name]


def is_at(path, places):
    return any(path == place or path.startswith(place + "/") for place in places)


def sentence_faults(o):
    """What is wrong with standard error and standard output."""
    said = [line for line in o.errors.split("\n") if line and not WARNING.search(line)]
    failed = o.code in (1, 2)
    if failed and len(said) != 1:
        yield f"{len(said)} lines instead of one on standard error"
    if o.code == 0 and said:
        yield "success, and an error"
    for line in o.errors.split("\n"):
        if line and not line.startswith("spool: ") and not TOLD.search(line):
            yield f"a line that does not begin with spool: {line[:200]!r}"
        if match := FOREIGN.search(line) or CONTROL.search(line):
            yield f"{match[0]!r} in the error"
        if re.search(r"left (-|inf|nan)", line):
            yield "a time that no clock shows"
        if len(line) > 12000:
            yield f"an error of {len(line)} characters"
    if o.errors and not o.errors.endswith("\n"):
        yield "a line without an end"
    if re.search(r"^spool: ", o.printed, re.MULTILINE):
        yield "an error on standard output"
    if o.code == 2 and o.printed:
        yield "a wrong command line, and something on standard output"


def file_faults(case, o, before, after):
    """What was written, replaced or removed and should not have been."""
    outputs = values_of(case.words, OUTPUTS)
    if case.words[:1] == ["convert"]:
        outputs += [os.path.normpath(str(word)) for word in case.words[1:]]
    links = [before[path][2] for path in outputs if path in before]
    outputs += [os.path.normpath(link) for link in links if link]
    runs = values_of(case.words, {"--out"}) if case.words[:1] == ["train"] else []
    runs += ["runs"] if case.words[:1] == ["train"] else []
    for path in sorted(before.keys() | after.keys()):
        if before.get(path) == after.get(path) or path.endswith(".lock") or path.startswith("cache/"):
            continue
        if path not in before:
            may = is_at(path, outputs + runs) if o.code != 2 else False
            if o.code == 1 and case.words[:1] != ["train"] and not case.stdout:
                may = False
            if o.code in (0, -signal.SIGINT) and case.words[:1] == ["tokenize"]:
                stems = tuple(re.sub(r"\.bin$", "", p) for p in outputs)
                may = may or path.removeprefix(".").startswith(stems)
            if not may:
                yield f"{path} was written"
        elif o.code != 0 and not o.interrupted and not case.stdout and not is_log(path, case):
            yield f"{path} was {'changed' if path in after else 'removed'} by a command that failed"
        elif not is_at(path, outputs + runs):
            yield f"{path} was {'changed' if path in after else 'removed'}"


def is_log(path, case):
    return path in values_of(case.words, {"--log"})


def faults(case, o, before, after):
    if o is None:
        return ["it does not end, and does not heed an interrupt"]
    expected = {0, 1, 2} | ({130, -signal.SIGINT} if o.interrupted else set())
    found = [] if o.code in expected else [f"exit code {o.code}"]
    found += sentence_faults(o)
    return found + list(file_faults(case, o, before, after))


def report(where, case, o, found, folder):
    """What is needed to reproduce the fault."""
    lines = [f"{where}: {'; '.join(dict.fromkeys(found))}", f"  in {folder}", f"  {case}"]
    if o:
        lines += [f"  exit code {o.code}", *(f"  {line[:600]!a}" for line in o.errors.splitlines()[:8])]
    print("\n".join(lines), file=sys.stderr, flush=True)
