// One run: its scores, its curves, and the way to its report and its mistakes.

import { get, listServed, runPath } from "./api.js";
import { drawCurves } from "./curves.js";
import { el } from "./dom.js";
import { count, figure } from "./numbers.js";
import { runLink, tellKind } from "./runs.js";
import { drawScores, explainMarks } from "./scores.js";
import { drawTable } from "./tables.js";

export async function showRun(place, { run: name, signal }) {
  const [{ showsData }, record] = await Promise.all([listServed(), get(runPath(name), signal)]);
  place.append(
    el("p", { class: "crumb" }, el("a", { href: "#/runs" }, "Runs")),
    el("h1", {}, name),
    el("p", { class: "note" }, tellKind(record)),
    record.about ? el("p", { class: "lead" }, record.about) : "",
    drawLinks(record, showsData),
  );
  if (record.members.length) place.append(drawMembers(record.members, (await listServed()).runs));
  if (record.scores.length) {
    place.append(
      el("h2", {}, "Scores on dev"),
      explainMarks(record.scores),
      drawScores(record.scores),
      drawAll(record.scores),
    );
  }
  const { losses, scores } = await get(runPath(name, "/curves"), signal);
  const chosen = Object.fromEntries(
    Object.entries(scores).map(([task, curves]) => {
      const metric =
        record.scores.find((score) => score.task === task)?.metric ?? Object.keys(curves)[0];
      return [`${task}, ${metric.replaceAll("_", " ")}`, curves[metric] ?? []];
    }),
  );
  const charts = [
    ["Scores over time", chosen, record.best_step],
    ["Losses over time", losses, null],
  ].filter(([, curves]) => Object.values(curves).some((points) => points.length > 1));
  for (const [title, curves, best] of charts)
    place.append(el("h2", {}, title), drawCurves(title, curves, best, signal));
  if (!charts.length && record.kind === "run")
    place.append(el("p", { class: "note" }, "It has no log to draw curves from."));
}

function drawLinks(record, showsData) {
  if (!record.is_served)
    return el("p", { class: "note" }, "It cannot be tried: its folder has no model that answers.");
  return el(
    "p",
    { class: "row" },
    el(
      "a",
      { class: "button main", href: `#/try?run=${encodeURIComponent(record.name)}` },
      "Try it",
    ),
    showsData &&
      el(
        "a",
        { class: "button", href: `/report?run=${encodeURIComponent(record.name)}` },
        "Report",
      ),
    showsData && el("a", { class: "button", href: runLink(record.name, "/mistakes") }, "Mistakes"),
  );
}

function drawMembers(members, runs) {
  const isHere = (name) => runs.some((run) => run.name === name);
  return el(
    "div",
    {},
    el("h2", {}, "Members"),
    el(
      "ul",
      {},
      members.map((name) =>
        el("li", {}, isHere(name) ? el("a", { href: runLink(name) }, name) : name),
      ),
    ),
  );
}

function drawAll(scores) {
  const rows = scores.flatMap((score) =>
    Object.entries(score.metrics).map(([metric, value]) => [
      score.task,
      metric.replaceAll("_", " "),
      figure(value),
      score.rows === null ? "" : count(score.rows, "row"),
    ]),
  );
  const options = { column: (i) => (i === 2 ? "number" : null) };
  const names = ["Task", "Figure", "Value", "Of"];
  return el(
    "details",
    {},
    el("summary", {}, "Every figure"),
    drawTable("Every figure", names, rows, options),
  );
}
