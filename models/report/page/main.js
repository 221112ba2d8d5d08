"use strict";

// Draws the page of whichever report it holds.

// A part of the page; one that the report's data stop from being drawn says so, and the others stand.
function add(page, make) {
  try {
    page.append(make());
  } catch (error) {
    noteError(String(error));
    page.append(element("section", {class: "refusal", role: "alert"}, element("p", {},
      "A part of this page cannot be drawn: the report in it is damaged or of another version.")));
  }
}

function drawPlan(page, report) {
  page.append(header(planTitle(report), about(report)));
  if (report.run?.log?.length) add(page, () => lossesSection(report.run));
  if (report.error !== undefined) {
    add(page, () => refusal(report));
  } else {
    drawFittingPlan(page, report);
  }
  if (report.run) add(page, () => runSection(report.run));
  if (report.error === undefined) add(page, () => numbersSection(report));
}

function drawFittingPlan(page, report) {
  add(page, () => planTiles(report));
  if (report.memory) add(page, () => memorySection(report));
  const pair = element("div", {class: "columns"});
  if (known(report.foretold_peak_bytes)) add(pair, () => frontierSection(report));
  if (report.explanation?.length) add(pair, () => wordsSection(report));
  page.append(pair);
  if (report.cuts) add(page, () => cutsSection(report.cuts));
  if (report.sharding) add(page, () => candidatesSection(report));
  if (report.meshes) add(page, () => meshesSection(report));
  if (report.grid) add(page, () => gridSection(report.grid));
  if (report.lanes && report.memory) add(page, () => lanesSection(report));
}

function drawPlot(page, report) {
  const runs = report.runs ?? [];
  page.append(header(runs.length === 1 ? `Run ${runs[0].name}` : `${whole(runs.length)} runs`,
                     plural(runs.reduce((sum, run) => sum + run.log.length, 0), "entry", "entries")));
  add(page, () => {
    const part = section("summary", "Runs");
    part.append(tableOfRuns(runs));
    return part;
  });
  add(page, () => {
    const part = section("runs", "Losses and speed", READ_CURVES);
    drawnParts.runs = curvesOfRuns(part, runs);
    part.append(...runs.map((run) => logTable(`Steps of ${run.name}`, run.log)));
    return part;
  });
}

const drawings = {
  "spool-plan-report": drawPlan, "spool-sweep-report": drawSweep, "spool-plot": drawPlot,
};

// What is drawn, read from the coordinates of the drawing.
function noteDrawn(began) {
  for (const redraw of redraws) redraw();
  document.body.getBoundingClientRect();
  const took = performance.now() - began;
  const drawn = Object.entries(drawnParts).map(([name, read]) => [name, read()]);
  root.dataset.spoolDrawn = JSON.stringify({...Object.fromEntries(drawn), ms: took});
}

function main() {
  const began = performance.now();
  const report = JSON.parse(document.getElementById("spool-report").textContent);
  const page = document.getElementById("page");
  const draw = drawings[report.format];
  if (draw) {
    draw(page, report);
  } else {
    page.append(header("A report"), element("p", {}, "This page does not know the format of its report."));
  }
  noteDrawn(began);
}

main();
