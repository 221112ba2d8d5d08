"use strict";

// The memory over a step as areas stacked on each other, in KiB and milliseconds (browsers clip paths
// of more than some 2e10 units): each area is a path from zero to the top of its category, and those
// of the categories below cover it.

const AREA_UNIT = 1024;

// Sums of the categories from the bottom up, one list for each.
function sumsUp(memory) {
  let below = new Float64Array(memory.times_ms.length);
  return memory.bytes.map((list) => {
    const sums = Float64Array.from(list, (n, i) => n + below[i]);
    below = sums;
    return sums;
  });
}

function endOfStep(report) {
  const memory = report.memory;
  const times = memory.times_ms;
  const ends = [...(memory.phases ?? []), ...(report.lanes ?? [])].map((part) => part.end_ms);
  const last = largest(ends, times.length ? times[times.length - 1] : 0);
  return last > (times[0] ?? 0) ? last : (times[0] ?? 0) + (report.foretold_step_ms || 1);
}

// "M 0 0 V 10 H 1.5 V 12 ... H 9 V 0 Z"; equal neighbours are one piece.
function areaPath(sums, times, end) {
  const parts = [`M${times[0]} 0`];
  let level = 0;
  for (let i = 0; i < sums.length; ++i) {
    if (sums[i] === level) continue;
    level = sums[i];
    parts.push(`H${times[i]}V${level / AREA_UNIT}`);
  }
  parts.push(`H${end}V0Z`);
  return parts.join("");
}

// The peak of a path and its area, from its coordinates.
function readAreaPath(path) {
  let x = 0;
  let y = 0;
  let peak = 0;
  let peakAt = 0;
  let area = 0;
  for (const [, command, number] of path.matchAll(/([MHV])([-+.\de]+)/g)) {
    const n = Number(number);
    if (command === "V") {
      y = n * AREA_UNIT;
      if (y > peak) [peak, peakAt] = [y, x];
    } else {
      area += command === "H" ? y * (n - x) : 0;
      x = n;
    }
  }
  return {peak, peakAt, area};
}

// State is one family of colours, activations are another, whatever their number.
function categoryClasses(names) {
  const fixed = {
    parameters: "parameters", frozen: "frozen", gradients: "gradients", optimizer: "optimizer",
    workspace: "workspace", "copies in flight": "copies",
  };
  let next = 0;
  return names.map((name) => fixed[name] ?? `kind${next++ % 8}`);
}

// Where a name fits into its area: columns of 8 pixels are looked through for a run of them in which
// the area is everywhere thick enough.
function placeOfName(name, under, over, x, y, times) {
  const step = 8;
  const columns = Math.floor((x.end - x.begin) / step);
  const needed = Math.ceil((textWidth(name) + 12) / step);
  const low = new Float64Array(columns);
  const high = new Float64Array(columns).fill(Infinity);
  let i = 0;
  for (let column = 0; column < columns; ++column) {
    const until = x.back(x.begin + (column + 1) * step);
    while (i + 1 < times.length && times[i + 1] <= x.back(x.begin + column * step)) ++i;
    for (let k = i; k < times.length && (k === i || times[k] < until); ++k) {
      low[column] = Math.max(low[column], under ? under[k] : 0);
      high[column] = Math.min(high[column], over[k]);
    }
  }
  let best = null;
  for (let begin = 0; begin + needed <= columns; ++begin) {
    const bottom = y(largest(low.subarray(begin, begin + needed)));
    const top = y(smallest(high.subarray(begin, begin + needed)));
    const found = {x: x.begin + (begin + needed / 2) * step, y: (bottom + top) / 2 + 4, thick: bottom - top};
    if (found.thick >= 18 && (!best || found.thick > best.thick * 1.2)) best = found;
  }
  return best;
}
