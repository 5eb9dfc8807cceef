// A CSV is read here, its rows are answered, and it is given back with the answers beside them.

import { listServed } from "./api.js";
import { AnswerTable, guessColumns } from "./columns.js";
import { decode, format, readTable } from "./csv.js";
import { announce, choice, complain, el, field, sentence } from "./dom.js";
import { Many } from "./many.js";
import { count } from "./numbers.js";
import { TABLE } from "./samples.js";
import { drawTable } from "./tables.js";

const NUM_SHOWN = 3; // of the rows that were given
const NUM_ANSWERED = 8;
const NUM_SHORT = 30; // letters that a narrow column can do with
const MOST_BYTES = 200e6;

export async function showFile(place, { signal }) {
  const { runs } = await listServed();
  const work = el("section", { "aria-label": "Your file" });
  const take = (text, name) => {
    try {
      work.replaceChildren(new Work(runs, readTable(text, name), signal).node);
      work.querySelector("h2").focus();
    } catch (error) {
      work.replaceChildren(complain(error));
    }
  };
  place.append(
    el("h1", {}, "Answer a whole file"),
    el(
      "p",
      { class: "lead" },
      "Give a CSV, choose the column to read, and get it back with the answers as new columns.",
    ),
    drawInput(take, (error) => work.replaceChildren(complain(error))),
    work,
  );
}

function drawInput(take, refuse) {
  const read = async (file) => {
    if (!file) return;
    if (file.size > MOST_BYTES)
      refuse(new Error("the file is larger than 200 MB; use plait predict for it"));
    else {
      try {
        take(decode(await file.arrayBuffer()), file.name);
      } catch (error) {
        refuse(error);
      }
    }
  };
  const input = el("input", {
    type: "file",
    accept: ".csv,.tsv,.txt,text/csv",
    id: "file",
    change: (e) => read(e.target.files[0]),
  });
  const pasted = el("textarea", {
    rows: 3,
    id: "pasted",
    placeholder: "id,text\n1,The first row",
    spellcheck: "false",
  });
  pasted.addEventListener("paste", () => setTimeout(() => take(pasted.value, "pasted.csv")));
  const zone = el(
    "div",
    { class: "drop" },
    el(
      "div",
      {},
      el("label", { for: "file", class: "big" }, "Drop a CSV here, or choose one"),
      input,
    ),
    el("div", {}, el("label", { for: "pasted" }, "… or paste its rows"), pasted),
    el(
      "div",
      { class: "row" },
      el(
        "button",
        { type: "button", click: () => take(pasted.value, "pasted.csv") },
        "Use what is pasted",
      ),
      el(
        "button",
        {
          type: "button",
          click: () => {
            pasted.value = TABLE;
            take(TABLE, "sample.csv");
          },
        },
        "Sample",
      ),
    ),
  );
  const mark = (isOver) => (event) => {
    event.preventDefault();
    zone.classList.toggle("over", isOver);
  };
  zone.addEventListener("dragover", mark(true));
  zone.addEventListener("dragleave", mark(false));
  zone.addEventListener("drop", (event) => {
    mark(false)(event);
    read(event.dataTransfer.files[0]);
  });
  return zone;
}

class Work {
  constructor(runs, table, signal) {
    Object.assign(this, { runs, table, signal, run: runs[0] });
    this.settings = el("div");
    this.outcome = el("div");
    this.node = el(
      "div",
      {},
      el("h2", { tabindex: "-1" }, table.name),
      el(
        "p",
        { class: "note" },
        `${count(table.rows.length, "row")}, ${count(table.names.length, "column")}`,
      ),
      drawRows(table.names, table.rows),
      this.settings,
      this.outcome,
    );
    this.draw();
  }

  draw() {
    const { names } = this.table;
    const isPairs = this.run.tasks.some((task) => task.num_texts === 2);
    const guessed = guessColumns(this.table, this.run.tasks);
    this.columns = [choice(names, guessed[0]), choice([["", "none"], ...names], guessed[1] ?? "")];
    this.columns.forEach((column) => column.addEventListener("change", () => this.fit()));
    this.boxes = this.run.tasks.map((task) => [
      task,
      el("input", { type: "checkbox", name: "task" }),
    ]);
    this.button = el("button", { class: "main", type: "button", click: () => this.go() });
    this.boxes.forEach(([, box]) => box.addEventListener("change", () => this.relabel()));
    const several = this.runs.length > 1;
    const pick = (event) => {
      this.run = this.runs.find((run) => run.name === event.target.value);
      this.draw();
      this.settings.querySelector("select").focus();
    };
    this.settings.replaceChildren(
      el(
        "div",
        { class: "choices" },
        several &&
          field(
            "Run",
            choice(
              this.runs.map((run) => run.name),
              this.run.name,
              { change: pick },
            ),
          ),
        field("Text is in", this.columns[0]),
        isPairs && field("Second text is in", this.columns[1]),
      ),
      el(
        "fieldset",
        { class: "checks" },
        el("legend", {}, "Tasks"),
        this.boxes.map(([task, box]) =>
          el(
            "label",
            {},
            box,
            el("span", {}, task.name),
            el("span", { class: "note" }, describe(task)),
          ),
        ),
      ),
      el("div", { class: "row" }, this.button),
    );
    this.fit();
  }

  // Tasks that the chosen columns suit are ticked, and no other can be.
  fit() {
    const isPair = this.columns[1].value !== "";
    for (const [task, box] of this.boxes) {
      box.disabled = task.num_texts === 2 && !isPair;
      box.checked = task.num_texts === (isPair ? 2 : 1);
    }
    this.relabel();
  }

  get tasks() {
    return this.boxes.filter(([, box]) => box.checked).map(([task]) => task);
  }

  relabel() {
    this.button.textContent = `Answer ${count(this.table.rows.length, "row")}`;
    this.button.disabled = !this.tasks.length;
  }

  go() {
    const { table } = this;
    const places = this.columns.map((column) => table.names.indexOf(column.value));
    const keep = new AnswerTable(table, this.tasks);
    this.goOn(new Many({ run: this.run.name, tasks: this.tasks, table, places, keep }));
  }

  async goOn(many) {
    const { table } = this;
    this.stop?.abort(); // what is still answered of an earlier choice
    const stop = new AbortController();
    this.stop = stop;
    this.signal.addEventListener("abort", () => stop.abort());
    const bar = el("progress", { max: table.rows.length, "aria-label": "Rows answered" });
    const told = el("p", { class: "note" });
    const progress = el(
      "div",
      { class: "progress" },
      bar,
      told,
      el("button", { type: "button", click: () => stop.abort() }, "Stop"),
    );
    this.button.disabled = true;
    this.button.classList.add("main");
    this.outcome.replaceChildren(progress);
    announce("Answering");
    const [began, before] = [performance.now(), many.done];
    const hear = () => {
      const left = table.rows.length - many.done;
      const pace = (many.done - before) / (performance.now() - began); // rows a millisecond
      const seconds = pace ? Math.ceil(left / pace / 1000) : 0;
      const more = seconds > 3 ? `, about ${seconds} s left` : "";
      bar.value = many.done;
      told.textContent = `${tellDone(many)}${more}`;
    };
    bar.value = before;
    try {
      await many.answer(hear, stop.signal);
      this.outcome.replaceChildren(...drawOutcome(many, this.signal));
      announce(`Done: ${count(table.rows.length, "row")} answered`);
    } catch (error) {
      if (this.stop !== stop) return; // the place is a later choice's
      const isWatched = progress.contains(document.activeElement);
      const onward = el("button", { class: "main", type: "button" }, "Continue");
      onward.addEventListener("click", () => this.goOn(many));
      this.outcome.replaceChildren(...drawStop(many, error, onward, this.signal));
      if (isWatched) onward.focus();
    } finally {
      if (this.stop === stop) {
        this.button.disabled = false;
        this.button.classList.remove("main"); // there is something else to do next
      }
    }
  }
}

function tellDone(many) {
  return `${many.done.toLocaleString("en")} of ${count(many.table.rows.length, "row")}`;
}

// What was answered until something came in between.
function drawStop(many, error, onward, signal) {
  const where = `Stopped after ${tellDone(many)}`;
  const answered = join(many);
  const told =
    error.name === "AbortError"
      ? el("p", { class: "note", role: "status" }, `${where}.`)
      : el("p", { class: "problem", role: "alert" }, sentence(`${where}: ${error.message}`));
  if (!many.done) return [told, el("div", { class: "row" }, onward)];
  const link = drawDownload(answered, "partly-answered", signal, "button");
  return [told, el("div", { class: "row" }, onward, link), ...drawAnswers(answered, many)];
}

function drawOutcome(many, signal) {
  const answered = join(many);
  const link = drawDownload(answered, "answered", signal, "main");
  return [el("p", { class: "done" }, link), ...drawAnswers(answered, many)];
}

// A table with the answers beside its own columns.
function join({ table, keep }) {
  const rows = table.rows.map((row, i) => [...row, ...keep.cells(i)]);
  return { ...table, names: [...table.names, ...keep.names], rows };
}

function drawDownload({ name, names, rows, separator, mark }, word, signal, kind) {
  const text = mark + format([names, ...rows], separator);
  const href = URL.createObjectURL(new Blob([text], { type: "text/csv;charset=utf-8" }));
  signal.addEventListener("abort", () => URL.revokeObjectURL(href));
  const file = addWord(name, word);
  return el("a", { class: kind, href, download: file }, `Download ${file}`);
}

function drawAnswers({ names, rows }, { problems, keep }) {
  return [
    problems.length > 0 && el("p", { class: "problem" }, tellProblems(problems)),
    drawRows(names, rows, new Set(keep.names)),
  ].filter(Boolean);
}

function addWord(name, word) {
  const [, stem, ending] = name.match(/^(.*?)(\.\w+)?$/s);
  return `${stem}-${word}${ending ?? ".csv"}`;
}

function tellProblems(problems) {
  const [first] = problems;
  return `${count(problems.length, "row")} left empty. Row ${first.row + 1}: ${first.reason}.`;
}

function drawRows(names, rows, marked = new Set()) {
  const most = marked.size ? NUM_ANSWERED : NUM_SHOWN;
  const left = rows.length - most;
  const shown = rows.slice(0, most).map((row) => row.map((cell) => shorten(String(cell))));
  const kinds = names.map((name, i) => {
    if (marked.has(name)) return "new";
    return shown.some((row) => row[i].length > NUM_SHORT) ? "long" : null;
  });
  const options = { column: (i) => kinds[i], kind: "cells" };
  const label = marked.size ? "First answered rows" : "First rows";
  return el(
    "div",
    {},
    drawTable(label, names.map(shorten), shown, options),
    left > 0 && el("p", { class: "note" }, `… and ${count(left, "more row")}`),
  );
}

function shorten(text) {
  return text.length > 120 ? `${text.slice(0, 119)}…` : text;
}

function describe(task) {
  return task.num_texts === 2 ? "reads two texts" : "reads one text";
}
