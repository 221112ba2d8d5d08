"use strict";

// A sweep over budgets or settings: peaks against times, and peaks that were foretold against those
// that were measured.

const SWEEP_MARKS = ["circle", "square", "diamond", "triangle", "cross"];

function groupsOf(points, toPoint) {
  const groups = new Map();
  for (const point of points) {
    const name = point.group || "measured";
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push(toPoint(point));
  }
  return [...groups].map(([name, list], i) => ({
    name, look: seriesLook(i), mark: SWEEP_MARKS[i % SWEEP_MARKS.length], joined: isFrontier(list), points: list,
  }));
}

// Whether no point takes more time than one of less memory.
function isFrontier(points) {
  const sorted = usable(points).sort((a, b) => a.x - b.x);
  return sorted.length > 2 && sorted.every((point, i) => i === 0 || point.y <= sorted[i - 1].y);
}

function drawSweep(page, report) {
  const points = report.points ?? [];
  const about = [report.step, plural(points.length, "point")].filter(Boolean).join(" \u00b7 ");
  page.append(header(report.title || "A sweep", about));
  const times = section("sweep", "Memory against time", "Left and down is better.");
  drawnParts.sweep = scatter(times, {
    title: "Peak memory against step time.", xTitle: "peak memory",
    groups: groupsOf(points, (p) => ({x: p.peak_bytes, y: p.step_ms, name: p.name,
                                      words: inWords(p.name, p.peak_bytes, p.step_ms)})),
  });
  page.append(times);
  if (points.some((p) => known(p.foretold_peak_bytes))) {
    const peaks = section("peaks", "Foretold and measured peaks", "On the line the measured peak is the foretold one.");
    const beside = (p) => `${p.name}: foretold ${bytes(p.foretold_peak_bytes)}, measured ${bytes(p.peak_bytes)}`;
    drawnParts.peaks = scatter(peaks, {
      title: "Foretold peak memory against measured.", xTitle: "foretold peak", yBytes: true, equal: true,
      groups: groupsOf(points, (p) => ({x: p.foretold_peak_bytes, y: p.peak_bytes, words: beside(p)}))
        .map((group) => ({...group, joined: false})),
    });
    page.append(peaks);
  }
  page.append(element("section", {}, table("Points", ["name", "group", "peak (bytes)", "step (ms)", "foretold peak (bytes)"],
    points, (p) => [p.name, p.group, p.peak_bytes, p.step_ms, p.foretold_peak_bytes])));
}
