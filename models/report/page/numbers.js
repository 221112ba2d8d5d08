"use strict";

// Numbers as people read them.  What a report does not know is a dash.

const NONE = "\u2013";
const MINUS = "\u2212";

function known(n) {
  return typeof n === "number" && Number.isFinite(n);
}

// Coordinates to a hundredth of a pixel.
function round(x) {
  return Math.round(x * 100) / 100;
}

// Three significant digits: 1.23, 12.3, 123, 1,234.
function digits(n) {
  const size = Math.abs(n);
  const places = size === 0 || size >= 99.95 ? 0 : size >= 9.995 ? 1 : size >= 0.0995 ? 2 : 3;
  return n.toLocaleString("en-US", {minimumFractionDigits: places, maximumFractionDigits: places});
}

function whole(n) {
  return known(n) ? n.toLocaleString("en-US", {maximumFractionDigits: 0}) : NONE;
}

// To six decimals.
function exact(n) {
  return known(n) ? n.toLocaleString("en-US", {maximumFractionDigits: 6}) : NONE;
}

const BYTE_UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

// The largest unit of which there is one, as a power of 1024.
function byteUnit(n) {
  let unit = 0;
  while (Math.abs(n) >= 1024 ** (unit + 1) * 0.9995 && unit < BYTE_UNITS.length - 1) ++unit;
  return unit;
}

function bytes(n) {
  if (!known(n)) return NONE;
  const unit = byteUnit(n);
  return unit === 0 ? `${whole(n)} B` : `${digits(n / 1024 ** unit)} ${BYTE_UNITS[unit]}`;
}

function milliseconds(t) {
  if (!known(t)) return NONE;
  if (Math.abs(t) >= 999.5) return `${digits(t / 1000)} s`;
  return Math.abs(t) >= 0.0995 || t === 0 ? `${digits(t)} ms` : `${digits(t * 1000)} \u00b5s`;
}

// 0.123 -> "12.3 %"
function percent(share) {
  return known(share) ? `${digits(100 * share).replace("-", MINUS)} %` : NONE;
}

// "12.3 % above the foretold"
function besideForetold(n, foretold) {
  if (!known(n) || !known(foretold) || foretold === 0) return null;
  const share = n / foretold - 1;
  if (share === 0) return "exactly as foretold";
  return `${percent(Math.abs(share))} ${share < 0 ? "below" : "above"} the foretold`;
}

function largest(list, least = -Infinity) {
  let most = least;
  for (const n of list) if (known(n) && n > most) most = n;
  return most;
}

function smallest(list, most = Infinity) {
  let least = most;
  for (const n of list) if (known(n) && n < least) least = n;
  return least;
}

// The index of the last entry of a rising list that is not above x; 0 if all are.
function lastNotAbove(list, x) {
  let low = 0;
  let high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (list[middle] <= x) low = middle + 1;
    else high = middle;
  }
  return Math.max(0, low - 1);
}

function plural(n, one, many = `${one}s`) {
  return `${whole(n)} ${n === 1 ? one : many}`;
}
