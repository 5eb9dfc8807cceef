// What a run gets wrong on dev: the rows it is surest of, and the kinds of text they gather in.

import { getMade, runPath } from "./api.js";
import { announce, el } from "./dom.js";
import { count, figure, percent } from "./numbers.js";
import { runLink } from "./runs.js";
import { drawTable } from "./tables.js";

const NUM_FIRST = 8;
const NUM_SLICES = 8;

export async function showMistakes(place, { run, signal }) {
  const told = el("p", { class: "note", role: "status" }, "Looking at every dev row …");
  const waiting = el(
    "div",
    { class: "waiting" },
    el("progress", { "aria-label": "Looking for mistakes" }),
    told,
  );
  place.append(
    el(
      "p",
      { class: "crumb" },
      el("a", { href: "#/runs" }, "Runs"),
      " / ",
      el("a", { href: runLink(run) }, run),
    ),
    el("h1", {}, "Mistakes"),
    el("p", { class: "lead" }, `What ${run} gets wrong on dev, the surest answers first.`),
    waiting,
  );
  try {
    const response = await getMade(
      runPath(run, "/mistakes"),
      (step) => {
        told.textContent = `${step} …`;
      },
      signal,
    );
    const { tasks } = await response.json();
    place.append(
      tasks.length > 1 ? drawContents(tasks) : "",
      ...tasks.map((task) => drawTask(run, task)),
    );
    announce("The mistakes are here");
  } finally {
    waiting.remove();
  }
}

function drawContents(tasks) {
  const jump = (name) => {
    const heading = document.getElementById(`task-${name}`);
    heading.scrollIntoView();
    heading.focus();
  };
  return el(
    "p",
    { class: "row" },
    tasks.map(({ task }) => el("button", { type: "button", click: () => jump(task) }, task)),
  );
}

function drawTask(run, found) {
  const rows = count(found.rows, "row");
  const scored = `${found.metric.replaceAll("_", " ")} ${figure(found.value)}`;
  const told =
    found.mistakes === null
      ? `${scored} on ${rows}; the farthest from the truth first`
      : `${count(found.mistakes, "mistake")} in ${rows}; ${scored}`;
  return el(
    "section",
    {},
    el("h2", { id: `task-${found.task}`, tabindex: "-1" }, found.task),
    el("p", { class: "note" }, told),
    found.worst.length ? drawRows(run, found.worst) : el("p", {}, "Nothing is wrong."),
    found.slices.length ? drawSlices(found) : "",
  );
}

function drawRows(run, rows) {
  const list = (some, start) =>
    el(
      "ol",
      { class: "wrong", start },
      some.map((row) => drawRow(run, row)),
    );
  if (rows.length <= NUM_FIRST) return list(rows, 1);
  return [
    list(rows.slice(0, NUM_FIRST), 1),
    el(
      "details",
      {},
      el("summary", {}, `${rows.length - NUM_FIRST} more`),
      list(rows.slice(NUM_FIRST), NUM_FIRST + 1),
    ),
  ];
}

function drawRow(run, row) {
  const params = new URLSearchParams([["run", run], ...row.texts.map((text) => ["text", text])]);
  return el(
    "li",
    {},
    row.texts.map((text) => el("p", { class: "text", dir: "auto" }, text)),
    el(
      "p",
      { class: "note" },
      "said ",
      el("strong", { class: "said" }, row.answer),
      row.confidence === null ? "" : ` (${percent(row.confidence)} sure)`,
      ", true is ",
      el("strong", {}, row.truth),
      ` · ${row.where} · `,
      el("a", { href: `#/try?${params}`, "aria-label": `Try ${row.id}` }, "try it"),
    ),
  );
}

function drawSlices(found) {
  const order = [...found.slices].sort(
    (one, other) => other.stands_out - one.stands_out || one.difference - other.difference,
  );
  const row = (piece) => [
    piece.name,
    piece.count.toLocaleString("en"),
    figure(piece.score),
    `${piece.difference > 0 ? "+" : ""}${figure(piece.difference)}${piece.stands_out ? " *" : ""}`,
  ];
  const figureName = found.metric.replaceAll("_", " ");
  return el(
    "details",
    {},
    el("summary", {}, "Kinds of text"),
    el(
      "p",
      { class: "note" },
      `${figureName} on rows of a kind, beside all others. A * is more than chance makes.`,
    ),
    drawTable(
      `Kinds of text in ${found.task}`,
      ["Rows with", "Rows", figureName, "Difference"],
      order.slice(0, NUM_SLICES).map(row),
      { column: (i) => (i ? "number" : null) },
    ),
  );
}
