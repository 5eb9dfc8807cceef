// Answer texts typed by hand, with one run or with two side by side.

import { announce, decimals, el, fillSelect, pause, percent, request, showError } from "./page.js";

const TYPING_MS = 400; // after the last key, before texts are sent
const MOST_BARS = 10;
const MOST_WORDS = 8;
const FAINT = 0.2; // part of the strongest effect below which a word is not marked

const SAMPLES = {
  1: [
    ["A quiet little film that stayed with me for weeks."],
    ["The soup was cold, the waiter was rude, and we were charged for both."],
    ["It does what it says, no more and no less."],
  ],
  2: [
    ["How do I stop my cat from scratching the sofa?", "What keeps a cat off the furniture?"],
    ["A boy is flying a kite on the beach.", "A child plays with a kite by the sea."],
    ["Which train goes from Lyon to Turin?", "Which train goes from Turin to Lyon?"],
  ],
};

export function startTry(runs) {
  const get = (id) => document.getElementById(id);
  const [form, answers] = [get("try-form"), get("answers")];
  const [runBox, otherBox, countBox] = ["run", "other", "count"].map(get);
  const boxes = ["first", "second"].map(get);
  let controller = new AbortController();

  const chosen = () =>
    [runBox, otherBox].map((box) => runs.find((run) => run.name === box.value)).filter(Boolean);
  const texts = () => boxes.slice(0, Number(countBox.value)).map((box) => box.value);

  // Fit the form to what was chosen: other runs to compare with, as many boxes as texts.
  function fit() {
    const names = runs.map((run) => run.name).filter((name) => name !== runBox.value);
    fillSelect(otherBox, [["", "nothing"], ...names], otherBox.value);
    const counts = [1, 2].filter((number) =>
      chosen().some((run) => run.tasks.some((task) => task.num_texts === number)),
    );
    for (const option of countBox.options) option.disabled = !counts.includes(Number(option.value));
    if (!counts.includes(Number(countBox.value))) countBox.value = counts[0];
    const isPair = countBox.value === "2";
    boxes[1].parentElement.hidden = !isPair;
    form.querySelector(".boxes").classList.toggle("pair", isPair);
    for (const place of form.querySelectorAll(".several")) place.hidden = runs.length < 2;
  }

  // Keep the input in the address, so that a link leads to the same answers.
  function remember() {
    const params = new URLSearchParams({ run: runBox.value });
    if (otherBox.value) params.set("beside", otherBox.value);
    for (const text of texts()) params.append("text", text);
    history.replaceState(null, "", `#/try?${params}`);
  }

  async function ask(wait = 0) {
    controller.abort();
    controller = new AbortController();
    const { signal } = controller;
    remember();
    showError(null);
    const given = texts();
    if (!given.every((text) => text.trim())) {
      answers.replaceChildren(...describeTasks(chosen()[0], given.length));
      return;
    }
    answers.setAttribute("aria-busy", "true");
    try {
      await pause(wait, signal);
      const found = await Promise.all(chosen().map((run) => askRun(run, given, signal)));
      answers.replaceChildren(...drawTasks(found, given));
      announce(summarise(found));
    } catch (error) {
      if (error.name !== "AbortError") answers.replaceChildren();
      showError(error);
    } finally {
      if (!signal.aborted) answers.removeAttribute("aria-busy");
    }
  }

  function takeSample() {
    const samples = SAMPLES[countBox.value];
    const place = samples.findIndex((sample) => sample[0] === boxes[0].value);
    samples[(place + 1) % samples.length].forEach((text, i) => (boxes[i].value = text));
    ask();
  }

  async function copyLink({ target }) {
    const writing = navigator.clipboard?.writeText(location.href) ?? Promise.reject();
    const failed = "Copy it from the address bar"; // only https and localhost may copy
    target.textContent = await writing.then(() => "Copied", () => failed);
    announce(target.textContent);
    setTimeout(() => (target.textContent = "Copy link"), 2000);
  }

  fillSelect(runBox, runs.map((run) => run.name));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    ask();
  });
  form.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) ask();
  });
  form.addEventListener("input", ({ target }) => {
    if (target.matches("select")) fit();
    ask(target.matches("textarea") ? TYPING_MS : 0);
  });
  get("sample").addEventListener("click", takeSample);
  get("copy").addEventListener("click", copyLink);

  function open(params) {
    const linked = params.getAll("text").slice(0, 2);
    if (params.has("run")) runBox.value = params.get("run");
    if (!runBox.value) runBox.value = runs[0].name;
    fit();
    if (params.has("beside")) otherBox.value = params.get("beside");
    if (linked.length) countBox.value = linked.length;
    linked.forEach((text, i) => (boxes[i].value = text));
    fit();
    ask();
    if (params.has("run") && runBox.value !== params.get("run"))
      showError(new Error(`There is no run ${params.get("run")}; this is ${runBox.value}.`));
  }

  return { open };
}

// --- answers ---------------------------------------------------------------------------

// Return a run's answers by task, for the tasks that take as many texts.
async function askRun(run, texts, signal) {
  const tasks = run.tasks.filter((task) => task.num_texts === texts.length);
  if (!tasks.length) return { run, answered: {} };
  const inputs = [texts.length === 2 ? texts : texts[0]];
  const { answers } = await request("/v1/predict", { run: run.name, inputs }, signal);
  const entries = tasks.map((task) => [task.name, { run, task, answer: answers[0][task.name] }]);
  return { run, answered: Object.fromEntries(entries) };
}

function describeTasks(run, numTexts) {
  return run.tasks.map((task) => {
    const range = task.range && `a score from ${task.range.join(" to ")}`;
    const answer = range ?? `${task.label_separator ? "any" : "one"} of: ${task.labels.join(", ")}`;
    const input = task.num_texts === 2 ? "two texts" : "one text";
    const note = task.num_texts === numTexts ? `Answers with ${answer}.` : `Reads ${input}.`;
    const text = el("p", { class: "note" }, `${task.about} ${note}`);
    return el("article", { class: "answer" }, el("h2", {}, task.name), text);
  });
}

// What was answered, in a few words.
function say(task, answer) {
  if (task.range) return decimals(answer.value);
  if (answer.labels) return answer.labels.join(", ") || "no label";
  return answer.label;
}

function summarise(found) {
  const sayRun = ({ run, answered }) =>
    (found.length > 1 ? `${run.name}. ` : "") +
    Object.values(answered)
      .map(({ task, answer }) => `${task.name}: ${say(task, answer)}`)
      .join("; ");
  return found.map(sayRun).join(". ");
}

function drawTasks(found, texts) {
  const names = new Set(found.flatMap(({ answered }) => Object.keys(answered)));
  return [...names].map((name) => {
    const sides = found.map(({ run, answered }) => answered[name] ?? { run });
    const { task } = sides.find((side) => side.task);
    const isVersus = sides.length > 1;
    const title = el("h2", {}, name, " ", drawAgreement(sides));
    const about = task.about && el("p", { class: "note" }, task.about);
    const drawn = sides.map((side) => drawSide(side, texts, isVersus));
    const kind = isVersus ? "answer versus" : "answer";
    return el("article", { class: kind }, title, about, el("div", { class: "sides" }, drawn));
  });
}

function drawAgreement(sides) {
  const [one, other] = sides;
  if (sides.length < 2 || !one.task || one.task.kind !== other.task?.kind) return null;
  const [low, high] = one.task.range ?? [0, 0];
  const agree = one.task.range
    ? Math.abs(one.answer.value - other.answer.value) < 0.05 * (high - low)
    : say(one.task, one.answer) === say(other.task, other.answer);
  return el("span", { class: agree ? "tag" : "tag differs" }, agree ? "they agree" : "they differ");
}

function drawSide({ run, task, answer }, texts, isNamed) {
  const title = isNamed && el("h3", {}, run.name);
  if (!task) return el("div", {}, title, el("p", { class: "note" }, "has no such task"));
  const scale = task.range && `on a scale of ${task.range.join(" to ")}`;
  const note = el("span", {}, scale ?? `${percent(answer.confidence)} confidence`);
  const verdict = el("p", { class: "verdict" }, el("strong", {}, say(task, answer)), " ", note);
  const chart = task.range ? drawScale(task.range, answer.value) : drawBars(answer);
  return el("div", {}, title, verdict, chart, drawWords(run, task, texts));
}

function drawBars(answer) {
  const holds = new Set(answer.labels ?? [answer.label]);
  const rows = Object.entries(answer.probabilities);
  if (rows.length > MOST_BARS) rows.sort(([, one], [, other]) => other - one);
  const draw = ([label, share]) => {
    const number = el("span", { class: "number" }, percent(share));
    const parts = [el("span", { class: "label" }, label), drawBar(share), number];
    return el("li", { class: holds.has(label) && "chosen" }, parts);
  };
  const list = (some) => el("ul", { class: "bars" }, some.map(draw));
  const rest = rows.slice(MOST_BARS);
  const more = el("details", {}, el("summary", {}, `${rest.length} more`), list(rest));
  return [list(rows.slice(0, MOST_BARS)), rest.length > 0 && more];
}

// A share from 0 to 1; a number beside it says the same.
function drawBar(share) {
  const inner = el("span");
  inner.style.width = `${100 * Math.min(1, Math.max(0, share ?? 0))}%`;
  return el("span", { class: "bar", "aria-hidden": "true" }, inner);
}

function drawScale([low, high], value) {
  const bar = drawBar(((value ?? low) - low) / (high - low));
  return el("div", { class: "scale", "aria-hidden": "true" }, String(low), bar, String(high));
}

// --- words -----------------------------------------------------------------------------

// A button that asks for the effect of each word.
function drawWords(run, task, texts) {
  const place = el("div", { class: "why" });
  const button = el("button", { type: "button", class: "small", click: ask }, "Which words?");
  place.append(button);
  return place;

  async function ask() {
    button.disabled = true;
    showError(null);
    try {
      const input = texts.length === 2 ? texts : texts[0];
      const found = await request("/v1/explain", { run: run.name, task: task.name, input });
      place.replaceChildren(...drawEffects(found, texts));
    } catch (error) {
      button.disabled = false;
      showError(error);
    }
  }
}

function drawEffects(found, texts) {
  const ranked = [...found.parts].sort((a, b) => Math.abs(b.effect) - Math.abs(a.effect));
  const strongest = Math.abs(ranked[0].effect);
  const signed = (effect) => (effect < 0 ? "−" : "+") + Math.abs(effect).toFixed(2);
  const side = (part) => (part.effect < 0 ? "against" : "for");
  const write = found.explained === null ? decimals : percent;
  const what = found.explained === null ? "The score" : `The probability of “${found.explained}”`;
  const words = ranked.slice(0, MOST_WORDS);
  announce(`Strongest words: ${words.slice(0, 3).map((part) => part.text).join(", ")}`);

  // Places count whole characters, as the server does, not JavaScript's halves of them.
  const mark = (text, place) => {
    const characters = Array.from(text);
    const pieces = [];
    let end = 0;
    for (const part of found.parts.filter((one) => one.place === place)) {
      pieces.push(characters.slice(end, part.start).join(""));
      const isStrong = Math.abs(part.effect) > FAINT * strongest;
      pieces.push(isStrong ? el("mark", { class: side(part) }, part.text) : part.text);
      end = part.end;
    }
    return el("p", { class: "marked", dir: "auto" }, pieces, characters.slice(end).join(""));
  };

  const values = `${write(found.value)} with all words and ${write(found.bare)} without any`;
  const note = `${what} is ${values}. Blue words raise it, orange words lower it:`;
  const list = words.map((part) =>
    el("li", { class: side(part) }, el("b", {}, signed(part.effect)), ` ${part.text}`),
  );
  return [...texts.map(mark), el("p", { class: "note" }, note), el("ul", { class: "words" }, list)];
}
