// One answer as people read it: in words, how sure, and every class as a bar.

import { el } from "./dom.js";
import { percent, round } from "./numbers.js";

const MOST_BARS = 10;

// What was answered, in a few words.
export function say(task, answer) {
  if (task.kind === "score") return round(answer.value);
  if (task.kind === "labels")
    return answer.labels.length ? answer.labels.join(", ") : "none of the labels";
  return answer.label;
}

// What a task answers with, in a line.
export function explain(task) {
  const meaning =
    {
      score: () => `answers with a score from ${task.range.join(" to ")}`,
      labels: () => `answers with any of: ${task.labels.join(", ")}`,
    }[task.kind] ?? (() => `answers with one of: ${task.labels.join(", ")}`);
  return (task.about ? `${task.about} It ` : "It ") + meaning() + ".";
}

export function isSame(task, one, other) {
  if (task.kind !== "score") return say(task, one) === say(task, other);
  const [low, high] = task.range;
  return Math.abs(one.value - other.value) < 0.05 * (high - low);
}

export function drawAnswer(task, answer) {
  const isScore = task.kind === "score";
  const sure = isScore
    ? `on a scale of ${task.range[0]} to ${task.range[1]}`
    : task.kind === "labels"
      ? "any number of labels may hold"
      : `${percent(answer.confidence)} sure`;
  return [
    el(
      "p",
      { class: "verdict" },
      el("strong", {}, say(task, answer)),
      " ",
      el("span", { class: "sure" }, sure),
    ),
    isScore ? drawScale(task.range, answer.value) : drawBars(task, answer),
  ];
}

function drawBars(task, answer) {
  const holds = new Set(answer.labels ?? [answer.label]);
  let entries = Object.entries(answer.probabilities);
  if (entries.length <= MOST_BARS) return bars(entries, holds);
  // Too many to be looked through in the order of their numbers.
  entries = entries.sort(([, one], [, other]) => other - one);
  return el(
    "div",
    {},
    bars(entries.slice(0, MOST_BARS), holds),
    el(
      "details",
      {},
      el("summary", {}, `${entries.length - MOST_BARS} more`),
      bars(entries.slice(MOST_BARS), holds),
    ),
  );
}

function bars(entries, holds) {
  return el(
    "ul",
    { class: "bars" },
    entries.map(([label, share]) =>
      el(
        "li",
        { class: holds.has(label) ? "chosen" : null },
        el("span", { class: "label" }, label),
        bar(share),
        el("span", { class: "number" }, percent(share)),
      ),
    ),
  );
}

// A share from 0 to 1; a number beside it says the same in words.
export function bar(share) {
  const width = `${100 * Math.min(1, Math.max(0, share ?? 0))}%`;
  return el("span", { class: "bar", "aria-hidden": "true" }, el("span", { style: { width } }));
}

function drawScale([low, high], value) {
  const place = Math.min(1, Math.max(0, ((value ?? low) - low) / (high - low)));
  return el(
    "div",
    { class: "scale", "aria-hidden": "true" },
    el("span", { class: "number" }, String(low)),
    bar(place),
    el("span", { class: "number" }, String(high)),
  );
}
