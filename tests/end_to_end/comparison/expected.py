"""Differences that a change is meant to make, by name; all others fail.

A rule takes a difference and says whether it is one of these. Rules of changes that are done go: the
program of before has them.
"""

import re

NUMBER = re.compile(r"(\d+(?:\.\d+)?)( [KMGT]iB| B| bytes)?")
UNITS = {" B": 1, " bytes": 1, "": 1, " KiB": 2**10, " MiB": 2**20, " GiB": 2**30, " TiB": 2**40}
OF_TIME = re.compile(r"  foretold step time|    lower bound|    planned in")
TIME = re.compile(r"(?: |\()*(\d+(?:\.\d+)?) (us|ms|s|%)(?!\w)")
GRANULE = 2048  # elements


def grows(before, after, most):
    """Whether a number of bytes is larger by at most so many, as far as its digits show."""
    if isinstance(before, int) and isinstance(after, int):
        return 0 < after - before <= most
    if not isinstance(before, str) or not isinstance(after, str):
        return False
    if NUMBER.sub("#", before) != NUMBER.sub("#", after):
        return False
    for (a, unit), (b, other_unit) in zip(NUMBER.findall(before), NUMBER.findall(after)):
        rounding = 0 if unit in {"", " B", " bytes"} else UNITS[unit] * (1 if float(a) >= 100 else 0.1)
        more = float(b) * UNITS[other_unit] - float(a) * UNITS[unit]
        if (a, unit) != (b, other_unit) and not -rounding <= more <= most + rounding:
            return False
    return True


def peak_grows(d):
    """A peak that stands in the update grows by the norm's 8 bytes a granule."""
    granules = d.parameters // GRANULE + 1
    return bool(d.parameters) and grows(d.before, d.after, 8 * granules + 512)


def clipped_bits(d):
    """The last bits of clipped runs differ, as the norm is added in another order."""
    if "clip 1" not in d.case:
        return False
    if d.output == "log" and isinstance(d.before, float) and isinstance(d.after, float):
        return abs(d.after - d.before) <= 1e-4 * abs(d.before)
    return d.output.endswith(".safetensors") and isinstance(d.after, float) and d.after <= 1e-3


def order_of_tensors(d):
    """A file has the same tensors in another order."""
    return d.place == "order of tensors"


def seconds_of_the_update(d):
    """The kernels of an update are others: what is foretold of a step takes a fiftieth more or less."""
    if isinstance(d.before, float) and isinstance(d.after, float):
        of_time = d.place.endswith("_ms") or d.place.endswith("gap")
        return of_time and abs(d.after - d.before) <= 0.02 * max(d.before, 1)
    if not isinstance(d.before, str) or TIME.sub("#", d.before) != TIME.sub("#", str(d.after)):
        return False
    pairs = zip(TIME.findall(d.before), TIME.findall(d.after))
    most = lambda number, unit: max(1 if unit == "%" else 0.2, 0.02 * float(number))
    return all(u == v and abs(float(a) - float(b)) <= most(a, u) for (a, u), (b, v) in pairs)


def timeline_of_the_update(d):
    """What is live in an update, or is copied then, is another: the state has another order."""
    return d.output == "report.json" and re.match(r"(memory\.(bytes|values|times_ms|total_bytes)|lane)", d.place)


def rehearsals(d):
    """A plan takes another number of rehearsals."""
    if d.place.endswith("rehearsals"):
        return True
    counted = re.compile(r"\d+ rehearsals")
    return all(isinstance(v, str) and counted.search(v) for v in (d.before, d.after)) and (
        counted.sub("#", d.before) == counted.sub("#", d.after)
    )


def given_plan_does_not_fit(d):
    """A given plan that does not fit is said not to fit."""
    made_for = "was made for a tape that differs"
    if d.output == "report.json" and d.place == "minimum_budget_bytes":
        return d.before is None
    return d.refused and made_for in str(d.before) and "are available" in str(d.after)


def one_table(d):
    """`plan` and `train` print one table: of what is refused, too, without a bound; a budget that is not
    given is none; that nothing is offloaded is said by both, how fast other plans are, too."""
    if d.output != "printed":
        return False
    before, after = d.before or "", d.after or ""
    if d.refused and (not before or before.startswith("    lower bound")):
        return True
    if re.fullmatch(r"  budget +none", after):
        return not before or before.startswith("  free memory ")
    if after.startswith("  nothing is offloaded"):
        return not before
    return not d.case.startswith("plan") and bool(OF_TIME.match(after)) and after.startswith(before)


RULES = [peak_grows, clipped_bits, order_of_tensors, seconds_of_the_update, timeline_of_the_update, rehearsals,
         given_plan_does_not_fit, one_table]
RULES = {rule.__name__.replace("_", "-"): rule for rule in RULES}
