"use strict";

// A picture that is read point by point: with a pointer, or with the keyboard once it has the focus.
//
//   count        points, in the order of the keys
//   at(x, y)     the point nearest to a place in the picture
//   show(index)  marks a point and writes about it
//   says(index)  a point in words
//   label        what is read
//   first        the point to begin with
//   down         points that the key "down" goes ahead; by default "up" and "down" are as "right" and "left"

function keyMoves(options) {
  const page = Math.max(1, Math.round(options.count / 20));
  const down = options.down ?? -1;
  return {
    ArrowRight: 1, ArrowLeft: -1, ArrowDown: down, ArrowUp: -down,
    PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity,
  };
}

// A slider for screen readers, which say its text whenever it changes.
function readable(place, options) {
  if (options.count === 0) return () => {};
  const last = options.count - 1;
  fill(place, {
    tabindex: 0, role: "slider", "aria-label": options.label, "aria-valuemin": 0, "aria-valuemax": last,
  }, []);
  place.classList.add("readable");
  let index = 0;
  const go = (to) => {
    index = Math.min(last, Math.max(0, to));
    options.show(index);
    place.setAttribute("aria-valuenow", index);
    place.setAttribute("aria-valuetext", options.says(index));
  };
  place.addEventListener("keydown", (event) => {
    const by = keyMoves(options)[event.key];
    if (by === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const to = index + by * (event.shiftKey ? 10 : 1);
    const leavesColumn = options.down && /^Arrow(Up|Down)$/.test(event.key) && (to < 0 || to > last);
    if (!leavesColumn) go(to);
  });
  const point = (event) => {
    const drawing = place.querySelector("svg");
    const around = drawing.getBoundingClientRect();
    const zoom = drawing.viewBox.baseVal.width / around.width;
    go(options.at((event.clientX - around.left) * zoom, (event.clientY - around.top) * zoom));
  };
  place.addEventListener("pointermove", point);
  place.addEventListener("pointerdown", point);
  go(options.first ?? 0);
  return () => options.show(index);
}
