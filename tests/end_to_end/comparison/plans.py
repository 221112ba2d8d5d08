"""Plans of every preset: searched, by policies and by file, within budgets of all kinds."""

import functools
import re

from comparison import masks

POLICIES = [words.split() for words in [
    "--recompute none",
    "--recompute norms,gelu",
    "--recompute block",
    "--recompute attention --offload residual",
    "--offload all --optimizer-state streamed",
    "--recompute norms --optimizer-state cpu",
]]
# Settings with which presets are planned, in turn.
STEPS = [words.split() for words in [
    "",
    "--dtype bf16",
    "--dtype bf16 --rounding stochastic --accumulate 2",
    "--dropout 0.1 --accumulate 3",
    "--dtype bf16 --clip 0 --nondeterministic",
]]
PARTS = [None, 0.9, 0.75, 0.6, "smallest", "too small"]  # budgets, of the memory that keeping all takes
WAYS = ["searched", "by policies", "by file"]


def presets(help_of_plan):
    """The models that have defaults, and how many heads each has."""
    rows = re.findall(r"^  (\S+): --layers \d+ --heads (\d+) ", help_of_plan, re.MULTILINE)
    return {name: int(heads) for name, heads in rows}


def planned(side, folder, *words):
    """The output and the files of planning."""
    report = folder / "report.json"
    fixed = ["--json", report.name, "--save-plan", "plan.json"]
    status, printed, errors = side.said(folder, "plan", *words, *fixed)
    found = {"exit code": str(status), "printed": printed, "errors": errors}
    if report.exists():
        found["report.json"] = masks.report(report)
    if (folder / "plan.json").exists():
        found["plan.json"] = (folder / "plan.json").read_text()
    return found


class Plans:
    """The cases of one preset on one machine."""

    def __init__(self, comparison, preset, number, heads, machine):
        self.all, self.name = comparison, f"plan {machine} {preset}"
        self.number, self.tables = number, machine == "cpu"
        self.words = ["--model", preset, *STEPS[number % len(STEPS)]]
        if machine == "cpu":  # few and small kernels, as each is measured
            self.words += ["--threads", 2, "--layers", 2, "--channels", 16 * heads, "--batch", 2]
            self.words += ["--seq", 64, "--vocab", 512]
        else:
            self.words += ["--machine", machine]

    def same(self, what, *words):
        run = lambda side, folder: planned(side, folder, *self.words, *words)
        self.all.same(f"{self.name} {what}", run, self.tables)

    @functools.cached_property
    def whole(self):
        """What keeping all takes, by the earlier program."""
        return self.before()["keep_all_peak_bytes"]

    @functools.cached_property
    def least(self):
        return self.before("--memory", "1kB")["minimum_budget_bytes"]

    def before(self, *words):
        side = self.all.sides[0]
        return planned(side, side.folder(f"{self.name} budgets"), *self.words, *words)["report.json"]

    def budget(self, part):
        if isinstance(part, float):
            return int(part * self.whole)
        return self.least if part == "smallest" else self.least * 9 // 10

    def compare(self):
        given = None
        for i, part in enumerate(PARTS):
            within = f"in {part:.0%}" if isinstance(part, float) else f"in {part or 'what is free'}"
            if not any(self.all.wants(f"{self.name} {way} {within}") for way in WAYS):
                continue  # without a search for its budget
            memory = ["--memory", self.budget(part)] if part else []
            more = ["--frontier", "--report", "page.html"] if i == 3 else []
            self.same(f"searched {within}", *memory, *more)
            policy = POLICIES[(self.number + i) % len(POLICIES)]
            self.same(f"by policies {within}", *memory, *policy)
            saved = self.all.sides[0].root / f"{self.name} searched {within}".replace(" ", "-") / "plan.json"
            given = saved if saved.exists() else given
            if given:  # where none was found, one for a larger budget
                self.same(f"by file {within}", *memory, "--plan", given)
