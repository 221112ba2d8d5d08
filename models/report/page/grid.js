"use strict";

// What becomes of each value of each layer, as a grid: a colour and a letter for each decision.  A row
// of layers that is too long for its place is continued below.

const DECISIONS = {
  keep: ["K", "kept"], recompute: ["R", "recomputed"], host: ["H", "in host memory"],
  disk: ["D", "on disk"], chunked: ["C", "computed in chunks"],
};

function shapeOfGrid(grid, width) {
  const names = Math.min(170, 14 + largest(grid.rows.map(textWidth), 60), Math.round(width * 0.4));
  const room = width - names - 2;
  const across = Math.max(1, Math.min(grid.layers, Math.floor(room / 15)));
  const strips = Math.ceil(grid.layers / across);
  const columns = Math.ceil(grid.layers / strips);
  const cell = Math.min(30, room / columns);
  const high = Math.min(24, Math.max(18, cell));
  return {names, columns, strips, cell, high, strip: high * grid.rows.length + 30};
}

function placeInGrid(sizes, row, layer) {
  const strip = Math.floor(layer / sizes.columns);
  return {
    x: sizes.names + (layer % sizes.columns) * sizes.cell,
    y: strip * sizes.strip + 20 + row * sizes.high,
  };
}

function drawGridNames(drawing, grid, sizes) {
  const group = shape("g", {class: "axis"});
  const every = Math.max(1, Math.ceil(24 / sizes.cell));
  const fits = Math.floor((sizes.names - 10) / 6.5);
  for (let strip = 0; strip < sizes.strips; ++strip) {
    grid.rows.forEach((name, row) => {
      const {y} = placeInGrid(sizes, row, strip * sizes.columns);
      const short = name.length > fits ? `${name.slice(0, fits - 1)}\u2026` : name;
      group.append(label(sizes.names - 8, y + sizes.high / 2 + 4, short, {"text-anchor": "end"}));
    });
    const last = Math.min(grid.layers, (strip + 1) * sizes.columns);
    for (let layer = strip * sizes.columns; layer < last; layer += every) {
      const {x, y} = placeInGrid(sizes, 0, layer);
      group.append(label(x + sizes.cell / 2, y - 6, String(layer), {"text-anchor": "middle"}));
    }
  }
  drawing.append(group);
}

// One path and one text for each decision, so that a large grid is a handful of elements.
function drawDecision(drawing, grid, sizes, decision) {
  const [letter] = DECISIONS[decision];
  const boxes = [];
  const xs = [];
  const ys = [];
  grid.cells.forEach((cells, row) => cells.forEach((cell, layer) => {
    if (cell !== decision) return;
    const {x, y} = placeInGrid(sizes, row, layer);
    boxes.push(`M${round(x + 1)} ${round(y + 1)}h${round(sizes.cell - 2)}v${sizes.high - 2}h${-round(sizes.cell - 2)}z`);
    xs.push(round(x + sizes.cell / 2));
    ys.push(round(y + sizes.high / 2 + 4));
  }));
  if (boxes.length === 0) return;
  drawing.append(shape("path", {d: boxes.join(""), class: `cell ${decision}`, "data-decision": decision}));
  const letters = shape("text", {x: xs.join(" "), y: ys.join(" "), class: `letter ${decision}`,
                                 "text-anchor": "middle", "aria-hidden": "true"});
  letters.append(letter.repeat(xs.length));
  drawing.append(letters);
}

function drawGrid(place, grid, width) {
  const sizes = shapeOfGrid(grid, width);
  const height = sizes.strips * sizes.strip - 6;
  const drawing = picture(Math.min(width, sizes.names + sizes.columns * sizes.cell + 2), height, gridTitle(grid));
  drawGridNames(drawing, grid, sizes);
  for (const decision of Object.keys(DECISIONS)) drawDecision(drawing, grid, sizes, decision);
  const outline = box(0, 0, sizes.cell, sizes.high, {class: "outline"});
  drawing.append(outline);
  place.replaceChildren(drawing);
  return {sizes, outline};
}

function countsOf(grid) {
  const counts = new Map(Object.keys(DECISIONS).map((decision) => [decision, 0]));
  for (const cell of grid.cells.flat()) if (counts.has(cell)) counts.set(cell, counts.get(cell) + 1);
  return [...counts].filter(([, count]) => count > 0);
}

function gridTitle(grid) {
  const words = countsOf(grid).map(([decision, count]) => `${whole(count)} ${DECISIONS[decision][1]}`);
  return `Decisions for ${plural(grid.rows.length, "value")} of ${plural(grid.layers, "layer")}: ${words.join(", ")}.`;
}

function cellWords(grid, index) {
  const row = Math.floor(index / grid.layers);
  const layer = index % grid.layers;
  const decision = DECISIONS[grid.cells[row]?.[layer]];
  return `${grid.rows[row]} of layer ${layer}: ${decision ? decision[1] : "not saved"}`;
}

function layerAt(grid, sizes, x, y) {
  const strip = Math.min(sizes.strips - 1, Math.max(0, Math.floor(y / sizes.strip)));
  const row = Math.floor((y - strip * sizes.strip - 20) / sizes.high);
  const column = Math.floor((x - sizes.names) / sizes.cell);
  const layer = strip * sizes.columns + Math.min(sizes.columns - 1, Math.max(0, column));
  const clamped = Math.min(grid.rows.length - 1, Math.max(0, row));
  return clamped * grid.layers + Math.min(grid.layers - 1, layer);
}

function readGrid(part, grid) {
  const place = element("div", {class: "plot"});
  const words = element("p", {class: "reading"});
  part.append(element("div", {}, place), words);
  let drawn = null;
  const show = (index) => {
    words.textContent = cellWords(grid, index);
    if (!drawn) return;
    fill(drawn.outline, placeInGrid(drawn.sizes, Math.floor(index / grid.layers), index % grid.layers), []);
  };
  const again = readable(place, {
    count: grid.rows.length * grid.layers, label: "Decision", down: grid.layers, show,
    at: (x, y) => layerAt(grid, drawn.sizes, x, y), says: (index) => cellWords(grid, index),
  });
  drawIn(place, (width) => {
    drawn = drawGrid(place, grid, width);
    again();
  });
  drawnParts.grid = () => Object.fromEntries([...place.querySelectorAll(".cell")].map((path) =>
    [path.dataset.decision, path.getAttribute("d").split("M").length - 1]));
}

function gridSection(grid) {
  const part = section("grid", "What becomes of each value",
    "A row for each value that backward reads again, a column for each layer.");
  if (grid.rows.length === 0 || grid.layers === 0) {
    part.append(element("p", {class: "quiet"}, "No value is saved for backward."));
    return part;
  }
  part.append(legend(countsOf(grid).map(([decision, count]) =>
    [element("span", {class: `swatch cell ${decision}`, "aria-hidden": "true"}, DECISIONS[decision][0]),
     `${DECISIONS[decision][1]} (${whole(count)})`])));
  readGrid(part, grid);
  const layers = Array.from({length: grid.layers}, (_, layer) => `layer ${layer}`);
  part.append(table("Decisions", ["value", ...layers], grid.rows,
                    (name, row) => [name, ...layers.map((_, layer) => grid.cells[row]?.[layer] || "not saved")]));
  return part;
}
