"""The library grows knowingly: each room has as many lines as its row of sizes.txt says, or fewer.

    size.py             prints the lines of each room and what the change adds: all that differs from
                        the commit named by SPOOL_BASE, or else from the last one
    size.py COMMIT      the same from this commit
    size.py --update    writes the numbers of sizes.txt, rounded up to STEP, and keeps its reasons; a
                        row that grows needs a new one, written before

A row has a room, its lines as `wc -l` counts those of its sources and headers, and why it has them: a
change that needs more says it there. A room that is SLACK lines smaller than its row fails, too,
so that no later change grows into what this one gave back. What has to be read to know how Spool
works, the core of the tour, has CORE_LINES at most.
"""

import os
import re
import subprocess
import sys

from tree import CPP, ROOT, room_of, rooms, sources, verdict

TABLE = "tests/checks/sizes.txt"
SLACK, STEP = 100, 50
CORE_LINES = 23_000
CORE = ["runtime", "autograd", "planner", "models/steps", "models/optimizers"]
BESIDE_CORE = ["runtime/cuda", "runtime/files", "runtime/ranks", "autograd/checks"]
BESIDE_CORE += ["autograd/ops", "autograd/sharding", "planner/sharding"]
BESIDE_CORE += ["planner/report", "planner/machines", "planner/search/bound"]
BESIDE_CORE += ["models/steps/chunks", "models/steps/exchange", "models/steps/files", "models/steps/sharding"]
ROW = re.compile(r"(\S+) +([\d,]+)(?: +(\S.*))?$")
HEAD = "# The lines of each room, and why it has them.  python3 tests/checks/size.py --update counts.\n"


def lines(file):
    return (ROOT / file).read_bytes().count(b"\n")


def in_core(file):
    return any(map(file.is_relative_to, CORE)) and not any(map(file.is_relative_to, BESIDE_CORE))


def table():
    """Each room's lines and reason, and what is wrong with the file that says so."""
    found, errors = {}, []
    text = (ROOT / TABLE).read_text() if (ROOT / TABLE).exists() else ""
    for number, line in enumerate(text.splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        row = ROW.match(line)
        if not row or row[1] in found:
            errors.append(f"{TABLE}:{number}: is not a room, its lines and why it has them, once")
        else:
            found[row[1]] = int(row[2].replace(",", "")), row[3]
    return found, errors


def faults(said, counted):
    """What differs between the table and the lines of the rooms."""
    for room in said.keys() - counted.keys():
        yield f"{TABLE}: has a row for {room}, which is no room"
    for room, count in counted.items():
        limit, why = said.get(room, (0, None))
        if count > limit:
            yield (
                f"{room}: has {count:,} lines, {count - limit:,} more than its row of {TABLE} allows;"
                " take as many out, or give it more there and say why, in the commit that needs them"
            )
        elif count < limit - SLACK:
            yield (
                f"{room}: has {count:,} lines, {limit - count:,} fewer than its row of {TABLE} says;"
                " let `size.py --update` count, so that the table stays true"
            )
        if room in said and not why:
            yield f"{TABLE}: does not say why {room} has its {limit:,} lines"


def git(*arguments):
    """The lines git prints; none if it fails."""
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    except OSError:
        return []
    return done.stdout.splitlines() if done.returncode == 0 else []


def change(commit, known):
    """The lines that each room gained and lost since a commit."""
    changed = [line.split("\t") for line in git("diff", "--numstat", "--no-renames", commit, "--")]
    changed = [row for row in changed if row[0] != "-"]  # of bytes that are no text
    new = git("ls-files", "--others", "--exclude-standard")
    changed += [[str(lines(file)), "0", file] for file in new if (ROOT / file).suffix in CPP]
    found = {}
    for gained, lost, name in changed:
        file = (ROOT / name).relative_to(ROOT)
        room = room_of(file, known)
        if room and file.suffix in CPP:
            before = found.get(room, (0, 0))
            found[room] = before[0] + int(gained), before[1] + int(lost)
    return found


def counts(known):
    """The lines of each room, and those of the core."""
    found, core = {room: 0 for room in known}, 0
    for file in sources(known):
        count = lines(file)
        found[room_of(file, known)] += count
        core += count if in_core(file) else 0
    return found, core


def committed():
    """The table of the last commit: the same as table(), without faults."""
    rows = map(ROW.match, git("show", f"HEAD:{TABLE}"))
    return {row[1]: (int(row[2].replace(",", "")), row[3]) for row in rows if row}


def update(said, counted):
    """Writes the table, unless a room grew without a reason of its own."""
    before, rows = committed(), []
    for room, count in counted.items():
        _, why = said.get(room, (0, None))
        old_limit, old_why = before.get(room, (count, None))
        if count > old_limit and why == old_why:
            sys.exit(f"{room}: grew from {old_limit:,} lines to {count:,}; say why in its row of {TABLE} first")
        count = -(-count // STEP) * STEP
        rows.append(f"{room:<18} {count:>6,}  {why or ''}".rstrip() + "\n")
    (ROOT / TABLE).write_text(HEAD + "".join(rows))


def main(words):
    known = list(rooms())
    counted, core = counts(known)
    said, errors = table()
    if words == ["--update"]:
        if not errors:
            update(said, counted)
        verdict(errors, f"{TABLE} has the lines of {len(counted)} rooms")
    errors += faults(said, counted)
    if core > CORE_LINES:
        errors.append(
            f"the core has {core:,} lines, and has {CORE_LINES:,} at most ({', '.join(CORE)}, without"
            f" {', '.join(BESIDE_CORE)}); take some out, or move what need not be read to another room"
        )
    base = words[0] if words else os.environ.get("SPOOL_BASE") or "HEAD"
    if not git("rev-parse", "--verify", "--quiet", f"{base}^{{commit}}"):
        if words:
            sys.exit(f"size: there is no commit {base} here")
        base = None
    changes = change(base, known) if base else {}
    for room, count in counted.items():
        gained, lost = changes.get(room, (0, 0))
        since = f"  {gained - lost:+,} since {base}: {gained:,} new, {lost:,} gone"
        print(f"{room:<18} {count:>6,}{since if gained or lost else ''}")
    total = sum(counted.values())
    verdict(errors, f"{len(counted)} rooms have {total:,} lines, the core {core:,} of {CORE_LINES:,}")


main(sys.argv[1:])
