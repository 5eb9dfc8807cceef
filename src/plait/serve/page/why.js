// Which words an answer rests on: asked for by a button, shown in the text itself and as a list.

import { post } from "./api.js";
import { announce, complain, el } from "./dom.js";
import { percent, round } from "./numbers.js";

const MOST_WORDS = 8;
const FAINT = 0.2; // part of the strongest effect below which a word is not marked

// A button that asks for the words, and what came of it below.
export function drawWhy(run, task, texts, signal) {
  const place = el("div", { class: "why" });
  const button = el(
    "button",
    { type: "button", class: "small", click: () => ask() },
    "Which words?",
  );
  place.append(button);
  return place;

  async function ask() {
    button.disabled = true;
    place.setAttribute("aria-busy", "true");
    const input = texts.length === 2 ? texts : texts[0];
    try {
      const body = { run: run.name, task: task.name, input };
      const found = await post("/v1/explain", body, signal);
      place.replaceChildren(...drawFound(found, texts));
      announce(summarise(found));
    } catch (error) {
      if (error.name === "AbortError") return;
      button.disabled = false;
      place.replaceChildren(button, complain(error));
    } finally {
      place.removeAttribute("aria-busy");
    }
  }
}

function drawFound(found, texts) {
  const strongest = Math.max(...found.parts.map((part) => Math.abs(part.effect)));
  const write = found.explained === null ? round : percent;
  const what = found.explained === null ? "The score" : `The probability of “${found.explained}”`;
  const ranked = [...found.parts].sort((a, b) => Math.abs(b.effect) - Math.abs(a.effect));
  return [
    ...texts.map((text, place) =>
      el(
        "p",
        { class: "marked", dir: "auto" },
        mark(
          text,
          found.parts.filter((part) => part.place === place),
          strongest,
        ),
      ),
    ),
    el(
      "p",
      { class: "note" },
      `${what} is ${write(found.value)} with all words and ${write(found.bare)} with none. ` +
        "Words that speak for it are blue, those against it orange:",
    ),
    el(
      "ul",
      { class: "words" },
      ranked
        .slice(0, MOST_WORDS)
        .map((part) =>
          el(
            "li",
            { class: part.effect < 0 ? "against" : "for" },
            el("span", { class: "number" }, signed(part.effect)),
            el("span", { class: "label" }, part.text),
          ),
        ),
    ),
  ];
}

// The text, its strong words marked. Places are counted in whole characters, as the server does.
function mark(text, parts, strongest) {
  const signs = Array.from(text);
  const pieces = [];
  let place = 0;
  for (const part of parts) {
    pieces.push(signs.slice(place, part.start).join(""));
    const word = signs.slice(part.start, part.end).join("");
    const strength = strongest ? Math.abs(part.effect) / strongest : 0;
    pieces.push(
      strength > FAINT ? el("mark", { class: part.effect < 0 ? "against" : "for" }, word) : word,
    );
    place = part.end;
  }
  pieces.push(signs.slice(place).join(""));
  return pieces;
}

function signed(effect) {
  return (effect < 0 ? "−" : "+") + Math.abs(effect).toFixed(2);
}

function summarise(found) {
  const ranked = [...found.parts].sort((a, b) => Math.abs(b.effect) - Math.abs(a.effect));
  const words = ranked.slice(0, 3).map((part) => `${part.text} ${signed(part.effect)}`);
  return `strongest words: ${words.join(", ")}`;
}
