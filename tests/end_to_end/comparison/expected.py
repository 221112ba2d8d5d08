"""Differences that a change is meant to make, by name; all others fail.

A rule takes a difference and says whether it is one of these. Rules of changes that are done go: the
program of before has them.
"""

import re


def rehearsals(d):
    """A plan takes another number of rehearsals."""
    if d.place.endswith("rehearsals"):
        return True
    counted = re.compile(r"\d+ rehearsals")
    return all(isinstance(v, str) and counted.search(v) for v in (d.before, d.after)) and (
        counted.sub("#", d.before) == counted.sub("#", d.after)
    )


RULES = {rule.__name__.replace("_", "-"): rule for rule in [rehearsals]}
