// Many rows are asked in requests of a size that the server takes, a few at a time.

import { pause, post } from "./api.js";

const MOST_ROWS = 64;
const MOST_LETTERS = 150_000;
const NUM_AT_ONCE = 2;
const MOST_TRIES = 8;

// The rows of a table on their way. What was answered stays, whatever stops the rest.
export class Many {
  problems = []; // rows that cannot be answered, each with the reason
  #parcels;

  constructor({ run, tasks, table, places, keep }) {
    Object.assign(this, { run, table, keep });
    this.wanted = {
      one: tasks.filter((task) => task.num_texts === 1),
      two: tasks.filter((task) => task.num_texts === 2),
    };
    const inputs = [];
    table.rows.forEach((row, number) => {
      const texts = places.map((place) => row[place] ?? "");
      const asked = {};
      if (this.wanted.one.length && texts[0].trim()) asked.one = texts[0];
      if (this.wanted.two.length && texts[0].trim() && texts[1].trim()) asked.two = texts;
      if (Object.keys(asked).length) inputs.push({ number, asked });
      else this.problems.push({ row: number, reason: "it has no text" });
    });
    this.done = this.problems.length;
    this.#parcels = cut(inputs);
  }

  // Answer every row that is left into `keep`; `hear` is called with each step.
  async answer(hear, signal) {
    const halt = new AbortController();
    const stop = () => halt.abort();
    signal.addEventListener("abort", stop);
    if (signal.aborted) stop();
    const causes = [];
    const work = async () => {
      try {
        while (this.#parcels.length) {
          await this.#answerNext(halt.signal);
          hear();
        }
      } catch (error) {
        causes.push(error);
        halt.abort(); // what another has under way goes back as well
      }
    };
    await Promise.all(Array.from({ length: NUM_AT_ONCE }, work));
    signal.removeEventListener("abort", stop);
    this.problems.sort((one, other) => one.row - other.row);
    if (causes.length) throw causes[0];
  }

  async #answerNext(signal) {
    const parcel = this.#parcels.shift();
    try {
      const found = await this.#ask(parcel, signal);
      parcel.forEach(({ number }, i) => this.keep.put(number, found[i]));
      this.done += parcel.length;
    } catch (error) {
      if (!isOfRows(error)) {
        this.#parcels.unshift(parcel);
        throw error;
      }
      if (parcel.length === 1) {
        this.problems.push({ row: parcel[0].number, reason: error.message });
        this.done += 1;
        return;
      }
      const half = Math.ceil(parcel.length / 2); // one is the cause, the others are answered
      this.#parcels.unshift(parcel.slice(0, half), parcel.slice(half));
    }
  }

  async #ask(parcel, signal) {
    const found = parcel.map(() => ({}));
    for (const [kind, some] of Object.entries(this.wanted)) {
      const rows = parcel
        .map((input, i) => [input.asked[kind], i])
        .filter(([texts]) => texts !== undefined);
      if (!rows.length) continue;
      const body = {
        run: this.run,
        tasks: some.map((task) => task.name),
        inputs: rows.map(([texts]) => texts),
        probabilities: false,
      };
      const { answers } = await patiently(() => post("/v1/predict", body, signal), signal);
      rows.forEach(([, i], place) => Object.assign(found[i], answers[place]));
    }
    return found;
  }
}

// Whether fewer rows, or others, would be answered; else nothing would be now.
function isOfRows({ status, code }) {
  return [413, 422, 500, 504].includes(status) || code === "worker_died";
}

function cut(inputs) {
  const parcels = [];
  let parcel = [];
  let letters = 0;
  for (const input of inputs) {
    const size = Object.values(input.asked).flat().join("").length;
    if (parcel.length && (parcel.length === MOST_ROWS || letters + size > MOST_LETTERS)) {
      parcels.push(parcel);
      [parcel, letters] = [[], 0];
    }
    parcel.push(input);
    letters += size;
  }
  if (parcel.length) parcels.push(parcel);
  return parcels;
}

// Come again when the server says so.
async function patiently(ask, signal) {
  for (let tries = 1; ; tries++) {
    try {
      return await ask();
    } catch (error) {
      if (error.status !== 429 || tries === MOST_TRIES) throw error;
      await pause(1000 * (error.after || 1), signal);
    }
  }
}
