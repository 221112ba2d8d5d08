"use strict";

// The memory over a step: stacked areas under the phases, with the budget as a line, and what is
// live at the instant that is read.

const READ_VALUES = 6;

function phaseAt(memory, time) {
  return memory.phases.find((phase) => phase.begin_ms <= time && time < phase.end_ms);
}

// "ln_2 of layer 7" and ": 12.6 MiB, kept until backward of mlp.c_fc"; of what is no activation, the
// category, too: a parameter, its gradient and its state have one name.
function valueWords(memory, value) {
  const category = memory.categories[value.category] ?? "";
  const kind = category.startsWith("activations") ? "" : ` (${category})`;
  const where = (known(value.layer) ? ` of layer ${value.layer}` : "") + kind;
  const until = value.until ? `, kept until ${value.until}` : "";
  return [`${value.name}${where}`, `: ${bytes(value.bytes)}${until}`];
}

function liveValues(memory, index) {
  const live = memory.values.filter((value) => value.begin <= index && index < value.end);
  return live.sort((a, b) => b.bytes - a.bytes).slice(0, READ_VALUES);
}

// The bands of a time axis: a row of names, a strip of 20 pixels and a shade behind the plot.  The
// name of a phase is in the strip, or above it if it is wider than the phase.
const PHASE_NAMES = 16;
const PHASES = PHASE_NAMES + 22;

function drawPhases(drawing, memory, x, bottom) {
  const group = shape("g", {class: "phases"});
  const strips = PHASE_NAMES + 2;
  let free = x.begin;  // where the row of names has room
  memory.phases.forEach((phase, index) => {
    const [begin, end] = [x(phase.begin_ms), x(phase.end_ms)];
    const parity = `phase${index % 2}`;
    const strip = box(begin, strips, end - begin, 20, {class: `strip ${parity}`});
    const words = `${phase.name}, ${milliseconds(phase.end_ms - phase.begin_ms)}`;
    strip.append(shape("title", {}, words));
    group.append(strip, box(begin, PHASES, end - begin, bottom - PHASES, {class: `shade ${parity}`}));
    const middle = (begin + end) / 2;
    const name = [words, phase.name].find((text) => textWidth(text) + 8 <= end - begin);
    if (name) {
      group.append(label(middle, strips + 14, name, {"text-anchor": "middle"}));
      return;
    }
    const width = textWidth(phase.name);
    const left = Math.min(Math.max(free, middle - width / 2), x.end - width);
    if (left < free) return;
    free = left + width + 6;
    group.append(label(left, 12, phase.name), line(middle, strips - 3, middle, strips, {class: "tick"}));
  });
  drawing.append(group);
}

// The budget, if the plan comes near it; what the picture does not reach is said above it.
function drawBudget(drawing, report, x, y) {
  const limit = limitBytes(report);
  if (!limit) return;
  const inside = limit <= y.to;
  const at = inside ? y(limit) : y.end + 3;
  const words = `${limitName(report)} ${bytes(limit)}${inside ? "" : ", above this picture"}`;
  const peak = x(report.memory.times_ms[report.memory.peak_index] ?? 0);
  const left = peak > (x.begin + x.end) / 2;
  const room = (left ? peak - x.begin : x.end - peak) - 120;  // beside the words of the peak
  const place = {"text-anchor": left ? "start" : "end", class: "budget-words halo"};
  if (inside) drawing.append(line(x.begin, at, x.end, at, {class: "budget"}));
  const beside = textWidth(words) < room ? at - 6 : at + 14;
  drawing.append(label(left ? x.begin + 6 : x.end - 6, inside ? beside : at + 10, words, place));
}

function drawPeak(drawing, memory, x, y) {
  const index = memory.peak_index;
  const peak = memory.total_bytes[index];
  if (!known(peak)) return;
  const at = x(memory.times_ms[index]);
  const right = at > x.end - 110;
  const place = {"text-anchor": right ? "end" : "start", class: "peak-words halo"};
  drawing.append(shape("circle", {cx: round(at), cy: round(y(peak)), r: 4, class: "peak"}));
  drawing.append(label(at + (right ? -8 : 8), y(peak) - 7, `peak ${bytes(peak)}`, place));
}

function drawAreas(drawing, stack, x, y) {
  const zoomX = (x.end - x.begin) / (x.to - x.from);
  const zoomY = (AREA_UNIT * (y.end - y.begin)) / (y.to - y.from);
  const move = `matrix(${zoomX} 0 0 ${zoomY} ${x.begin - zoomX * x.from} ${y.begin})`;
  const areas = shape("g", {class: "areas", transform: move});
  for (let i = stack.paths.length - 1; i >= 0; --i) {
    const area = shape("path", {d: stack.paths[i], class: `area ${stack.classes[i]}`});
    areas.append(area);
  }
  drawing.append(areas);
  stack.names.forEach((name, i) => {
    const place = placeOfName(name, stack.sums[i - 1], stack.sums[i], x, y, stack.times);
    const words = {"text-anchor": "middle", class: `on ${stack.classes[i]}`};
    if (place) drawing.append(label(place.x, place.y, name, words));
  });
}

function stackOf(report) {
  const memory = report.memory;
  const sums = sumsUp(memory);
  const end = endOfStep(report);
  return {
    sums, end, times: memory.times_ms, names: memory.categories,
    classes: categoryClasses(memory.categories),
    paths: memory.times_ms.length ? sums.map((list) => areaPath(list, memory.times_ms, end)) : [],
  };
}

// Returns what the reader needs: the scales and the line of the instant.
function drawMemory(place, report, stack, width) {
  const memory = report.memory;
  const height = Math.round(Math.min(560, Math.max(290, width * 0.68)));
  const peak = largest(memory.total_bytes, 0);
  const limit = limitBytes(report);
  const shown = limit && limit <= 1.7 * peak ? Math.max(peak, limit) : peak;
  const x = scale(stack.times[0] ?? 0, stack.end, width < 500 ? 58 : 70, width - 10);
  const y = scale(0, Math.max(1, shown * 1.1), height - 30, PHASES + 4);
  const words = `Memory of the device over one step. Peak ${bytes(peak)}.`;
  const drawing = picture(width, height, words);
  drawPhases(drawing, memory, x, height - 30);
  drawRows(drawing, y, byteTicks(0, y.to, 6), x.begin, x.end);
  drawAreas(drawing, stack, x, y);
  drawColumns(drawing, x, timeTicks(x.from, x.to, width / 110), height - 30);
  drawBudget(drawing, report, x, y);
  drawPeak(drawing, memory, x, y);
  const instant = line(0, PHASES, 0, height - 30, {class: "instant"});
  drawing.append(instant);
  place.replaceChildren(drawing);
  return {x, instant};
}

// The categories from the top of the stack down, as the picture's key, with the bytes of an instant.
function categoryKey(stack) {
  const numbers = stack.names.map(() => element("td", {class: "number"}));
  const rows = stack.names.map((name, i) =>
    element("tr", {}, element("th", {scope: "row"}, swatch(stack.classes[i]), name), numbers[i]));
  const key = element("table", {class: "key"},
                      element("caption", {class: "unseen"}, "Bytes of each category at the instant"),
                      element("tbody", {}, rows.reverse()));
  return {key, numbers};
}

function instantWords(report, index) {
  const memory = report.memory;
  const time = memory.times_ms[index];
  const phase = phaseAt(memory, time);
  const peak = index === memory.peak_index ? ", the peak" : "";
  return [`${milliseconds(time)}${phase ? `, ${phase.name}` : ""}${peak}`, bytes(memory.total_bytes[index])];
}

function memoryReader(report, stack) {
  const memory = report.memory;
  const {key, numbers} = categoryKey(stack);
  const when = element("h3", {class: "when"});
  const total = element("p", {class: "total"});
  const list = element("ul", {class: "live"});
  const panel = element("div", {class: "panel"}, when, total, key,
                        element("h3", {}, "Largest live values"), list);
  const show = (index) => {
    const [time, live] = instantWords(report, index);
    when.textContent = `At ${time}`;
    total.textContent = `${live} live`;
    numbers.forEach((cell, i) => {
      cell.textContent = bytes(memory.bytes[i][index]);
      cell.parentNode.classList.toggle("zero", memory.bytes[i][index] === 0);
    });
    const values = liveValues(memory, index).map((value) => valueWords(memory, value));
    list.replaceChildren(...values.map(([name, more]) =>
      element("li", {}, element("strong", {}, name), more)));
    if (values.length === 0) list.append(element("li", {class: "quiet"}, "none that is listed"));
  };
  return {panel, show};
}

function spokenInstant(report, index) {
  const [time, live] = instantWords(report, index);
  const values = liveValues(report.memory, index).slice(0, 3).map((v) => valueWords(report.memory, v).join(""));
  return `${time}: ${live} live. ${values.join(". ")}`;
}

// Of a step of many micro-batches the picture has some.
function shownWords(report) {
  const shown = report.memory?.micro_batches_shown;
  return report.accumulate > shown
    ? ` Of its ${whole(report.accumulate)} micro-batches the first, one in the middle and the last are drawn.` : "";
}

// What of the run's peak the picture of a step does not show.
function besidesWords(report) {
  const memory = report.memory;
  const holes = known(memory.holes_bytes) && memory.holes_bytes > 0
    ? ` Holes between the values add ${bytes(memory.holes_bytes)} to the peak.` : "";
  const elsewhere = report.peak_is_in && report.peak_is_in !== "step"
    ? ` The run's peak, ${bytes(report.foretold_peak_bytes)}, is not in the step but in its ` +
      `${report.peak_is_in}.` : "";
  return holes + elsewhere;
}

function memorySection(report) {
  const memory = report.memory;
  const part = section("memory", "Memory over the step",
    `What is live on the device from the step's begin to its end.${shownWords(report)}` +
    `${besidesWords(report)} Point at an instant, or move with the arrow keys, Home and End.`);
  if (memory.times_ms.length === 0) {
    part.append(element("p", {class: "quiet"}, "The report has no instants."));
    return part;
  }
  const stack = stackOf(report);
  const place = element("div", {class: "plot"});
  const {panel, show} = memoryReader(report, stack);
  part.append(element("div", {class: "beside"}, element("div", {}, place), panel));
  readMemory(report, stack, place, show);
  part.append(...memoryTables(report));
  return part;
}

function readMemory(report, stack, place, show) {
  let drawn = null;
  let read = report.memory.peak_index ?? 0;
  const mark = (index) => {
    read = index;
    show(index);
    if (!drawn) return;
    const at = round(drawn.x(stack.times[index]));
    fill(drawn.instant, {x1: at, x2: at}, []);
  };
  readable(place, {
    count: stack.times.length, label: "Instant of the step", first: read, show: mark,
    at: (px) => lastNotAbove(stack.times, drawn.x.back(px)),
    says: (index) => spokenInstant(report, index),
  });
  drawIn(place, (width) => {
    drawn = drawMemory(place, report, stack, width);
    mark(read);
  });
  drawnParts.memory = () => drawnMemory(place);
}

function drawnMemory(place) {
  const areas = [...place.querySelectorAll(".area")].map((path) => readAreaPath(path.getAttribute("d")));
  areas.reverse();
  return {
    peak_bytes: areas.length ? areas[areas.length - 1].peak : 0,
    peak_ms: areas.length ? areas[areas.length - 1].peakAt : 0,
    byte_ms: areas.map((area, i) => area.area - (i ? areas[i - 1].area : 0)),
    phases: place.querySelectorAll(".strip").length,
  };
}

function memoryTables(report) {
  const memory = report.memory;
  const instants = memory.times_ms.map((_, i) => i);
  return [
    table("Bytes of each category at each instant", ["instant (ms)", ...memory.categories, "total"], instants,
          (i) => [memory.times_ms[i], ...memory.bytes.map((list) => list[i]), memory.total_bytes[i]]),
    table("Largest values", ["value", "layer", "category", "bytes", "from (ms)", "to (ms)", "kept until"],
          memory.values, (v) => [v.name, v.layer, memory.categories[v.category], v.bytes,
                                 memory.times_ms[v.begin], memory.times_ms[v.end], v.until]),
    table("Phases of the step", ["phase", "begin (ms)", "end (ms)"], memory.phases,
          (phase) => [phase.name, phase.begin_ms, phase.end_ms]),
  ];
}
