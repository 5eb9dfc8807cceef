// Which view is shown: it stands behind the # of the address, which never goes to the server.

import { complain, el } from "./dom.js";
import { currentKey, forgetKey } from "./key.js";
import { showFile } from "./file.js";
import { showMistakes } from "./mistakes.js";
import { showRun } from "./run.js";
import { showRuns } from "./runs.js";
import { showTry } from "./try.js";

const main = document.getElementById("main");
const forget = document.getElementById("forget");
let leaving = new AbortController();
let isFirst = true;

function choose([name, run, part]) {
  if (name === "file") return ["File", showFile];
  if (name === "runs" && part === "mistakes") return [`Mistakes of ${run}`, showMistakes];
  if (name === "runs" && run) return [run, showRun];
  if (name === "runs") return ["Runs", showRuns];
  return ["Try", showTry];
}

async function show() {
  leaving.abort();
  leaving = new AbortController();
  const { signal } = leaving;
  const [path, query = ""] = location.hash.slice(1).split("?");
  const parts = path.split("/").filter(Boolean).map(decode);
  const [title, view] = choose(parts);
  document.title = `${title} · plait`;
  for (const link of document.querySelectorAll(".top nav a")) {
    const isHere = link.hash.startsWith(`#/${parts[0] ?? "try"}`);
    if (isHere) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const place = el("div", { class: "view" });
  main.replaceChildren(place);
  try {
    await view(place, { params: new URLSearchParams(query), run: parts[1], signal });
  } catch (error) {
    if (error.name !== "AbortError") place.append(complain(error));
  }
  if (signal.aborted) return;
  forget.hidden = currentKey() === null;
  const heading = place.querySelector("h1");
  if (!isFirst && heading && !place.contains(document.activeElement)) {
    heading.tabIndex = -1;
    heading.focus();
  }
  isFirst = false;
}

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

forget.addEventListener("click", () => {
  forgetKey();
  location.reload();
});
document.getElementById("skip").addEventListener("click", () => {
  const target = main.querySelector("h1") ?? main;
  target.tabIndex = -1;
  target.focus();
});
addEventListener("hashchange", show);
show();
