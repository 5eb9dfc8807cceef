// Questions to the server, with the key where one is asked for.

import { askForKey, currentKey } from "./key.js";

export class Problem extends Error {
  constructor(message, { status = 0, code = "", after = 0 } = {}) {
    super(message);
    Object.assign(this, { status, code, after });
  }
}

async function send(path, { body, signal } = {}) {
  const headers = {};
  const key = currentKey();
  if (key) headers.Authorization = `Bearer ${key}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const init = { headers, signal, method: body === undefined ? "GET" : "POST" };
  if (body !== undefined) init.body = JSON.stringify(body);
  try {
    return await fetch(path, init);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem("the server cannot be reached; is it still running?");
  }
}

// Ask, and ask for a key for as long as none that is given is right.
async function request(path, options) {
  let response = await send(path, options);
  while (response.status === 401) {
    if (!(await askForKey()))
      throw new Problem("without a key this server answers nothing", { status: 401 });
    response = await send(path, options);
  }
  if (response.ok) return response;
  const told = await response.json().catch(() => ({}));
  throw new Problem(told.error?.message ?? `the server answered ${response.status}`, {
    status: response.status,
    code: told.error?.code,
    after: Number(response.headers.get("Retry-After")) || 0,
  });
}

async function read(response) {
  try {
    return await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem("the connection broke before the whole answer had come");
  }
}

export async function get(path, signal) {
  return read(await request(path, { signal }));
}

export async function post(path, body, signal) {
  return read(await request(path, { body, signal }));
}

// Ask for something that may have to be made first; `tell` hears how far it is.
export async function getMade(path, tell, signal) {
  for (;;) {
    const response = await request(path, { signal });
    if (response.status !== 202) return response;
    tell((await read(response)).step);
    await pause(700, signal);
  }
}

export function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      reject(new DOMException("stopped", "AbortError"));
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, milliseconds);
    if (signal?.aborted) stop();
    else signal?.addEventListener("abort", stop, { once: true });
  });
}

export function runPath(name, rest = "") {
  return `/v1/runs/${encodeURIComponent(name)}${rest}`;
}

// Runs that can be asked, each with its tasks' facts. Asked once.
let served = null;

export async function listServed() {
  served ??= Promise.all([get("/v1/runs"), get("/v1/tasks")]);
  try {
    const [{ runs, left_out: leftOut, shows_data: showsData }, { tasks }] = await served;
    const found = runs.map((run) => ({
      ...run,
      tasks: tasks.filter((task) => task.run === run.name),
    }));
    return { runs: found, leftOut, showsData };
  } catch (error) {
    served = null;
    throw error;
  }
}
