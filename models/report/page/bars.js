"use strict";

// A few amounts beneath each other, as bars from zero.

const BAR = 44;

// rows: [{name, look, amount}], of which those that are not known are left out.
function drawBars(place, chart, width) {
  const rows = chart.rows;
  const x = scale(0, largest(rows.map((row) => row.amount), 0) || 1, 0, width - 4);
  const words = rows.map((row) => `${row.name} ${chart.write(row.amount)}`).join(", ");
  const drawing = picture(width, rows.length * BAR, `${chart.heading}: ${words}.`);
  rows.forEach((row, i) => {
    const top = i * BAR;
    drawing.append(label(0, top + 14, row.name, {class: "bar-name"}));
    drawing.append(label(width - 4, top + 14, chart.write(row.amount), {"text-anchor": "end", class: "bar-amount"}));
    drawing.append(box(0, top + 20, x.end, 12, {class: "bar-room", rx: 3}));
    drawing.append(box(0, top + 20, Math.max(1, x(row.amount)), 12, {class: `bar ${row.look}`, rx: 3,
                                                                 "data-bar": row.name}));
  });
  place.replaceChildren(drawing);
  return x;
}

function bars(part, chart) {
  chart.rows = chart.rows.filter((row) => known(row.amount));
  if (chart.rows.length === 0) return () => ({});
  const place = element("div", {class: "plot"});
  part.append(element("div", {class: "bars"}, element("h3", {}, chart.heading), place));
  let x = null;
  drawIn(place, (width) => { x = drawBars(place, chart, width); });
  return () => Object.fromEntries([...place.querySelectorAll(".bar")].map((bar) =>
    [bar.dataset.bar, x.back(Number(bar.getAttribute("width")))]));
}
