// The API key, where the server asks for one. It is kept until the tab is closed.

import { el } from "./dom.js";

const NAME = "plait-key";

export function currentKey() {
  return sessionStorage.getItem(NAME);
}

export function forgetKey() {
  sessionStorage.removeItem(NAME);
}

let asking = null;

// Ask for a key; many callers at once share one dialog. Resolves to whether one was given.
export function askForKey() {
  asking ??= show(currentKey() !== null).finally(() => {
    asking = null;
  });
  return asking;
}

function show(wasWrong) {
  const input = el("input", {
    type: "password",
    id: "key",
    autocomplete: "off",
    required: true,
    spellcheck: "false",
  });
  const dialog = el(
    "dialog",
    { class: "asking", "aria-labelledby": "key-title" },
    el(
      "form",
      {},
      el("h2", { id: "key-title" }, "This server asks for a key"),
      el(
        "p",
        { class: wasWrong ? "problem" : "note", role: wasWrong ? "alert" : null },
        wasWrong
          ? "That key is not one of this server’s. Try another."
          : "Whoever runs it gives them out. Yours is forgotten when you close this tab.",
      ),
      el("label", { for: "key" }, "Key"),
      input,
      el(
        "div",
        { class: "row" },
        el("button", { class: "main" }, "Go on"),
        el("button", { type: "button", value: "no", click: () => dialog.close() }, "Not now"),
      ),
    ),
  );
  document.body.append(dialog);
  return new Promise((resolve) => {
    let given = false;
    dialog.querySelector("form").addEventListener("submit", (event) => {
      event.preventDefault();
      sessionStorage.setItem(NAME, input.value.trim());
      given = true;
      dialog.close();
    });
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(given);
    });
    dialog.showModal();
  });
}
