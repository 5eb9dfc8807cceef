// The runs of the folder, each with how well it does.

import { get, listServed, runPath } from "./api.js";
import { el } from "./dom.js";
import { duration } from "./numbers.js";
import { drawScores, explainMarks } from "./scores.js";

const MANY = 8;

export async function showRuns(place, { signal }) {
  const { runs, leftOut } = await listServed();
  const list = el("ul", { class: "runs" });
  const names = [...runs.map((run) => run.name), ...leftOut.map((one) => one.name)];
  const reasons = new Map(leftOut.map((one) => [one.name, one.reason]));
  place.append(
    el("h1", {}, "Runs"),
    el(
      "p",
      { class: "lead" },
      "What was trained, and how well it does on rows it was not trained on.",
    ),
  );
  if (names.length > MANY) place.append(drawFilter(list));
  place.append(list);
  const entries = names.map((name) => {
    const entry = el(
      "li",
      { "data-name": name.toLowerCase() },
      el("h2", {}, el("a", { href: runLink(name) }, name)),
    );
    list.append(entry);
    return entry;
  });
  const records = await Promise.all(
    entries.map(async (entry, i) => {
      const record = await get(runPath(names[i]), signal);
      entry.append(el("p", { class: "note" }, tellKind(record)));
      if (record.about) entry.append(el("p", {}, record.about));
      const reason = reasons.get(names[i]);
      if (reason) entry.append(el("p", { class: "note" }, `Cannot be tried: ${reason}.`));
      if (record.scores.length) entry.append(drawScores(record.scores));
      else if (runs[i])
        entry.append(
          el(
            "p",
            { class: "note" },
            `Answers ${runs[i].tasks.map((task) => task.name).join(", ")}.`,
          ),
        );
      return record;
    }),
  );
  list.before(explainMarks(records.flatMap((record) => record.scores)));
}

export function runLink(name, rest = "") {
  return `#/runs/${encodeURIComponent(name)}${rest}`;
}

// What a run is, in a line.
export function tellKind(record) {
  const kinds = {
    run: record.is_finished ? "trained" : "not finished",
    ensemble: `ensemble of ${record.members.join(", ")}`,
    export: "exported for ONNX Runtime",
  };
  return [
    kinds[record.kind],
    record.recipe && `recipe ${record.recipe}`,
    record.encoder &&
      (record.encoder === "packaged" ? "packaged encoder" : `encoder ${record.encoder}`),
    record.steps !== null && `${record.steps.toLocaleString("en")} updates`,
    record.seconds !== null && duration(record.seconds),
  ]
    .filter(Boolean)
    .join(" · ");
}

function drawFilter(list) {
  const narrow = (event) => {
    const wanted = event.target.value.trim().toLowerCase();
    for (const entry of list.children) entry.hidden = !entry.dataset.name.includes(wanted);
  };
  return el(
    "div",
    { class: "field narrow" },
    el("label", { for: "filter" }, "Find"),
    el("input", { id: "filter", type: "search", input: narrow }),
  );
}
