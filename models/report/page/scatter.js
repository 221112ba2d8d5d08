"use strict";

// Points of bytes and milliseconds, some joined, each with a mark of its own group and, where there
// is room, a name.

const MARKS = {
  circle: (r) => `M${-r} 0a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0Z`,
  square: (r) => `M${-r} ${-r}H${r}V${r}H${-r}Z`,
  diamond: (r) => `M0 ${-1.3 * r}L${1.3 * r} 0L0 ${1.3 * r}L${-1.3 * r} 0Z`,
  triangle: (r) => `M0 ${-1.2 * r}L${1.15 * r} ${0.8 * r}H${-1.15 * r}Z`,
  cross: (r) => `M${-r} ${-r}L${r} ${r}M${r} ${-r}L${-r} ${r}`,
};

function mark(kind, r, attributes) {
  return shape("path", {d: MARKS[kind](r), ...attributes});
}

function markSwatch(group) {
  const drawing = shape("svg", {viewBox: "-8 -8 16 16", width: 16, height: 16, "aria-hidden": "true"});
  if (group.joined) drawing.append(line(-8, 0, 8, 0, {class: `join ${group.look}`}));
  drawing.append(mark(group.mark, group.size ?? 4, {class: `point ${group.look}`}));
  return drawing;
}

function usable(points) {
  return points.filter((point) => known(point.x) && known(point.y));
}

// A span with some room at both ends; it begins at 0 where that is near.
function padded(list, room) {
  if (list.length === 0) return [0, 1];
  const [from, to] = [smallest(list), largest(list)];
  const span = to - from || Math.abs(to) * 0.2 || 1;
  const low = from - room * span;
  return [from >= 0 && from < 0.2 * to ? 0 : Math.max(from >= 0 ? 0 : -Infinity, low), to + room * span];
}

// Tries places around a point until the name covers no other name or point.
function placeName(point, taken, area) {
  const width = textWidth(point.name);
  const places = [[9, 4, "start"], [-9, 4, "end"], [0, -10, "middle"], [0, 19, "middle"],
                  [8, -9, "start"], [8, 17, "start"], [-8, -9, "end"], [-8, 17, "end"]];
  for (const [dx, dy, anchor] of places) {
    const left = point.px + dx - (anchor === "end" ? width : anchor === "middle" ? width / 2 : 0);
    const place = {left: left - 3, right: left + width + 3, top: point.py + dy - 12, bottom: point.py + dy + 4};
    const inside = left >= area.left && place.right <= area.right && place.top >= area.top &&
      place.bottom <= area.bottom;
    const free = taken.every((other) => other.right < place.left || other.left > place.right ||
      other.bottom < place.top || other.top > place.bottom);
    if (!inside || !free) continue;
    taken.push(place);
    return label(point.px + dx, point.py + dy, point.name, {"text-anchor": anchor, class: "halo"});
  }
  return null;
}

// The way from one point to the next, in squares that no name may cover.
function takenByLine(points) {
  return points.slice(1).flatMap((to, i) => {
    const from = points[i];
    const pieces = Math.ceil(Math.hypot(to.px - from.px, to.py - from.py) / 5) || 1;
    return Array.from({length: pieces}, (_, k) => {
      const [px, py] = [from.px + ((to.px - from.px) * k) / pieces, from.py + ((to.py - from.py) * k) / pieces];
      return {left: px - 1, right: px + 1, top: py - 1, bottom: py + 1};
    });
  });
}

// Names the last groups first, and what is first in them.
function drawNames(drawing, groups, area) {
  const placed = groups.map((group) => group.placed).reverse().flat();
  const taken = placed.map(({px, py}) => ({left: px - 5, right: px + 5, top: py - 5, bottom: py + 5}));
  for (const group of groups) if (group.joined) taken.push(...takenByLine(group.placed));
  for (const point of placed) {
    if (!point.name) continue;
    const own = taken[placed.indexOf(point)];
    const others = taken.filter((place) => place !== own);
    const before = others.length;
    const words = placeName(point, others, area);
    taken.push(...others.slice(before));
    if (words) drawing.append(words);
  }
}

function drawGroup(drawing, group, x, y) {
  const points = usable(group.points);
  if (group.joined && points.length > 1) {
    const sorted = [...points].sort((a, b) => a.x - b.x);
    const d = sorted.map((p, i) => `${i ? "L" : "M"}${round(x(p.x))} ${round(y(p.y))}`).join("");
    drawing.append(shape("path", {d, class: `join ${group.look}`}));
  }
  return points.map((point) => {
    const [px, py] = [x(point.x), y(point.y)];
    const place = {transform: `translate(${round(px)} ${round(py)})`, class: `point ${group.look}`};
    const drawn = mark(group.mark, group.size ?? 4, place);
    drawing.append(drawn);
    return {...point, px, py};
  });
}

// What no plan can do is hatched: between two budgets nothing is faster than the bound of the larger.
function drawBound(drawing, bound, x, y) {
  const points = usable(bound).sort((a, b) => a.x - b.x);
  if (points.length < 2) return;
  const parts = points.slice(1).map((p) => `V${round(y(p.y))}H${round(x(p.x))}`);
  const first = `M${round(x(points[0].x))} ${round(y(points[0].y))}`;
  const under = `V${y.begin}H${round(x(points[0].x))}Z`;
  drawing.append(shape("path", {d: first + parts.join("") + under, class: "impossible"}));
  drawing.append(shape("path", {d: first + parts.join(""), class: "bound"}));
}

function hatch() {
  const lines = shape("path", {d: "M0 8L8 0M-2 2L2 -2M6 10L10 6", class: "hatch-line"});
  const size = {width: 8, height: 8, patternUnits: "userSpaceOnUse"};
  return shape("defs", {}, shape("pattern", {id: "hatch", ...size}, lines));
}

// groups: [{name, look, mark, size, joined, points: [{x, y, name, words}]}]
function drawScatter(place, chart, width) {
  const height = Math.round(Math.min(400, Math.max(270, width * 0.55)));
  const all = usable(chart.groups.flatMap((group) => group.points));
  const beneath = usable(chart.bound ?? []);
  const between = chart.logarithmic
    ? (list, _, begin, end) => logarithmicScale(0.9 * smallest([...list, largest(list, 1)]), 1.1 * largest(list, 1),
                                                begin, end)
    : (list, room, begin, end) => scale(...padded(list, room), begin, end);
  const x = between(all.map((p) => p.x), 0.08, width < 500 ? 58 : 70, width - 14);
  const y = between([...all, ...beneath].map((p) => p.y), 0.1, height - 46, 10);
  const drawing = picture(width, height, chart.title);
  drawing.append(hatch());
  const rows = chart.logarithmic ? {...logarithmicTicks(y.from, y.to), write: milliseconds}
    : chart.yBytes ? byteTicks(y.from, y.to, 5) : timeTicks(y.from, y.to, 5);
  const columns = chart.logarithmic ? doublingByteTicks(x.from, x.to) : byteTicks(x.from, x.to, width / 110);
  drawRows(drawing, y, rows, x.begin, x.end);
  drawBound(drawing, beneath, x, y);
  drawColumns(drawing, x, columns, height - 46, chart.xTitle);
  if (chart.equal) {
    const [low, high] = [Math.max(x.from, y.from), Math.min(x.to, y.to)];
    drawing.append(line(x(low), y(low), x(high), y(high), {class: "equal"}));
  }
  const groups = chart.groups.map((group) => ({...group, placed: drawGroup(drawing, group, x, y)}));
  drawNames(drawing, groups, {left: x.begin, right: x.end, top: y.end, bottom: y.begin});
  const outline = shape("circle", {r: 9, class: "outline"});
  drawing.append(outline);
  place.replaceChildren(drawing);
  return {x, y, outline, points: groups.flatMap((group) => group.placed)};
}

// Reads the points from the least memory to the most, beginning with the last group's first.
function readScatter(place, chart, words, drawn) {
  const order = chart.groups.flatMap((group) => usable(group.points))
    .map((point, index) => ({...point, index})).sort((a, b) => a.x - b.x || a.y - b.y);
  const own = usable(chart.groups[chart.groups.length - 1]?.points ?? [])[0];
  const far = (point, px, py) => Math.hypot(point.px - px, point.py - py);
  return readable(place, {
    count: order.length, label: chart.title, says: (at) => order[at].words,
    first: Math.max(0, order.findIndex((point) => own && point.x === own.x && point.words === own.words)),
    show: (at) => {
      words.textContent = order[at].words;
      const point = drawn()?.points[order[at].index];
      if (point) fill(drawn().outline, {cx: round(point.px), cy: round(point.py)}, []);
    },
    at: (px, py) => order.reduce((best, {index}, at) => {
      const {points} = drawn();
      return far(points[index], px, py) < far(points[order[best].index], px, py) ? at : best;
    }, 0),
  });
}

function scatter(part, chart) {
  const place = element("div", {class: "plot"});
  const words = element("p", {class: "reading"});
  const keys = chart.groups.filter((group) => usable(group.points).length > 0)
    .map((group) => [markSwatch(group), group.name]);
  if (usable(chart.bound ?? []).length > 1) keys.push([swatch("impossible"), chart.boundName]);
  part.append(legend(keys), element("div", {}, place), words);
  let drawn = null;
  const again = readScatter(place, chart, words, () => drawn);
  drawIn(place, (width) => {
    drawn = drawScatter(place, chart, width);
    again();
  });
  return () => [...place.querySelectorAll(".plot > svg > .point")].map((point) => {
    const [px, py] = point.getAttribute("transform").match(/[-\d.]+/g).map(Number);
    return [drawn.x.back(px), drawn.y.back(py)];
  });
}
