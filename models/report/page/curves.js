"use strict";

// Numbers over the steps of one or several runs, as lines that differ in colour and in dashes.

const LOOKS = 8;
const MAX_DOTS = 60;
const READ_CURVES =
  "Point at a step, or move with the arrow keys, Home and End. Training is a line, validation has dots.";

// Another colour for each of eight, then the same colours with other dashes.
// series: [{name, look, points: [[step, number]], dots}]
function seriesLook(index) {
  const round = Math.floor(index / LOOKS) % LOOKS;
  return `series${index % LOOKS}${round ? ` dashes${(index + round) % LOOKS}` : ""}`;
}

function lineSwatch(series) {
  const drawing = shape("svg", {viewBox: "0 0 26 12", width: 26, height: 12, "aria-hidden": "true"});
  drawing.append(line(1, 6, 25, 6, {class: `curve ${series.look}`}));
  if (series.dots) drawing.append(shape("circle", {cx: 13, cy: 6, r: 3, class: `dot ${series.look}`}));
  return drawing;
}

// A line through all points; of many, dots mark some.
function drawCurve(drawing, series, x, y) {
  const d = series.points.map(([step, n], i) => `${i ? "L" : "M"}${round(x(step))} ${round(y(n))}`).join("");
  drawing.append(shape("path", {d, class: `curve ${series.look}`, "data-series": series.name}));
  if (!series.dots && series.points.length > 1) return;
  const every = Math.ceil(series.points.length / MAX_DOTS);
  series.points.filter((_, i) => i % every === 0).forEach(([step, n]) => {
    drawing.append(shape("circle", {cx: round(x(step)), cy: round(y(n)), r: 3, class: `dot ${series.look}`}));
  });
}

// Losses that fall to a part of the first are told apart at the end, too, on a logarithmic scale.
function suitsLogarithms(heights) {
  const least = smallest(heights);
  return least > 0 && largest(heights) > 3 * least;
}

function heightScale(chart, heights, begin, end) {
  if (chart.logarithmic) {
    const [least, most] = [smallest(heights), largest(heights)];
    const room = (most / least) ** 0.06;
    return logarithmicScale(least / room, most * room, begin, end);
  }
  const [low, high] = padded(heights, 0.06);
  return scale(chart.fromZero ? 0 : low, high, begin, end);
}

function drawCurves(place, chart, width) {
  const height = Math.round(Math.min(340, Math.max(230, width * 0.42)));
  const points = chart.series.flatMap((series) => series.points);
  const steps = points.map(([step]) => step);
  const heights = points.map(([, n]) => n);
  const x = scale(smallest(steps), largest(steps), width < 500 ? 52 : 60, width - 12);
  const y = heightScale(chart, heights, height - 46, 10);
  const drawing = picture(width, height, chart.title);
  drawRows(drawing, y, chart.logarithmic ? logarithmicTicks(y.from, y.to) : chart.ticks(y.from, y.to, chart.rows ?? 5),
           x.begin, x.end);
  drawColumns(drawing, x, stepTicks(x.from, x.to, width / 90), height - 46, "step");
  for (const series of chart.series) drawCurve(drawing, series, x, y);
  const instant = line(0, 6, 0, height - 46, {class: "instant"});
  drawing.append(instant);
  place.replaceChildren(drawing);
  return {x, y, instant};
}

function curveWords(chart, step) {
  const parts = chart.series.map((series) => {
    const at = lastNotAbove(series.steps, step);
    const exactly = series.steps[at] === step;
    return exactly ? `${series.name} ${chart.write(series.points[at][1])}` : null;
  });
  return `Step ${whole(step)}: ${parts.filter(Boolean).join(", ")}`;
}

// Returns a function that tells what is drawn, from its coordinates; null where there is nothing.
function curves(part, chart) {
  chart.series = chart.series.filter((series) => series.points.length > 0);
  if (chart.series.length === 0) return null;
  for (const series of chart.series) series.steps = series.points.map(([step]) => step);
  const steps = [...new Set(chart.series.flatMap((series) => series.steps))].sort((a, b) => a - b);
  const place = element("div", {class: "plot"});
  const words = element("p", {class: "reading"});
  if (chart.mayBeLogarithmic) {
    chart.logarithmic = suitsLogarithms(chart.series.flatMap((series) => series.points.map(([, n]) => n)));
  }
  const heading = chart.logarithmic ? `${chart.heading}, logarithmic` : chart.heading;
  const figure = element("div", {class: "curves"}, element("h3", {}, heading),
    legend(chart.series.map((series) => [lineSwatch(series), series.name])), element("div", {}, place), words);
  part.append(figure);
  let drawn = null;
  const show = (index) => {
    words.textContent = curveWords(chart, steps[index]);
    if (drawn) fill(drawn.instant, {x1: round(drawn.x(steps[index])), x2: round(drawn.x(steps[index]))}, []);
  };
  const again = readable(place, {
    count: steps.length, first: steps.length - 1, label: `${chart.heading}: step`, show,
    at: (px) => nearest(steps, drawn.x.back(px)), says: (index) => curveWords(chart, steps[index]),
  });
  drawIn(place, (width) => {
    drawn = drawCurves(place, chart, width);
    again();
  });
  return () => drawnCurves(place, drawn);
}

function nearest(list, n) {
  const at = lastNotAbove(list, n);
  return at + 1 < list.length && list[at + 1] - n < n - list[at] ? at + 1 : at;
}

function drawnCurves(place, drawn) {
  return [...place.querySelectorAll("svg > path.curve")].map((path) => {
    const points = path.getAttribute("d").split(/[ML]/).slice(1).map((pair) => pair.split(" ").map(Number));
    const [x, y] = points[points.length - 1];
    return {name: path.dataset.series, points: points.length,
            last: [drawn.x.back(x), drawn.y.back(y)]};
  });
}

function pointsOf(log, member) {
  return log.filter((entry) => known(entry.step) && known(entry[member]))
    .map((entry) => [entry.step, entry[member]]).sort((a, b) => a[0] - b[0]);
}

// Loss and speed of runs: [{name, log}].
function curvesOfRuns(part, runs) {
  const named = (run, what) => (runs.length > 1 ? `${run.name}, ${what}` : what);
  const losses = runs.flatMap((run, i) => [
    {name: named(run, "training"), look: seriesLook(i), points: pointsOf(run.log, "loss")},
    {name: named(run, "validation"), look: `${seriesLook(i)} validation`, dots: true,
     points: pointsOf(run.log, "val_loss")},
  ]);
  const speeds = (member) => runs.map((run, i) =>
    ({name: runs.length > 1 ? run.name : "this run", look: seriesLook(i), points: pointsOf(run.log, member)}));
  const both = element("div", {class: "pair"});
  const charts = {
    loss: {heading: "Loss (nats per token)", title: "Loss over the steps.", series: losses, rows: 7, mayBeLogarithmic: true,
           ticks: plainTicks, write: exact},
    tokens_per_s: {heading: "Tokens per second", title: "Tokens per second over the steps.", fromZero: true,
                   series: speeds("tokens_per_s"), ticks: plainTicks, write: whole},
    ms: {heading: "Time of a step", title: "Time of a step over the steps.", fromZero: true, series: speeds("ms"),
         ticks: timeTicks, write: milliseconds},
  };
  const drawn = Object.entries(charts).map(([name, chart]) =>
    [name, curves(name === "loss" ? part : both, chart)]);
  part.append(both);
  return () => Object.fromEntries(drawn.filter(([, read]) => read).map(([name, read]) => [name, read()]));
}

function median(list) {
  const sorted = list.filter(known).sort((a, b) => a - b);
  const half = sorted.length >> 1;
  if (sorted.length === 0) return null;
  return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

// To four digits that count.
function shortened(n) {
  return n === null ? null : Number(n.toPrecision(4));
}

// Of a run, with its name: how far it is, its losses, and its speed, which is that of the median step.
function summaryOf({name, log}) {
  const [losses, evaluations] = [pointsOf(log, "loss"), pointsOf(log, "val_loss")];
  const best = evaluations.reduce((least, at) => (least === null || at[1] < least[1] ? at : least), null);
  const last = (points) => points[points.length - 1]?.[1] ?? null;
  const speed = (member) => shortened(median(log.map((entry) => entry[member])));
  return [name, largest(log.map((entry) => entry.step), 0), last(losses), last(evaluations), best?.[1] ?? null,
          best?.[0] ?? null, speed("ms"), speed("tokens_per_s"), last(pointsOf(log, "tokens"))];
}

function tableOfRuns(runs) {
  const columns = ["run", "steps", "last loss", "last validation loss", "best validation loss", "after step",
                   "ms a step", "tokens per second", "tokens"];
  return openTable("Runs", columns, runs, summaryOf);
}

function logTable(title, log) {
  return table(title, ["step", "loss", "validation loss", "step (ms)", "tokens per second", "tokens"], log,
               (entry) => [entry.step, entry.loss, entry.val_loss, entry.ms, entry.tokens_per_s, entry.tokens]);
}
