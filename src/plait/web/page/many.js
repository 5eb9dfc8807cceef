// Many rows are asked in requests of a size that the server takes, a few at a time.

import { pause, post } from "./api.js";

const MOST_ROWS = 64;
const MOST_LETTERS = 150_000;
const NUM_AT_ONCE = 2;
const MOST_TRIES = 8;

// Answer every row into `keep`; return those that could not be, each with the reason.
export async function answerAll({ run, tasks, table, places, hear, signal, keep }) {
  const problems = [];
  const wanted = {
    one: tasks.filter((task) => task.num_texts === 1),
    two: tasks.filter((task) => task.num_texts === 2),
  };
  const inputs = [];
  table.rows.forEach((row, number) => {
    const texts = places.map((place) => row[place] ?? "");
    const asked = {};
    if (wanted.one.length && texts[0].trim()) asked.one = texts[0];
    if (wanted.two.length && texts[0].trim() && texts[1].trim()) asked.two = texts;
    if (Object.keys(asked).length) inputs.push({ number, asked });
    else problems.push({ row: number, reason: "it has no text" });
  });
  let done = problems.length;
  const parcels = cut(inputs);
  const work = async () => {
    for (let parcel = parcels.shift(); parcel; parcel = parcels.shift()) {
      await answer(parcel);
      hear(done);
    }
  };
  const answer = async (parcel) => {
    try {
      const found = await askParcel(parcel);
      parcel.forEach(({ number }, i) => keep.put(number, found[i]));
      done += parcel.length;
    } catch (error) {
      if (![413, 422, 500, 503, 504].includes(error.status)) throw error;
      if (parcel.length === 1) {
        problems.push({ row: parcel[0].number, reason: error.message });
        done += 1;
        return;
      }
      const half = Math.ceil(parcel.length / 2); // one is the cause, the others are answered
      await answer(parcel.slice(0, half));
      await answer(parcel.slice(half));
    }
  };
  const askParcel = async (parcel) => {
    const found = parcel.map(() => ({}));
    for (const [kind, some] of Object.entries(wanted)) {
      const rows = parcel
        .map((input, i) => [input.asked[kind], i])
        .filter(([texts]) => texts !== undefined);
      if (!rows.length) continue;
      const body = {
        run,
        tasks: some.map((task) => task.name),
        inputs: rows.map(([texts]) => texts),
        probabilities: false,
      };
      const { answers } = await patiently(() => post("/v1/predict", body, signal), signal);
      rows.forEach(([, i], place) => Object.assign(found[i], answers[place]));
    }
    return found;
  };
  await Promise.all(Array.from({ length: NUM_AT_ONCE }, work));
  return problems.sort((one, other) => one.row - other.row);
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
