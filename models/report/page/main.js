"use strict";

// Draws the page of whichever report it holds.

function drawPlan(page, report) {
  page.append(header(planTitle(report), about(report)));
  if (report.error !== undefined) {
    page.append(refusal(report));
    return;
  }
  page.append(planTiles(report));
  if (report.memory) page.append(memorySection(report));
  const pair = element("div", {class: "columns"});
  if (known(report.foretold_peak_bytes)) pair.append(frontierSection(report));
  if (report.explanation?.length) pair.append(wordsSection(report));
  page.append(pair);
  if (report.grid) page.append(gridSection(report.grid));
  if (report.lanes && report.memory) page.append(lanesSection(report));
  if (report.run) page.append(runSection(report.run));
  page.append(numbersSection(report));
}

function drawPlot(page, report) {
  const runs = report.runs ?? [];
  page.append(header(runs.length === 1 ? `Run ${runs[0].name}` : `${whole(runs.length)} runs`,
                     plural(runs.reduce((sum, run) => sum + run.log.length, 0), "entry", "entries")));
  const part = section("runs", "Losses and speed",
    "Point at a step, or move with the arrow keys, Home and End. Training is a line, validation has dots.");
  drawnParts.runs = curvesOfRuns(part, runs);
  part.append(...runs.map((run) => logTable(`Steps of ${run.name}`, run.log)));
  page.append(part);
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
