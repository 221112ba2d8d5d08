"use strict";

// The frontier: what each budget costs in time, and where this plan and simple ones are.

function inWords(name, peak, time) {
  return `${name}: ${bytes(peak)}, ${milliseconds(time)}`;
}

function frontierGroups(report) {
  const frontier = (report.frontier ?? []).map((point) => ({
    x: point.foretold_peak_bytes, y: point.foretold_step_ms,
    words: inWords(`best for ${bytes(point.budget_bytes)}`, point.foretold_peak_bytes, point.foretold_step_ms),
  }));
  const policies = (report.policies ?? []).map((policy) => ({
    x: policy.peak_bytes, y: policy.step_ms, name: policy.name,
    words: inWords(policy.name, policy.peak_bytes, policy.step_ms),
  }));
  const keeps = ({name}) => name === "keep all";
  const peak = report.foretold_peak_bytes;
  const time = report.foretold_step_ms;
  const own = [{x: peak, y: time, name: "this plan", words: inWords("this plan", peak, time)}];
  return [
    {name: "the best plan for each budget", look: "best", mark: "circle", size: 3, joined: true, points: frontier},
    {name: "one choice for all layers", look: "simple", mark: "square",
     points: policies.filter((policy) => !keeps(policy))},
    {name: "keeping everything", look: "keeps", mark: "triangle", size: 6, points: policies.filter(keeps)},
    {name: "this plan", look: "own", mark: "diamond", size: 6, points: own},
  ];
}

function frontierSection(report) {
  const part = section("frontier", "Memory against time",
    "What a step takes within each budget. Left and down is better.");
  const chart = {
    title: `Peak memory against step time. This plan: ${bytes(report.foretold_peak_bytes)}, ` +
      `${milliseconds(report.foretold_step_ms)}.`,
    xTitle: "peak memory", boundName: "faster than possible, by the lower bound",
    groups: frontierGroups(report),
    bound: (report.frontier ?? []).map((point) => ({x: point.budget_bytes, y: point.lower_bound_ms})),
  };
  drawnParts.frontier = scatter(part, chart);
  part.append(
    table("Frontier", ["budget (bytes)", "peak (bytes)", "step (ms)", "lower bound (ms)", "above the bound"],
          report.frontier ?? [], (p) => [p.budget_bytes, p.foretold_peak_bytes, p.foretold_step_ms,
                                         p.lower_bound_ms, percent(p.gap)]),
    table("Simple plans", ["plan", "peak (bytes)", "step (ms)"], report.policies ?? [],
          (p) => [p.name, p.peak_bytes, p.step_ms]));
  return part;
}
