"use strict";

// The numbers of a picture as a table, which is filled when it is opened; short ones are opened to be
// printed.
//
//   table("Phases of the step", ["phase", "begin (ms)"], rows, (row) => [row.name, row.begin_ms])
//
// Numbers are written to six decimals.

const PRINTED_ROWS = 60;
const tables = [];

function cellOf(value, tag, attributes) {
  const isNumber = typeof value === "number";
  const text = isNumber ? exact(value) : value === null || value === undefined ? NONE : String(value);
  return element(tag, isNumber ? {...attributes, class: "number"} : attributes, text);
}

function fillTable(place, title, columns, rows, cells) {
  const head = element("tr", {}, columns.map((name) => element("th", {scope: "col"}, name)));
  const body = element("tbody");
  rows.forEach((row, index) => {
    const [first, ...others] = cells(row, index);
    body.append(element("tr", {}, cellOf(first, "th", {scope: "row"}),
                        others.map((value) => cellOf(value, "td", {}))));
  });
  const filled = element("table", {}, element("caption", {}, title), element("thead", {}, head), body);
  place.append(filled);
}

function table(title, columns, rows, cells) {
  const place = element("div", {class: "scrolls", tabindex: 0, role: "region", "aria-label": title});
  const count = ` (${plural(rows.length, "row")})`;
  const details = element("details", {class: "numbers"}, element("summary", {}, `${title}${count}`), place);
  const show = () => {
    if (!place.hasChildNodes()) fillTable(place, title, columns, rows, cells);
  };
  details.addEventListener("toggle", () => details.open && show());
  tables.push({details, show, short: rows.length <= PRINTED_ROWS});
  return details;
}

// The same, open at once unless it is long.
function openTable(title, columns, rows, cells) {
  const details = table(title, columns, rows, cells);
  if (rows.length > PRINTED_ROWS) return details;
  fillTable(details.querySelector(".scrolls"), title, columns, rows, cells);
  details.open = true;
  return details;
}

window.addEventListener("beforeprint", () => {
  for (const {details, show, short} of tables) {
    if (!short || details.open) continue;
    show();
    details.open = true;
    details.dataset.printed = "";
  }
});
window.addEventListener("afterprint", () => {
  for (const {details} of tables) {
    if (!("printed" in details.dataset)) continue;
    details.open = false;
    delete details.dataset.printed;
  }
});
