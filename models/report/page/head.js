"use strict";

// The head of a page: what it is about and its most important numbers, and the plan in words.

function header(title, about) {
  document.title = title;
  return element("header", {}, element("p", {class: "brand"}, "Spool"), element("h1", {}, title),
                 about ? element("p", {class: "about"}, about) : null);
}

// tiles: [[name, number, words beneath]]
function tiles(list) {
  const all = element("dl", {class: "tiles"});
  for (const [name, number, beneath] of list.filter(Boolean)) {
    all.append(element("div", {}, element("dt", {}, name), element("dd", {}, number),
                       beneath ? element("dd", {class: "beneath"}, beneath) : null));
  }
  return all;
}

function about(report) {
  const batch = known(report.batch) && known(report.seq)
    ? `${plural(report.batch, "sequence")} of ${whole(report.seq)} tokens` : null;
  const passes = report.accumulate > 1 ? `${whole(report.accumulate)} times a step` : null;
  return [
    known(report.parameters) ? `${whole(report.parameters)} parameters` : null, report.dtype,
    [batch, passes].filter(Boolean).join(", "), report.machine ? `on ${report.machine}` : null,
  ].filter(Boolean).join(" \u00b7 ");
}

function planTitle(report) {
  const run = report.run ? "Run of" : "Plan for";
  return report.model ? `${run} ${report.model}` : "A training plan";
}

function gapWords(gap) {
  if (!known(gap)) return "no lower bound is known";
  return gap < 5e-5 ? "no plan is faster" : `at most ${percent(gap)} above the best possible`;
}

// "27.2 % less memory"
function compared(n, other, less, more) {
  if (!known(n) || !known(other) || other === 0) return NONE;
  const share = n / other - 1;
  if (Math.abs(share) < 5e-5) return `not ${more}`;
  return `${percent(Math.abs(share))} ${share < 0 ? less : more}`;
}

// What bounds the plan: "budget", or what the device has free if none was set.
function limitName(report) {
  return report.budget_is === "free memory" ? "free memory" : "budget";
}

// Its bytes; null if nothing does.
function limitBytes(report) {
  const limit = report.budget_is === "none" ? null : report.budget_bytes;
  return known(limit) && limit > 0 ? limit : null;
}

function besideKeepAll(report) {
  return ["Beside keeping everything",
          compared(report.foretold_peak_bytes, report.keep_all_peak_bytes, "less memory", "more memory"),
          compared(report.foretold_step_ms, report.keep_all_step_ms, "faster", "slower")];
}

function planTiles(report) {
  const run = report.run;
  const peak = report.foretold_peak_bytes;
  const limit = limitBytes(report);
  return tiles([
    [limitName(report) === "budget" ? "Budget" : "Free memory", limit ? bytes(limit) : "none"],
    ["Peak, foretold", bytes(peak),
     limit ? `${percent(peak / limit)} of the ${limitName(report)}` : null],
    run ? ["Peak, measured", bytes(run.measured_peak_bytes),
           besideForetold(run.measured_peak_bytes, run.foretold_peak_bytes)] : null,
    ["Step, foretold", milliseconds(report.foretold_step_ms), known(report.rehearsals) ? gapWords(report.gap) : null],
    run ? ["Step, measured", milliseconds(run.measured_step_ms),
           besideForetold(run.measured_step_ms, run.foretold_step_ms)] : null,
    known(report.keep_all_peak_bytes) ? besideKeepAll(report) : null,
  ]);
}

function wordsSection(report) {
  const part = section("words", "The plan in words");
  const list = element("ul", {class: "words"});
  for (const sentence of report.explanation) list.append(element("li", {}, sentence));
  part.append(list);
  return part;
}

function numbersSection(report) {
  const part = section("numbers", "Further numbers", "The object of this page holds all of them as JSON.");
  const single = Object.entries(report).filter(([, value]) => value === null || typeof value !== "object");
  part.append(table("Of the plan", ["member", "value"], single, (row) => row));
  if (report.peak_bytes_by_purpose) {
    part.append(table("Bytes at the peak by purpose", ["purpose", "bytes"],
                      Object.entries(report.peak_bytes_by_purpose), (row) => row));
  }
  const onHost = Object.entries(report.host_bytes_by_purpose ?? {});
  if (onHost.length > 0) part.append(table("Bytes on the host by purpose", ["purpose", "bytes"], onHost, (row) => row));
  if (report.homes) {
    part.append(table("Parameters and gradients on the host", ["member", "value"], Object.entries(report.homes), (row) => row));
  }
  if (report.layers) {
    const ranges = (list) => list.map(([first, last]) => (first === last ? first : `${first}${NONE}${last}`));
    part.append(table("Treatment of layers", ["layers", "treatment"], report.layers,
                      (group) => [ranges(group.ranges).join(", "), group.treatment]));
  }
  return part;
}

// What a page says if no plan fits.
function refusal(report) {
  const part = element("section", {class: "refusal", role: "alert"},
                       element("h2", {}, "This run does not fit"), element("p", {}, report.error));
  const limit = limitBytes(report);
  drawnParts.refusal = bars(part, {heading: "Memory", write: bytes, rows: [
    ...(limit ? [{name: limitName(report), look: "measured", amount: limit}] : []),
    {name: "smallest plan", look: "foretold", amount: report.minimum_budget_bytes}]});
  if (report.binding_op) {
    part.append(element("p", {}, "What needs the most at the smallest plan: ", element("strong", {}, report.binding_op)));
  }
  return part;
}
