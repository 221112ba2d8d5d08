"use strict";

// What a run measured beside what was foretold.

function runSection(run) {
  const before = run.plan_since_step > 0 ? `; the first ${plural(run.plan_since_step, "step")} had another plan` : "";
  const part = section("run", "Foretold and measured",
    `After step ${whole(run.step)} of ${whole(run.steps)}${before}. The measured time of a step is the ` +
    "median of those with this plan.");
  const both = element("div", {class: "pair"});
  part.append(both);
  const peaks = bars(both, {heading: "Peak memory", write: bytes, rows: [
    {name: "foretold", look: "foretold", amount: run.foretold_peak_bytes},
    {name: "measured", look: "measured", amount: run.measured_peak_bytes}]});
  const times = bars(both, {heading: "Time of a step", write: milliseconds, rows: [
    {name: "foretold", look: "foretold", amount: run.foretold_step_ms},
    {name: "foretold, corrected by the first steps", look: "foretold", amount: run.corrected_step_ms},
    {name: "measured", look: "measured", amount: run.measured_step_ms}]});
  drawnParts.run = () => ({peaks: peaks(), times: times()});
  part.append(
    table("Foretold and measured", ["", "foretold", "corrected", "measured"],
      [["peak (bytes)", run.foretold_peak_bytes, null, run.measured_peak_bytes],
       ["step (ms)", run.foretold_step_ms, run.corrected_step_ms, run.measured_step_ms]], (row) => row));
  return part;
}

// What a person looks for first.
function lossesSection(run) {
  const part = section("losses", "Losses and speed", READ_CURVES);
  drawnParts.losses = curvesOfRuns(part, [{name: "this run", log: run.log}]);
  part.append(logTable("Steps", run.log));
  return part;
}
