// Answer the rows of a CSV and give it back with the answers as new columns.

import { announce, count, el, field, fillSelect, pause, request, showError } from "./page.js";
import { formatTable, readTable } from "./csv.js";

const MOST_BYTES = 200e6;
const BATCH_ROWS = 64;
const BATCH_CHARACTERS = 150_000;
const NUM_SENDERS = 2; // batches under way at the same time
const MOST_TRIES = 8;
const SHOWN_ROWS = 5;
const SHOWN_CHARACTERS = 120;

const SAMPLE = `id,review
1,A quiet little film that stayed with me for weeks.
2,"The soup was cold, the waiter was rude, and we were charged for both."
3,It does what it says and no more.
4,"Two hours long, and every minute of them is felt."
5,I have never laughed so hard at a funeral scene.
`;

export function startFile(runs) {
  const get = (id) => document.getElementById(id);
  const [zone, pasted, work] = [get("drop"), get("pasted"), get("work")];
  let controller = new AbortController();

  function take(bytes, name) {
    controller.abort(); // the file before
    controller = new AbortController();
    showError(null);
    try {
      work.replaceChildren(drawTable(runs, readTable(bytes, name), controller.signal));
      work.querySelector("h2").focus();
    } catch (error) {
      showError(error);
    }
  }

  async function takeFile(file) {
    if (!file) return;
    if (file.size < MOST_BYTES) take(await file.arrayBuffer(), file.name);
    else showError(new Error("The file is larger than 200 MB. Use `plait predict` for it."));
  }

  const takeText = () => take(new TextEncoder().encode(pasted.value), "pasted.csv");
  get("chosen").addEventListener("change", ({ target }) => takeFile(target.files[0]));
  get("use-pasted").addEventListener("click", takeText);
  get("use-sample").addEventListener("click", () => {
    pasted.value = SAMPLE;
    takeText();
  });
  for (const kind of ["dragover", "dragleave", "drop"]) {
    zone.addEventListener(kind, (event) => {
      event.preventDefault();
      zone.classList.toggle("over", kind === "dragover");
      if (kind === "drop") takeFile(event.dataTransfer.files[0]);
    });
  }
  return {};
}

// The table that was read, what to do with it, and what came of it.
function drawTable(runs, table, signal) {
  const runBox = fillSelect(el("select"), runs.map((run) => run.name));
  const columns = [el("select"), el("select")];
  const tasks = el("fieldset", { class: "checks" });
  const button = el("button", { class: "main", type: "button" });
  const outcome = el("div", { class: "outcome" });
  button.textContent = `Answer ${count(table.rows.length, "row")}`;
  const getRun = () => runs.find((run) => run.name === runBox.value);

  function fitColumns() {
    const [one, two] = guessColumns(table, getRun().tasks);
    fillSelect(columns[0], table.names, one);
    fillSelect(columns[1], [["", "none"], ...table.names], two ?? "");
    fitTasks();
  }

  // Select the tasks that read as many texts as columns are chosen.
  function fitTasks() {
    const numTexts = columns[1].value ? 2 : 1;
    const boxes = getRun().tasks.map((task) => {
      const [isFit, texts] = [task.num_texts === numTexts, count(task.num_texts, "text")];
      const box = el("input", { type: "checkbox", value: task.name, checked: isFit });
      box.disabled = !isFit;
      return el("label", {}, box, task.name, el("span", { class: "note" }, `reads ${texts}`));
    });
    tasks.replaceChildren(el("legend", {}, "Tasks"), ...boxes);
    button.disabled = !tasks.querySelector(":checked");
  }

  async function answer() {
    const names = [...tasks.querySelectorAll(":checked")].map((box) => box.value);
    const wanted = getRun().tasks.filter((task) => names.includes(task.name));
    const places = columns.filter((box) => box.value).map((box) => table.names.indexOf(box.value));
    button.disabled = true;
    await runJob(new FileJob(getRun().name, wanted, table, places), outcome, signal);
    button.disabled = false;
  }

  runBox.addEventListener("change", fitColumns);
  for (const box of columns) box.addEventListener("change", fitTasks);
  tasks.addEventListener("change", () => (button.disabled = !tasks.querySelector(":checked")));
  button.addEventListener("click", answer);
  fitColumns();
  const title = el("h2", { tabindex: "-1" }, table.name);
  const fields = [field("Text column", columns[0]), field("Second text column", columns[1])];
  const choices = el("div", { class: "choices" }, runs.length > 1 && field("Run", runBox), fields);
  const rows = drawRows("First rows", table.names, table.rows);
  return el("div", {}, title, rows, choices, tasks, el("div", { class: "row" }, button), outcome);
}

// Columns with the names of a task's own, or else the one with the longest texts.
function guessColumns({ names, rows }, tasks) {
  const byTexts = [...tasks].sort((one, other) => other.num_texts - one.num_texts);
  const named = byTexts.find((task) => task.columns.every((name) => names.includes(name)));
  if (named) return named.columns;
  const lengths = names.map((_, i) => rows.slice(0, 50).reduce((sum, row) => sum + row[i].length, 0));
  return [names[lengths.indexOf(Math.max(...lengths))]];
}

// Show the progress of a job, then its outcome; what was answered is kept if it stops.
async function runJob(job, outcome, signal) {
  const stop = new AbortController();
  const abort = () => stop.abort();
  signal.addEventListener("abort", abort);
  const bar = el("progress", { max: job.numRows, "aria-label": "Rows answered" });
  const note = el("p", { class: "note" });
  const stopButton = el("button", { type: "button", click: abort }, "Stop");
  outcome.replaceChildren(el("div", { class: "progress" }, bar, note, stopButton));
  announce("Answering");
  const show = () => {
    bar.value = job.numDone;
    note.textContent = `${job.numDone.toLocaleString("en")} of ${count(job.numRows, "row")}`;
  };
  show();
  let failure = null;
  await job.run(show, stop).catch((error) => (failure = error));
  if (signal.aborted) return;
  const where = `Stopped after ${note.textContent}`;
  const reason = failure?.name === "AbortError" ? "" : ` ${failure?.message}`;
  const resume = () => runJob(job, outcome, signal);
  const again = failure && el("button", { class: "main", type: "button", click: resume }, "Continue");
  const download = drawDownload(job, failure ? "partly-answered" : "answered", signal);
  outcome.replaceChildren(
    failure ? el("p", { class: "problem", role: "alert" }, `${where}.${reason}`) : "",
    job.problems.length ? el("p", { class: "problem" }, describeProblems(job.problems)) : "",
    el("div", { class: "row" }, again, download),
    drawRows("First answered rows", job.names, job.allRows()),
  );
  announce(failure ? where : `Done: ${count(job.numRows, "row")}`);
}

function describeProblems(problems) {
  const [{ number, reason }] = problems;
  return `${count(problems.length, "row")} left empty. Row ${number + 1}: ${reason}`;
}

function drawDownload(job, word, signal) {
  const [, stem, ending] = job.table.name.match(/^(.*?)(\.\w+)?$/s);
  const name = `${stem}-${word}${ending ?? ".csv"}`;
  const text = formatTable({ ...job.table, names: job.names, rows: job.allRows() });
  const href = URL.createObjectURL(new Blob([text], { type: "text/csv;charset=utf-8" }));
  signal.addEventListener("abort", () => URL.revokeObjectURL(href));
  return el("a", { class: "button", href, download: name }, `Download ${name}`);
}

function drawRows(label, names, rows) {
  const shorten = (cell) => {
    const text = String(cell);
    return text.length > SHOWN_CHARACTERS ? `${text.slice(0, SHOWN_CHARACTERS)}…` : text;
  };
  const head = names.map((name) => el("th", { scope: "col" }, shorten(name)));
  const drawRow = (row) => el("tr", {}, row.map((cell) => el("td", {}, shorten(cell))));
  const body = el("tbody", {}, rows.slice(0, SHOWN_ROWS).map(drawRow));
  const table = el("table", {}, el("thead", {}, el("tr", {}, head)), body);
  const place = { class: "scroll", tabindex: "0", role: "region", "aria-label": label };
  const more = rows.length - SHOWN_ROWS;
  const note = more > 0 && el("p", { class: "note" }, `… and ${count(more, "more row")}`);
  return el("div", {}, el("div", place, table), note);
}

// --- the job ---------------------------------------------------------------------------

// The rows of a table, sent in batches. Answers are kept, whatever stops the rest.
class FileJob {
  problems = []; // rows without an answer: their number and the reason
  numDone = 0;
  #answers = [];
  #batches = [[]];

  constructor(runName, tasks, table, places) {
    Object.assign(this, { runName, tasks, table, numRows: table.rows.length });
    this.columns = nameColumns(tasks, table.names);
    this.names = [...table.names, ...tasks.flatMap((task) => this.columns.get(task))];
    let size = 0;
    table.rows.forEach((row, number) => {
      const texts = places.map((place) => row[place]);
      if (!texts.every((text) => text.trim())) {
        this.#skip(number, "it has no text.");
        return;
      }
      const length = texts.join("").length;
      size += length;
      if (this.#batches.at(-1).length === BATCH_ROWS || size > BATCH_CHARACTERS) {
        this.#batches.push([]);
        size = length;
      }
      this.#batches.at(-1).push({ number, input: texts.length === 2 ? texts : texts[0] });
    });
    this.#batches = this.#batches.filter((batch) => batch.length);
  }

  #skip(number, reason) {
    this.problems.push({ number, reason });
    this.numDone += 1;
  }

  // Return the rows of the table with their answers.
  allRows() {
    const write = (found, task) =>
      found ? writeCells(task, found[task.name]) : this.columns.get(task).map(() => "");
    return this.table.rows.map((row, i) => [
      ...row,
      ...this.tasks.flatMap((task) => write(this.#answers[i], task)),
    ]);
  }

  // Answer all rows that are left; `show` is called after each batch.
  async run(show, stop) {
    let failure = null;
    const send = async () => {
      while (this.#batches.length && !failure) {
        const batch = this.#batches.shift();
        try {
          await this.#answer(batch, stop.signal);
        } catch (error) {
          this.#batches.unshift(batch);
          failure ??= error;
          stop.abort();
        }
        show();
      }
    };
    await Promise.all(Array.from({ length: NUM_SENDERS }, send));
    if (failure) throw failure;
  }

  async #answer(batch, signal) {
    const body = {
      run: this.runName,
      tasks: this.tasks.map((task) => task.name),
      inputs: batch.map(({ input }) => input),
      probabilities: false,
    };
    try {
      const { answers } = await retry(() => request("/v1/predict", body, signal), signal);
      batch.forEach(({ number }, i) => (this.#answers[number] = answers[i]));
      this.numDone += batch.length;
    } catch (error) {
      if (![413, 422, 500, 504].includes(error.status)) throw error;
      if (batch.length === 1) {
        this.#skip(batch[0].number, error.message);
        return;
      }
      const half = Math.ceil(batch.length / 2); // one row is the cause: the others are answered
      this.#batches.unshift(batch.slice(0, half), batch.slice(half));
    }
  }
}

// Repeat a request that the server puts off, as long as it says.
async function retry(send, signal) {
  for (let tries = 1; ; tries++) {
    try {
      return await send();
    } catch (error) {
      if (error.status !== 429 || tries === MOST_TRIES) throw error;
      await pause(1000 * (error.retryAfter || 1), signal);
    }
  }
}

// Return the new columns of each task, named as `plait predict` does, without clashes.
function nameColumns(tasks, names) {
  const taken = new Set(names);
  return new Map(
    tasks.map((task) => {
      const endings = task.range ? [""] : ["", "_label", "_confidence"];
      if (task.label_separator) endings.push("_label_probabilities");
      const make = (stem) => endings.map((ending) => stem + ending);
      const stems = [task.name, `predicted_${task.name}`, `plait_${task.name}`];
      const isFree = (stem) => make(stem).every((column) => !taken.has(column));
      const columns = make(stems.find(isFree) ?? stems[2]);
      columns.forEach((column) => taken.add(column));
      return [task, columns];
    }),
  );
}

function writeCells(task, answer) {
  // More than six digits depend on the other texts of the batch.
  const round = (number) => (number === null ? "" : Number(number.toFixed(6)));
  if (task.range) return [round(answer.value)];
  if (!task.label_separator) return [answer.value, answer.label, round(answer.confidence)];
  const join = (several) => several.join(task.label_separator);
  const shares = join(answer.label_probabilities.map(round));
  return [join(answer.value), join(answer.labels), round(answer.confidence), shares];
}
