"use strict";

// Elements.  Text of a report becomes text of an element, never HTML.

const SVG = "http://www.w3.org/2000/svg";
const root = document.documentElement;
const pageErrors = [];

function noteError(text) {
  pageErrors.push(text);
  root.dataset.spoolErrors = JSON.stringify(pageErrors);
}

window.addEventListener("error", (event) => noteError(event.message));
window.addEventListener("unhandledrejection", (event) => noteError(String(event.reason)));

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

// element("p", {class: "note"}, "text", element("b", {}, "more"))
function element(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

function shape(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function label(x, y, text, attributes = {}) {
  return shape("text", {x: round(x), y: round(y), ...attributes}, text);
}

function line(x1, y1, x2, y2, attributes = {}) {
  const ends = {x1: round(x1), y1: round(y1), x2: round(x2), y2: round(y2)};
  return shape("line", {...ends, ...attributes});
}

function box(x, y, width, height, attributes = {}) {
  const sides = {x: round(x), y: round(y), width: round(width), height: round(height)};
  return shape("rect", {...sides, ...attributes});
}

// A picture of this size in pixels, which shrinks with its place.
function picture(width, height, title) {
  const drawing = shape("svg", {
    viewBox: `0 0 ${round(width)} ${round(height)}`, width: round(width), height: round(height),
    role: "img", "aria-label": title,
  });
  drawing.append(shape("title", {}, title));
  return drawing;
}

// A part of the page under a heading, with a sentence that says what it shows.
function section(id, heading, ...words) {
  const part = element("section", {id, "aria-labelledby": `${id}-heading`});
  part.append(element("h2", {id: `${id}-heading`}, heading));
  for (const text of words.filter(Boolean)) part.append(element("p", {class: "lead"}, text));
  return part;
}

// Functions that read what is drawn of a part from its coordinates.
const drawnParts = {};
const redraws = [];

// Calls draw(width) now, if the page is laid out, and whenever the place becomes wider or narrower.
function drawIn(place, draw) {
  let drawn = 0;
  const redraw = () => {
    const width = Math.floor(place.clientWidth);
    if (width < 40 || width === drawn) return;
    drawn = width;
    draw(width);
  };
  redraws.push(redraw);
  new ResizeObserver(redraw).observe(place);
}

// A key of a legend: a swatch and its words.
function legend(entries) {
  const list = element("ul", {class: "legend"});
  for (const [mark, words] of entries) list.append(element("li", {}, mark, " ", words));
  return list;
}

function swatch(name) {
  return element("span", {class: `swatch ${name}`, "aria-hidden": "true"});
}
