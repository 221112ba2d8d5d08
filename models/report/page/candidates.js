"use strict";

// The ways to cut the ops that were judged, and the arrangements of the ranks, by bytes and time.

const BY_HAND = ["none", "rows", "megatron", "megatron-rows"];

function candidateGroups(candidates, chosen) {
  const points = candidates.map((c) => ({
    x: c.foretold_peak_bytes, y: c.foretold_step_ms, name: c.name, of: c,
    words: `${inWords(c.name, c.foretold_peak_bytes, c.foretold_step_ms)}` +
      `${c.planned ? (c.feasible ? "" : ", which does not fit") : ", keeping everything"}`,
  }));
  const isChosen = ({of}) => of.name === chosen;
  const isByHand = ({of}) => BY_HAND.includes(of.name);
  return [
    {name: "found", look: "best", mark: "circle", points: points.filter((p) => !isChosen(p) && !isByHand(p))},
    {name: "a policy by hand", look: "simple", mark: "square",
     points: points.filter((p) => !isChosen(p) && isByHand(p))},
    {name: "chosen", look: "own", mark: "diamond", size: 6, points: points.filter(isChosen)},
  ];
}

function candidatesSection(report) {
  const {candidates, chosen, refused} = report.sharding;
  const part = section("candidates", "Ways to cut the ops",
    "Those that were judged: what a step takes on each rank, within the budget where it was planned, else keeping " +
    "everything. Left and down is better.");
  const chart = {
    title: `${plural(candidates.length, "way")} to cut the ops; chosen: ${chosen}.`, xTitle: "peak memory of a rank",
    logarithmic: true, groups: candidateGroups(candidates, chosen),
  };
  drawnParts.candidates = scatter(part, chart);
  part.append(table("Ways to cut the ops", ["name", "peak (bytes)", "step (ms)", "planned", "fits"], candidates,
    (c) => [c.name, c.foretold_peak_bytes, c.foretold_step_ms, c.planned ? "yes" : "no",
            c.feasible === null ? NONE : c.feasible ? "yes" : "no"]));
  if (refused.length > 0) {
    part.append(table("Ways that cannot be", ["name", "why"], refused, ({name, why}) => [name, why]));
  }
  return part;
}

// Of ranks, in each of which the best way to cut the ops was chosen.
function meshesSection(report) {
  const {meshes} = report;
  const part = section("meshes", "Arrangements of the ranks",
    "The best way to cut the ops in each. Left and down is better.");
  const points = (isWanted) => meshes.filter(isWanted).map((m) => ({
    x: m.foretold_peak_bytes, y: m.foretold_step_ms, name: m.mesh,
    words: inWords(m.mesh, m.foretold_peak_bytes, m.foretold_step_ms) + (m.feasible ? "" : ", which does not fit"),
  }));
  const chart = {
    title: `${plural(meshes.length, "arrangement")} of the ranks.`, xTitle: "peak memory of a rank",
    groups: [{name: "others", look: "simple", mark: "square", points: points((m) => !m.chosen)},
             {name: "chosen", look: "own", mark: "diamond", size: 6, points: points((m) => m.chosen)}],
  };
  drawnParts.meshes = scatter(part, chart);
  part.append(table("Arrangements", ["mesh", "peak (bytes)", "step (ms)", "why not"], meshes,
                    (m) => [m.mesh, m.foretold_peak_bytes, m.foretold_step_ms,
                            m.why ?? (m.feasible ? NONE : "does not fit")]));
  return part;
}
