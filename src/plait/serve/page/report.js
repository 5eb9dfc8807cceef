// A run's report inside a frame that runs no scripts; it is made first where it is not there.

import { getMade, runPath } from "./api.js";
import { complain, el } from "./dom.js";

const run = new URLSearchParams(location.search).get("run") ?? "";
const main = document.getElementById("main");
const told = el("p", { class: "note", role: "status" }, "Opening the report …");
const back = el("a", { href: `/#/runs/${encodeURIComponent(run)}` }, run);

document.title = `Report of ${run} · plait`;
document.querySelector(".top").append(el("nav", { "aria-label": "Main" }, back));
main.append(
  el(
    "div",
    { class: "view waiting" },
    el("h1", {}, "Report"),
    el("progress", { "aria-label": "Making the report" }),
    told,
  ),
);

try {
  const response = await getMade(runPath(run, "/report"), (step) => {
    told.textContent = `Making it: ${step} …`;
  });
  // An address and an origin of this page let links to its parts work; scripts stay forbidden.
  const src = URL.createObjectURL(await response.blob());
  main.replaceChildren(
    el("iframe", { sandbox: "allow-same-origin", src, title: `Report of ${run}` }),
  );
} catch (error) {
  main.replaceChildren(el("div", { class: "view" }, el("h1", {}, "Report"), complain(error)));
}
