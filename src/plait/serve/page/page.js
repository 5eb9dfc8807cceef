// What both views use: requests to the server, elements, numbers.

const KEY = "plait-key";
let key = sessionStorage.getItem(KEY) ?? ""; // kept until the tab is closed

export class ServerError extends Error {
  constructor(message, status = 0, retryAfter = 0) {
    super(message);
    Object.assign(this, { status, retryAfter });
  }
}

async function send(path, body, signal, sentKey) {
  const headers = { "Content-Type": "application/json" };
  if (sentKey) headers.Authorization = `Bearer ${sentKey}`;
  const method = body === undefined ? "GET" : "POST";
  try {
    return await fetch(path, { method, headers, signal, body: JSON.stringify(body) });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError("The server cannot be reached. Is it still running?");
  }
}

// Return the JSON of a response. While the server refuses the API key, ask for another.
export async function request(path, body, signal) {
  for (;;) {
    const sentKey = key;
    const response = await send(path, body, signal, sentKey);
    if (response.status === 401) {
      if (sentKey === key) askForKey(); // unless another request has asked meanwhile
      continue;
    }
    const found = await response.json().catch(() => null);
    if (response.ok && found !== null) return found;
    if (response.ok) throw new ServerError("The connection broke during the answer.");
    const message = found?.error?.message ?? `The server answered with status ${response.status}.`;
    throw new ServerError(message, response.status, Number(response.headers.get("Retry-After")));
  }
}

function askForKey() {
  const given = prompt(key ? "This API key is not valid. Try another:" : "API key of this server:");
  if (!given) throw new ServerError("This server needs an API key. Reload the page to enter it.");
  key = given.trim();
  sessionStorage.setItem(KEY, key);
}

// Runs with their tasks.
export async function listRuns() {
  const { runs } = await request("/v1/runs");
  const { tasks } = await request("/v1/tasks");
  return runs.map((run) => ({ ...run, tasks: tasks.filter((task) => task.run === run.name) }));
}

export function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(new DOMException("stopped", "AbortError"));
    });
  });
}

// --- elements --------------------------------------------------------------------------

// Attributes that are null or false are left out; functions become listeners. Texts become text
// nodes, never HTML.
export function el(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [attribute, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") node.addEventListener(attribute, value);
    else node.setAttribute(attribute, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child || child === 0));
  return node;
}

export function fillSelect(select, options, chosen) {
  select.replaceChildren(
    ...options
      .map((one) => (Array.isArray(one) ? one : [one, one]))
      .map(([value, text]) => el("option", { value, selected: value === chosen }, text)),
  );
  return select;
}

let numFields = 0;

export function field(label, control) {
  control.id = `field-${++numFields}`;
  return el("div", { class: "field" }, el("label", { for: control.id }, label), control);
}

// Tell screen readers of a change elsewhere on the page.
export function announce(text) {
  document.getElementById("status").textContent = text;
}

export function showError(error) {
  if (error?.name === "AbortError") return;
  const place = document.getElementById("problem");
  place.hidden = !error;
  place.textContent = error?.message ?? "";
}

// --- numbers ---------------------------------------------------------------------------

export function percent(share) {
  if (share === null || share === undefined) return "–";
  if (share > 0 && share < 0.005) return "<1%";
  if (share < 1 && share >= 0.995) return ">99%";
  return `${Math.round(100 * share)}%`;
}

export function decimals(value) {
  return value === null ? "–" : value.toFixed(2).replace("-", "−");
}

export function count(number, noun) {
  return `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
}
