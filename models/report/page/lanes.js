"use strict";

// The copies between the device and elsewhere, a lane for each direction and one for exchanges between
// ranks, over the times of the memory's picture.  A lane is one path in milliseconds; what nothing hides
// of exchanges is another one over it.

const LANE = 46;

function lanesOf(report) {
  const lanes = new Map();
  report.lanes.forEach((copy, index) => {
    if (!lanes.has(copy.lane)) lanes.set(copy.lane, []);
    lanes.get(copy.lane).push(index);
  });
  return [...lanes];
}

// As much as there is room for.
function laneWords(total, span, width) {
  const are = known(total.exposed_ms) ? plural(total.copies, "exchange") : plural(total.copies, "copy", "copies");
  const words = `${total.lane}: ${are}, ${bytes(total.bytes)}`;
  const exposed = known(total.exposed_ms) ? `, exposed ${milliseconds(total.exposed_ms)}` : "";
  const more = `${words}, busy ${milliseconds(total.busy_ms)} of ${milliseconds(span)}${exposed}`;
  return [more, words].find((text) => textWidth(text) < width) ?? total.lane;
}

function lanePath(copies) {
  return copies.map(({begin_ms, end_ms}) => `M${begin_ms} 0H${end_ms}V1H${begin_ms}Z`).join("");
}

function exposedParts(copies) {
  return copies.flatMap(({exposed_ms}) => exposed_ms ?? []).map(([begin_ms, end_ms]) => ({begin_ms, end_ms}));
}

function readLanePath(path) {
  let busy = 0;
  let count = 0;
  for (const [, begin, end] of path.matchAll(/M([-+.\de]+) 0H([-+.\de]+)/g)) {
    busy += end - begin;
    ++count;
  }
  return {count, busy_ms: busy};
}

function drawLanes(place, report, lanes, end, width) {
  const bottom = PHASES + LANE * lanes.length;
  const x = scale(Math.min(0, report.memory.times_ms[0] ?? 0), end, 10, width - 10);
  const drawing = picture(width, bottom + 30, `Copies in ${plural(lanes.length, "lane")}.`);
  drawPhases(drawing, report.memory, x, bottom);
  lanes.forEach(([name, indices], row) => {
    const top = PHASES + row * LANE;
    const copies = indices.map((index) => report.lanes[index]);
    const total = report.lane_totals.find(({lane}) => lane === name);
    const words = laneWords(total, end - x.from, x.end - x.begin);
    drawing.append(label(x.begin + 4, top + 15, words, {class: "lane-words halo"}));
    const move = `translate(${x.begin - ((x.end - x.begin) / (x.to - x.from)) * x.from} ${top + 21}) ` +
      `scale(${(x.end - x.begin) / (x.to - x.from)} 18)`;
    const draw = (parts, look, lane) => drawing.append(shape("path", {
      d: lanePath(parts), transform: move, class: look, "data-lane": lane, "vector-effect": "non-scaling-stroke"}));
    draw(copies, `copy lane${row % 3}`, name);
    const exposed = exposedParts(copies);
    if (exposed.length > 0) draw(exposed, "copy exposed", `${name}, exposed`);
  });
  drawColumns(drawing, x, timeTicks(x.from, x.to, width / 110), bottom);
  const outline = box(0, 0, 0, 22, {class: "outline"});
  drawing.append(outline);
  place.replaceChildren(drawing);
  return {x, outline};
}

function copyWords(copy) {
  const exposed = exposedParts([copy]).reduce((sum, part) => sum + part.end_ms - part.begin_ms, 0);
  return `${copy.lane}: ${copy.name}, ${bytes(copy.bytes)}, from ${milliseconds(copy.begin_ms)} ` +
    `to ${milliseconds(copy.end_ms)}${exposed > 0 ? `, exposed ${milliseconds(exposed)}` : ""}`;
}

function copyAt(report, lanes, drawn, px, py) {
  const row = Math.min(lanes.length - 1, Math.max(0, Math.floor((py - PHASES) / LANE)));
  const time = drawn.x.back(px);
  const far = (index) => {
    const copy = report.lanes[index];
    return Math.max(copy.begin_ms - time, time - copy.end_ms, 0);
  };
  return lanes[row][1].reduce((best, index) => (far(index) < far(best) ? index : best));
}

function readLanes(part, report) {
  const lanes = lanesOf(report);
  const end = endOfStep(report);
  const place = element("div", {class: "plot"});
  const words = element("p", {class: "reading"});
  part.append(element("div", {}, place), words);
  let drawn = null;
  const order = lanes.flatMap(([, indices]) => indices);
  const show = (at) => {
    const copy = report.lanes[order[at]];
    words.textContent = copyWords(copy);
    if (!drawn) return;
    const row = lanes.findIndex(([name]) => name === copy.lane);
    const [begin, until] = [drawn.x(copy.begin_ms), drawn.x(copy.end_ms)];
    fill(drawn.outline, {x: round(begin - 1), width: round(until - begin + 2), y: PHASES + 19 + row * LANE}, []);
  };
  const again = readable(place, {
    count: order.length, label: "Copy", show, says: (at) => copyWords(report.lanes[order[at]]),
    at: (px, py) => order.indexOf(copyAt(report, lanes, drawn, px, py)),
  });
  drawIn(place, (width) => {
    drawn = drawLanes(place, report, lanes, end, width);
    again();
  });
  drawnParts.lanes = () => Object.fromEntries([...place.querySelectorAll(".copy")].map((path) =>
    [path.dataset.lane, readLanePath(path.getAttribute("d"))]));
}

function lanesSection(report) {
  const copies = report.lanes ?? [];
  const all = (report.lane_totals ?? []).reduce((sum, total) => sum + total.copies, 0);
  const longest = all > copies.length
    ? ` Of ${whole(all)} copies the ${whole(copies.length)} longest are drawn.` : "";
  const ranks = copies.some(({exposed_ms}) => known(exposed_ms))
    ? ", and between ranks (what the device waits for is darker)" : "";
  const part = section("lanes", "Copies", copies.length
    ? `What travels between the device, the host's memory and the disk${ranks}, and when.${shownWords(report)}${longest}`
    : "This plan copies nothing: what it does not keep it computes again.");
  if (copies.length === 0) return part;
  readLanes(part, report);
  part.append(
    table("Copies", ["lane", "value", "begin (ms)", "end (ms)", "bytes"], copies,
          (c) => [c.lane, c.name, c.begin_ms, c.end_ms, c.bytes]),
    table("All copies", ["lane", "copies", "bytes", "busy (ms)"], report.lane_totals,
          (t) => [t.lane, t.copies, t.bytes, t.busy_ms]));
  return part;
}
