"use strict";

// Scales from numbers to pixels, and their axes.

function scale(from, to, begin, end) {
  const span = to > from ? to - from : 1;
  const at = (n) => begin + ((n - from) / span) * (end - begin);
  at.back = (x) => from + ((x - begin) / (end - begin)) * span;
  at.from = from;
  at.to = to;
  at.begin = begin;
  at.end = end;
  return at;
}

// About `count` round numbers between two others.
function ticks(from, to, count) {
  const span = to - from;
  if (!(span > 0)) return [from];
  const rough = span / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((n) => n * power).find((n) => n >= rough * 0.999);
  const found = [];
  for (let i = Math.ceil(from / step - 1e-9); i * step <= to + step * 1e-9; ++i) {
    found.push(Number((i * step).toPrecision(12)));
  }
  return found;
}

// Amounts of memory that are round in one unit, and how to write them.
function byteTicks(from, to, count) {
  const unit = 1024 ** byteUnit(to);
  const name = BYTE_UNITS[byteUnit(to)];
  const found = ticks(from / unit, to / unit, count).map((n) => n * unit);
  return {at: found, write: (n) => (n === 0 ? "0" : `${exact(n / unit)} ${name}`)};
}

function timeTicks(from, to, count) {
  const [unit, name] = to >= 2000 ? [1000, "s"] : to >= 0.5 ? [1, "ms"] : [0.001, "\u00b5s"];
  const found = ticks(from / unit, to / unit, count).map((n) => n * unit);
  return {at: found, write: (n) => `${exact(n / unit)} ${name}`};
}

function plainTicks(from, to, count) {
  const most = Math.max(Math.abs(from), Math.abs(to));
  const [unit, name] = most >= 1e7 ? [1e6, "M"] : most >= 1e4 ? [1e3, "k"] : [1, ""];
  return {at: ticks(from, to, count), write: (n) => (n === 0 ? "0" : `${exact(n / unit)}${name}`)};
}

function stepTicks(from, to, count) {
  const found = plainTicks(from, to, count);
  return {...found, at: found.at.filter(Number.isInteger)};
}

// The same for numbers above 0, of which equal ratios are equally far apart.
function logarithmicScale(from, to, begin, end) {
  const linear = scale(Math.log(from), Math.log(to), begin, end);
  const at = (n) => linear(Math.log(n));
  at.back = (x) => Math.exp(linear.back(x));
  return Object.assign(at, {from, to, begin, end});
}

// Numbers of one digit, or of many tens only some powers of 10.
function logarithmicTicks(from, to) {
  const [low, high] = [Math.floor(Math.log10(from)), Math.ceil(Math.log10(to))];
  const every = Math.ceil((high - low) / 8);
  const first = high - low > 3 ? [1] : high - low > 2 ? [1, 2, 5] : [1, 2, 3, 4, 5, 7];
  const found = [];
  for (let power = low; power <= high; power += every) {
    found.push(...first.map((n) => Number(`${n}e${power}`)));
  }
  const write = (n) => (n >= 1e6 || n < 1e-4 ? n.toExponential() : exact(n));
  return {at: found.filter((n) => from <= n && n <= to), write};
}

// Powers of two, or round amounts where there is at most one.
function doublingByteTicks(from, to) {
  const powers = [];
  for (let power = Math.ceil(Math.log2(from)); 2 ** power <= to; ++power) powers.push(2 ** power);
  return powers.length > 1 ? {at: powers, write: bytes} : byteTicks(from, to, 5);
}

// Horizontal lines across a plot with their numbers at its left.
function drawRows(drawing, y, marks, left, right) {
  const group = shape("g", {class: "axis"});
  for (const n of marks.at) {
    group.append(line(left, y(n), right, y(n), {class: "rule"}));
    group.append(label(left - 8, y(n) + 4, marks.write(n), {"text-anchor": "end"}));
  }
  drawing.append(group);
}

// Numbers below a plot, each with a tick.
function drawColumns(drawing, x, marks, bottom, title) {
  const group = shape("g", {class: "axis"});
  for (const n of marks.at) {
    group.append(line(x(n), bottom, x(n), bottom + 5, {class: "tick"}));
    const [near, first] = [x(n) > x.end - 22, x(n) < 22];
    const place = {"text-anchor": near ? "end" : first ? "start" : "middle"};
    group.append(label(near ? x.end : x(n), bottom + 18, marks.write(n), place));
  }
  group.append(line(x.begin, bottom, x.end, bottom, {class: "base"}));
  if (title) {
    const place = {"text-anchor": "middle", class: "title"};
    group.append(label((x.begin + x.end) / 2, bottom + 36, title, place));
  }
  drawing.append(group);
}

// The width of a text of the pictures' size, near enough to keep texts apart.
function textWidth(text) {
  return 6.5 * text.length;
}
