#!/usr/bin/env python3
"""Draws a trace written by `spool train --trace step.json` as an SVG picture: the foretold step above
the measured one, a row for each lane, and live bytes below. Needs only Python.

    scripts/draw-trace.py step.json step.svg
"""

import json
import math
import sys
from html import escape

WIDTH, LEFT, RIGHT = 1000, 92, 12  # pixels
LANE, GAP, GRAPH = 26, 4, 100
EXCHANGE = 6
LANES = {1: "compute", 2: "copy out", 3: "copy in", EXCHANGE: "exchange"}
COLOURS = {
    "forward": "#4e79a7",
    "replay": "#f2a03d",
    "backward": "#59a14f",
    "optimizer": "#9467bd",
    "copy": "#2aa5a0",
    "disk": "#8c6d46",
    "wait": "#e15759",
    "other": "#b5b5b5",
}
LINE, GRID, INK = "#222222", "#dddddd", "#333333"


def kind(event):
    """The key of a span's colour."""
    if event["cat"] in {"copy", "wait"}:
        return event["cat"]
    if event["cat"] == "host":
        return "copy" if event["tid"] == EXCHANGE else "disk"
    return next((phase for phase in COLOURS if event["name"].startswith(phase)), "other")


def spans(events, lane):
    """The spans of a lane: on compute, ops without their kernels, and waits drawn over them."""
    found = [e for e in events if e["ph"] == "X" and e["tid"] == lane and e["dur"] > 0]
    if lane == 1:
        found = [e for e in found if e["cat"] in {"op", "wait"}]
    else:  # a copy stream waits most of the time
        found = [e for e in found if e["cat"] != "wait"]
    return sorted(found, key=lambda e: (e["cat"] == "wait", e["ts"]))


def text(x, y, words, size=12, anchor="start", colour=INK, weight="normal"):
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{colour}"'
        f' font-weight="{weight}">{escape(words)}</text>'
    )


def line(x1, y1, x2, y2, colour=GRID):
    return f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" stroke="{colour}"/>'


def round_step(maximum):
    """A round step for an axis: 1, 2 or 5 times a power of ten, at least four of them up to maximum."""
    power = 10 ** math.floor(math.log10(maximum / 4))
    return max(n * power for n in (1, 2, 5) if n * power <= maximum / 4)


class Picture:
    def __init__(self, trace):
        self.events, self.facts = trace["traceEvents"], trace["otherData"]
        self.names = {
            e["pid"]: e["args"]["name"] for e in self.events if e["name"] == "process_name"
        }
        self.ms = max(facts["seconds"] for facts in self.facts.values()) * 1e3
        self.mib = max(facts["most_live_bytes"] for facts in self.facts.values()) / 2**20 * 1.04
        self.parts, self.y = [], 0

    def x(self, microseconds):
        return LEFT + microseconds / 1e3 / self.ms * (WIDTH - LEFT - RIGHT)

    def legend(self):
        used = {kind(e) for e in self.events if e["ph"] == "X" and e["tid"] != 4}
        x = LEFT
        for name in (n for n in COLOURS if n in used - {"other"}):
            self.parts.append(
                f'<rect x="{x}" y="8" width="12" height="12" fill="{COLOURS[name]}"/>'
            )
            self.parts.append(text(x + 17, 18, name))
            x += 34 + 8 * len(name)
        self.y = 32

    def process(self, pid):
        facts = self.facts[self.names[pid]]
        said = f"{facts['seconds'] * 1e3:.1f} ms, {facts['kernels']} kernels, "
        said += f"at most {facts['most_live_bytes'] / 2**20:.2f} MiB, "
        said += f"exposed copies {facts['exposed_copies'] * 100:.1f} %"
        self.parts.append(text(LEFT, self.y + 14, self.names[pid], 14, weight="bold"))
        self.parts.append(text(WIDTH - RIGHT, self.y + 14, said, anchor="end"))
        self.y += 22
        mine = [e for e in self.events if e["pid"] == pid]
        for lane, name in LANES.items():
            if found := spans(mine, lane):
                self.lane(name, found)
        self.graph([e for e in mine if e["ph"] == "C" and e["name"] == "live bytes"])

    def lane(self, name, found):
        self.parts.append(text(LEFT - 8, self.y + LANE / 2 + 4, name, anchor="end"))
        self.parts.append(
            f'<rect x="{LEFT}" y="{self.y}" width="{WIDTH - LEFT - RIGHT}" height="{LANE}"'
            ' fill="#f4f4f4"/>'
        )
        for e in found:
            self.span(e)
        self.y += LANE + GAP

    def span(self, e):
        x, width = self.x(e["ts"]), max(self.x(e["ts"] + e["dur"]) - self.x(e["ts"]), 0.4)
        self.parts.append(
            f'<rect x="{x:.1f}" y="{self.y}" width="{width:.1f}" height="{LANE}"'
            f' fill="{COLOURS[kind(e)]}" stroke="#fff" stroke-width=".3">'
            f"<title>{escape(e['name'])}: {e['dur'] / 1e3:.2f} ms</title></rect>"
        )
        word = e["name"].split(" #")[0].split(" ")[-1]
        if e["cat"] == "op" and width > 6.2 * len(word):
            middle = x + width / 2
            self.parts.append(
                text(middle, self.y + LANE / 2 + 3, word, 10, anchor="middle", colour="#fff")
            )

    def graph(self, counts):
        self.parts.append(text(LEFT, self.y + 11, "live bytes"))
        self.y += 18
        bottom = self.y + GRAPH

        def height(mib):
            return bottom - mib / self.mib * GRAPH

        self.parts.append(line(LEFT, bottom, WIDTH - RIGHT, bottom, INK))
        self.parts.append(text(LEFT - 8, bottom + 4, "0", 10, anchor="end"))
        step = round_step(self.mib)
        for i in range(1, int(self.mib / step) + 1):
            self.parts.append(line(LEFT, height(i * step), WIDTH - RIGHT, height(i * step)))
            said = f"{i * step:g} MiB"
            self.parts.append(text(LEFT - 8, height(i * step) + 4, said, 10, anchor="end"))
        path = f"M{self.x(counts[0]['ts']):.1f} {height(counts[0]['args']['bytes'] / 2**20):.1f}"
        for e in counts:
            path += f"H{self.x(e['ts']):.1f}V{height(e['args']['bytes'] / 2**20):.1f}"
        self.parts.append(f'<path d="{path}" fill="none" stroke="{LINE}"/>')
        self.y = bottom + 10

    def axis(self):
        step = round_step(self.ms)
        for i in range(int(self.ms / step) + 1):
            x = self.x(i * step * 1e3)
            self.parts.append(line(x, self.y - 6, x, self.y, INK))
            self.parts.append(text(x, self.y + 12, f"{i * step:g} ms", 10, anchor="middle"))
        self.y += 18

    def svg(self):
        self.legend()
        for pid in sorted(self.names):
            self.process(pid)
            self.y += 8
        self.axis()
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.y}"'
            f' width="{WIDTH}" height="{self.y}" font-family="sans-serif">'
        )
        paper = f'<rect width="{WIDTH}" height="{self.y}" fill="#fff"/>'
        return "\n".join([head, paper, *self.parts, "</svg>", ""])


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: scripts/draw-trace.py TRACE.json PICTURE.svg")
    with open(sys.argv[1], encoding="utf-8") as file:
        picture = Picture(json.load(file)).svg()
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write(picture)


if __name__ == "__main__":
    main()
