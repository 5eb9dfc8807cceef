// Show the view that the address names after its #, which browsers do not send to servers.

import { listRuns, showError } from "./page.js";
import { startFile } from "./file.js";
import { startTry } from "./try.js";

const views = { try: startTry, file: startFile };
const started = {};
let runs;

async function show() {
  const [path, query = ""] = location.hash.slice(1).split("?");
  const name = path.replaceAll("/", "") in views ? path.replaceAll("/", "") : "try";
  document.title = `${name === "try" ? "Try" : "File"} · plait`;
  for (const other of Object.keys(views)) document.getElementById(other).hidden = other !== name;
  for (const link of document.querySelectorAll(".top nav a")) {
    if (link.hash === `#/${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  try {
    runs ??= await listRuns();
    started[name] ??= views[name](runs);
    started[name].open?.(new URLSearchParams(query));
  } catch (error) {
    showError(error);
  }
}

addEventListener("hashchange", () => {
  show();
  document.querySelector("main > section:not([hidden]) h1").focus();
});
show();
