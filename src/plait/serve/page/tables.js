// Rows of cells under names, in a region that scrolls by itself where there is no room.

import { el } from "./dom.js";

// `column` gives a column's class by its number; with `hasHeads` the first cell names its row.
export function drawTable(label, names, rows, options = {}) {
  const { column = () => null, hasHeads = false, isTall = false, kind = null } = options;
  const cell = (tag, content, i, scope) => el(tag, { class: column(i), scope }, content);
  const head = names.map((name, i) => (name ? cell("th", name, i, "col") : el("td")));
  const body = rows.map((row) =>
    row.map((one, i) => (hasHeads && i === 0 ? cell("th", one, i, "row") : cell("td", one, i))),
  );
  const place = isTall ? "scroll tall" : "scroll";
  return el(
    "div",
    { class: place, tabindex: "0", role: "region", "aria-label": label },
    el(
      "table",
      { class: kind },
      el("thead", {}, el("tr", {}, head)),
      el(
        "tbody",
        {},
        body.map((cells) => el("tr", {}, cells)),
      ),
    ),
  );
}
