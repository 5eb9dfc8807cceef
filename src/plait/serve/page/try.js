// Texts typed by hand, answered by every task that fits; by two runs, side by side, if wanted.

import { drawAnswer, explain, isSame, say } from "./answer.js";
import { listServed, pause, post } from "./api.js";
import { announce, choice, complain, el, field } from "./dom.js";
import { nextSample } from "./samples.js";
import { drawWhy } from "./why.js";

const PATIENCE = 400; // milliseconds after the last key before texts are sent

// By how many texts a task reads: what the choice is called, and how one is led to it.
const COUNTS = {
  1: { name: "One text", lead: "It reads one text: choose “One text” above." },
  2: { name: "Two texts", lead: "It reads two texts: choose “Two texts” above." },
};

export async function showTry(place, { params, signal }) {
  const { runs } = await listServed();
  const chosen = runs.find((run) => run.name === params.get("run")) ?? runs[0];
  const other = runs.find((run) => run.name === params.get("beside"));
  const form = new Form(runs, chosen, other, params.getAll("text").slice(0, 2), signal);
  const missing = ["run", "beside"]
    .map((name) => params.get(name))
    .find((name) => name && !runs.some((run) => run.name === name));
  place.append(
    el("h1", {}, "Try a sentence"),
    el("p", { class: "lead" }, "Type something, or take a sample. The model answers at once."),
    missing
      ? el(
          "p",
          { class: "problem", role: "status" },
          `There is no run ${missing} here; this is ${chosen.name}.`,
        )
      : "",
    form.node,
    form.answers,
  );
  if (form.isFilled) await form.ask();
  else form.explain();
}

class Form {
  constructor(runs, run, other, texts, signal) {
    Object.assign(this, { runs, run, other, signal });
    this.controller = new AbortController();
    this.boxes = [makeBox("Text", texts[0]), makeBox("Second text", texts[1])];
    this.wanted = texts.length || this.counts()[0];
    this.answers = el("section", { class: "answers", "aria-label": "Answers" });
    this.node = el("form", { class: "trying" });
    this.node.addEventListener("submit", (event) => {
      event.preventDefault();
      this.ask();
    });
    this.node.addEventListener("input", (event) => {
      if (event.target.matches("textarea")) this.askSoon();
    });
    this.node.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
        event.preventDefault();
        this.ask();
      }
    });
    signal.addEventListener("abort", () => this.controller.abort());
    this.draw();
  }

  // How many texts there may be: those that some task of the runs takes.
  counts() {
    const tasks = [...this.run.tasks, ...(this.other?.tasks ?? [])];
    return [1, 2].filter((count) => tasks.some((task) => task.num_texts === count));
  }

  get texts() {
    return this.boxes.slice(0, this.wanted).map((box) => box.value);
  }

  get isFilled() {
    return this.texts.every((text) => text.trim());
  }

  draw() {
    const counts = this.counts();
    if (!counts.includes(this.wanted)) [this.wanted] = counts;
    const isPair = this.wanted === 2;
    const names = this.runs.map((run) => run.name);
    this.node.replaceChildren(
      el(
        "div",
        { class: "choices" },
        names.length > 1 &&
          field(
            "Run",
            choice(names, this.run.name, { change: (e) => this.take({ run: e.target.value }) }),
          ),
        names.length > 1 &&
          field(
            "Compare with",
            choice(
              [["", "nothing"], ...names.filter((name) => name !== this.run.name)],
              this.other?.name ?? "",
              { change: (e) => this.take({ other: e.target.value }) },
            ),
          ),
        counts.length > 1 && this.drawCounts(),
      ),
      el(
        "div",
        { class: isPair ? "boxes pair" : "boxes" },
        field(isPair ? "First text" : "Text", this.boxes[0]),
        isPair && field("Second text", this.boxes[1]),
      ),
      el(
        "div",
        { class: "row" },
        el("button", { class: "main" }, "Answer"),
        el("button", { type: "button", click: () => this.takeSample() }, "Sample"),
        el("button", { type: "button", click: (event) => copyLink(event.target) }, "Copy link"),
        el("span", { class: "note hint" }, "Ctrl + Enter answers"),
      ),
    );
  }

  drawCounts() {
    const describe = (count) => {
      const names = new Set(
        [...this.run.tasks, ...(this.other?.tasks ?? [])]
          .filter((task) => task.num_texts === count)
          .map((task) => task.name),
      );
      return [...names].join(", ");
    };
    return el(
      "fieldset",
      { class: "segments" },
      el("legend", {}, "Input"),
      [1, 2].map((count) =>
        el(
          "label",
          { title: describe(count) },
          el("input", {
            type: "radio",
            name: "count",
            checked: count === this.wanted,
            change: () => {
              this.wanted = count;
              this.refresh(`[name=count]:checked`);
            },
          }),
          el("span", {}, COUNTS[count].name),
        ),
      ),
    );
  }

  take({ run, other }) {
    const find = (name) => this.runs.find((one) => one.name === name);
    if (run !== undefined) this.run = find(run);
    if (other !== undefined) this.other = find(other);
    if (this.other === this.run) this.other = undefined;
    this.refresh(run !== undefined ? "select" : ".field:nth-child(2) select");
  }

  // Draw anew, with the focus where it was, and answer what is there already.
  refresh(focused) {
    this.draw();
    this.node.querySelector(focused)?.focus();
    this.answers.replaceChildren();
    if (this.isFilled) this.ask();
    else this.rest();
  }

  // Before anything is asked: what would be answered, and what could be.
  explain() {
    const isHere = (task) => task.num_texts === this.wanted;
    const { tasks } = this.run;
    this.answers.replaceChildren(
      ...[...tasks.filter(isHere), ...tasks.filter((task) => !isHere(task))].map((task) =>
        el(
          "article",
          { class: "answer" },
          el("h2", {}, task.name),
          el("p", { class: "note" }, isHere(task) ? explain(task) : COUNTS[task.num_texts].lead),
        ),
      ),
    );
  }

  takeSample() {
    nextSample(this.texts).forEach((text, i) => {
      this.boxes[i].value = text;
    });
    this.ask();
  }

  // The address has all that is needed to come back here.
  remember() {
    const params = new URLSearchParams();
    if (this.runs.length > 1) params.set("run", this.run.name);
    if (this.other) params.set("beside", this.other.name);
    for (const text of this.texts) params.append("text", text);
    history.replaceState(null, "", `#/try?${params}`);
  }

  async askSoon() {
    const signal = this.restart();
    try {
      await pause(PATIENCE, signal);
    } catch {
      return; // another key was pressed
    }
    if (this.isFilled) await this.ask();
    else this.rest();
  }

  // There is nothing to ask: neither an answer that is on its way nor an old one is shown.
  rest() {
    this.restart();
    this.answers.removeAttribute("aria-busy");
    this.remember();
    this.explain();
  }

  restart() {
    this.controller.abort();
    this.controller = new AbortController();
    if (this.signal.aborted) this.controller.abort();
    return this.controller.signal;
  }

  async ask() {
    const signal = this.restart();
    this.remember();
    const empty = this.boxes.slice(0, this.wanted).find((box) => !box.value.trim());
    if (empty) {
      empty.focus();
      this.answers.removeAttribute("aria-busy");
      this.answers.replaceChildren(
        el("p", { class: "note" }, "Write something first, or take a sample."),
      );
      return;
    }
    const { texts } = this;
    this.answers.setAttribute("aria-busy", "true");
    try {
      const asked = [this.run, this.other].filter(Boolean);
      const found = await Promise.all(asked.map((run) => askRun(run, texts, signal)));
      this.answers.replaceChildren(...drawAnswers(found, texts, this.signal));
      announce(summarise(found));
    } catch (error) {
      if (error.name === "AbortError") return;
      this.answers.replaceChildren(complain(error));
    } finally {
      if (!signal.aborted) this.answers.removeAttribute("aria-busy");
    }
  }
}

function makeBox(label, text = "") {
  const box = el("textarea", {
    rows: 3,
    placeholder: "Any sentence",
    autocomplete: "off",
    dir: "auto",
  });
  box.value = text;
  return box;
}

// A run's answers: its tasks that take as many texts, each with what it said.
async function askRun(run, texts, signal) {
  const tasks = run.tasks.filter((task) => task.num_texts === texts.length);
  if (!tasks.length) return { run, answered: new Map() };
  const input = texts.length === 2 ? [texts] : [texts[0]];
  const { answers } = await post("/v1/predict", { run: run.name, inputs: input }, signal);
  return {
    run,
    answered: new Map(tasks.map((task) => [task.name, { task, answer: answers[0][task.name] }])),
  };
}

function drawAnswers(found, texts, signal) {
  const names = [...new Set(found.flatMap(({ answered }) => [...answered.keys()]))];
  return names.map((name) => drawTask(name, found, (run, task) => drawWhy(run, task, texts, signal)));
}

function drawTask(name, found, why) {
  const known = found.map(({ run, answered }) => ({ run, ...answered.get(name) }));
  const { task } = known.find((one) => one.task);
  const both = known.filter((one) => one.task);
  let verdict = null;
  if (both.length === 2 && both[0].task.kind === both[1].task.kind) {
    const agree = isSame(task, both[0].answer, both[1].answer);
    verdict = el(
      "span",
      { class: agree ? "tag" : "tag differs" },
      agree ? "they agree" : "they differ",
    );
  }
  return el(
    "article",
    { class: known.length === 2 ? "answer versus" : "answer" },
    el("div", { class: "head" }, el("h2", {}, name), verdict),
    task.about && el("p", { class: "note" }, task.about),
    known.length === 1
      ? [drawAnswer(task, known[0].answer), why(known[0].run, task)]
      : el(
          "div",
          { class: "sides" },
          known.map((side) => drawSide(side, why)),
        ),
  );
}

function drawSide({ run, task, answer }, why) {
  return el(
    "div",
    {},
    el("h3", {}, run.name),
    task
      ? [drawAnswer(task, answer), why(run, task)]
      : el("p", { class: "note" }, "has no such task"),
  );
}

function summarise(found) {
  return found
    .map(({ run, answered }) => {
      const said = [...answered.values()].map(
        ({ task, answer }) => `${task.name}: ${say(task, answer)}`,
      );
      return (found.length > 1 ? `${run.name}. ` : "") + said.join("; ");
    })
    .join(". ");
}

async function copyLink(button) {
  try {
    await navigator.clipboard.writeText(location.href);
    button.textContent = "Copied";
  } catch {
    button.textContent = "The address bar has it"; // not allowed outside of https and localhost
  }
  announce(button.textContent);
  setTimeout(() => {
    button.textContent = "Copy link";
  }, 2000);
}
