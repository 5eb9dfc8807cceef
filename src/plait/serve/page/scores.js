// How well a run does on dev: a figure for each task, as a bar, with what guessing gets marked.

import { el } from "./dom.js";
import { figure } from "./numbers.js";

export function drawScores(scores) {
  return el(
    "ul",
    { class: "bars scores" },
    scores.map((score) =>
      el(
        "li",
        {},
        el(
          "span",
          { class: "label" },
          score.task,
          " ",
          el("span", { class: "note" }, score.metric.replaceAll("_", " ")),
        ),
        drawBar(score),
        el("span", { class: "number" }, figure(score.value)),
      ),
    ),
  );
}

// What the marks are; nothing where there is none.
export function explainMarks(scores) {
  const isMarked = scores.some((score) => score.baseline !== null);
  const told = "The mark on a bar is what answering without reading would get.";
  return isMarked ? el("p", { class: "note" }, told) : "";
}

function drawBar({ value, baseline }) {
  const place = (share) => `${100 * Math.min(1, Math.max(0, share))}%`;
  return el(
    "span",
    { class: "bar", "aria-hidden": "true" },
    el("span", { style: { width: place(value ?? 0) } }),
    baseline !== null &&
      el("i", { style: { left: place(baseline) }, title: `without reading: ${figure(baseline)}` }),
  );
}
