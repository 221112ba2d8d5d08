"use strict";

// How ranks share the ops of a model: ops down, axes of the mesh across, a box for what each rank of an
// axis has of an op, and beside it what moves along the axis, as arrows: to the right in forward, to the
// left in backward.

const CUTS = {
  whole: ["keep", "all of it on each rank"], rows: ["host", "rows"],
  part: ["chunked", "outputs, heads, channels or vocabulary"], summed: ["recompute", "a summand on each rank"],
};
const OP_HIGH = 24;
const MOVE_HIGH = 18;
const BOXES = 8;

function kindOfCut(cut) {
  return !cut ? "whole" : cut.summed ? "summed" : cut.rows ? "rows" : "part";
}

function movesAlong(op, axis) {
  return op.moves.filter((move) => move.axis === axis);
}

// Where everything is: rows of ops under the names of their parts, and columns of axes.
function shapeOfCuts(cuts, width) {
  const names = Math.min(170, Math.round(width * 0.3));
  const column = (width - names) / cuts.axes.length;
  const boxes = cuts.axes.map(({ranks}) => Math.min(column * 0.45, 42 * Math.min(ranks, BOXES)));
  const shape = {names, column, boxes, rows: [], high: 26, width};
  for (const part of cuts.parts) {
    shape.rows.push({part, y: shape.high});
    shape.high += OP_HIGH;
    for (const op of part.ops) {
      const moves = largest(cuts.axes.map((_, axis) => movesAlong(op, axis).length), 1);
      const high = Math.max(OP_HIGH, moves * MOVE_HIGH + 6);
      shape.rows.push({part, op, y: shape.high, high});
      shape.high += high;
    }
  }
  return shape;
}

function wordsInBox(cut, rank, room) {
  const words = !cut ? "all" : cut.summed ? "+" : cut.rows ? `r${rank}` : whole(cut.each);
  return textWidth(words) < room - 3 ? words : "";
}

function drawBoxes(drawing, axis, cut, x, y, room) {
  const kind = kindOfCut(cut);
  const shown = Math.min(axis.ranks, BOXES);
  const each = Math.min(42, room / shown);
  for (let rank = 0; rank < shown; ++rank) {
    const left = x + rank * each;
    const isRest = rank === shown - 1 && axis.ranks > shown;
    drawing.append(box(left + 1, y + 2, each - 2, OP_HIGH - 4, {class: `cell ${CUTS[kind][0]}`, "data-cut": kind}));
    drawing.append(label(left + each / 2, y + OP_HIGH / 2 + 4, isRest ? "\u2026" : wordsInBox(cut, rank, each),
                         {"text-anchor": "middle", class: `letter ${CUTS[kind][0]}`, "aria-hidden": "true"}));
  }
}

function wordsOfMove(move, room) {
  const costs = `${bytes(move.bytes)}, ${milliseconds(move.ms)}`;
  const all = [`${move.move} of ${move.value}, ${costs}`, `${move.move}, ${costs}`, costs, milliseconds(move.ms)];
  return all.find((words) => textWidth(words) < room) ?? "";
}

function drawMove(drawing, move, x, y, room) {
  const [tail, head] = move.backward ? [x + 20, x] : [x, x + 20];
  const back = move.backward ? 5 : -5;
  drawing.append(shape("path", {
    d: `M${round(tail)} ${round(y)}H${round(head)}m${back} -4L${round(head)} ${round(y)}l${back} 4`,
    class: "arrow sends", "data-pass": move.backward ? "backward" : "forward"}));
  drawing.append(label(x + 26, y + 4, wordsOfMove(move, room - 26), {class: "move-words"}));
}

function drawOp(drawing, cuts, sizes, row) {
  const fits = Math.floor((sizes.names - 10) / 6.5);
  const {name} = row.op;
  const short = name.length > fits ? `${name.slice(0, fits - 1)}\u2026` : name;
  drawing.append(label(10, row.y + OP_HIGH / 2 + 4, short));
  cuts.axes.forEach((axis, a) => {
    const x = sizes.names + a * sizes.column;
    drawBoxes(drawing, axis, row.op.along[a], x, row.y, sizes.boxes[a]);
    const beside = x + sizes.boxes[a] + 10;
    movesAlong(row.op, a).forEach((move, m) =>
      drawMove(drawing, move, beside, row.y + OP_HIGH / 2 + m * MOVE_HIGH, sizes.column - sizes.boxes[a] - 16));
  });
}

function drawCuts(place, cuts, width) {
  const sizes = shapeOfCuts(cuts, width);
  const drawing = picture(width, sizes.high + 4, cutsTitle(cuts));
  cuts.axes.forEach((axis, a) => {
    const words = `along ${axis.name} (${plural(axis.ranks, "rank")})`;
    drawing.append(label(sizes.names + a * sizes.column, 16, words, {class: "part-name"}));
  });
  for (const row of sizes.rows) {
    if (row.op) {
      drawOp(drawing, cuts, sizes, row);
    } else {
      drawing.append(line(0, row.y + 2, width, row.y + 2, {class: "rule"}));
      drawing.append(label(0, row.y + 17, row.part.name, {class: "part-name"}));
    }
  }
  const outline = box(0, 0, sizes.width - 2, OP_HIGH, {class: "outline"});
  drawing.append(outline);
  place.replaceChildren(drawing);
  return {sizes, outline};
}

function opsOfCuts(cuts) {
  return cuts.parts.flatMap((part) => part.ops.map((op) => ({part, op})));
}

function cutsTitle(cuts) {
  const ops = opsOfCuts(cuts);
  const moves = ops.reduce((sum, {op}) => sum + op.moves.length, 0);
  return `How ${plural(ops.length, "op")} are cut along ${plural(cuts.axes.length, "axis", "axes")}, with ` +
    `${plural(moves, "move")}.`;
}

function wordsOfCut(cut) {
  if (!cut) return "whole";
  return `by ${cut.by}, ${whole(cut.each)} a rank${cut.summed ? ", summed over ranks" : ""}`;
}

function wordsOfOp(cuts, {part, op}) {
  const along = cuts.axes.map((axis, a) => `along ${axis.name} ${wordsOfCut(op.along[a])}`).join("; ");
  const moves = op.moves.map((move) => `${move.move} along ${cuts.axes[move.axis].name} in ` +
    `${move.backward ? "backward" : "forward"}, of ${move.value}, ${bytes(move.bytes)}, ${milliseconds(move.ms)}`);
  return `${op.name}, ${part.name}: ${[along, ...moves].join("; ")}`;
}

function readCuts(part, cuts) {
  const place = element("div", {class: "plot"});
  const words = element("p", {class: "reading"});
  part.append(element("div", {}, place), words);
  const ops = opsOfCuts(cuts);
  let drawn = null;
  const rows = () => drawn.sizes.rows.filter(({op}) => op);
  const show = (index) => {
    words.textContent = wordsOfOp(cuts, ops[index]);
    if (!drawn) return;
    const row = rows()[index];
    fill(drawn.outline, {x: 1, y: row.y, height: row.high}, []);
  };
  const again = readable(place, {
    count: ops.length, label: "Op", down: 1, show, says: (index) => wordsOfOp(cuts, ops[index]),
    at: (_, y) => lastNotAbove(rows().map((row) => row.y), y),
  });
  drawIn(place, (width) => {
    drawn = drawCuts(place, cuts, width);
    again();
  });
  const count = (selector, key) => {
    const counts = {};
    for (const {dataset} of place.querySelectorAll(selector)) counts[dataset[key]] = (counts[dataset[key]] ?? 0) + 1;
    return counts;
  };
  drawnParts.cuts = () => ({boxes: count("[data-cut]", "cut"), moves: count("[data-pass]", "pass")});
}

function cutsSection(cuts) {
  const part = section("cuts", "How ranks share the ops",
    "A box for what each rank along an axis has of an op. Arrows are what moves between ranks: to the right in " +
    "forward, to the left in backward, with what a rank sends and how long the link takes. Gradients of parameters " +
    "that ranks share are summed beside backward, which is not drawn.");
  part.append(legend(Object.entries(CUTS).map(([, [look, words]]) => [swatch(`cell ${look}`), words])));
  readCuts(part, cuts);
  const ops = opsOfCuts(cuts);
  const moves = ops.flatMap(({part: of, op}) => op.moves.map((move) => ({of, op, move})));
  part.append(
    table("Ops", ["where", "op", ...cuts.axes.map(({name}) => `along ${name}`), "parameters"], ops,
          ({part: of, op}) => [of.name, op.name, ...cuts.axes.map((_, a) => wordsOfCut(op.along[a])),
                               op.parameters.map(({name, stored}) => `${name}: ${stored.join(", ")}`).join("; ")]),
    table("Moves", ["where", "op", "move", "along", "pass", "of", "bytes", "time (ms)"], moves,
          ({of, op, move}) => [of.name, op.name, move.move, cuts.axes[move.axis].name,
                               move.backward ? "backward" : "forward", move.value, move.bytes, move.ms]));
  return part;
}
