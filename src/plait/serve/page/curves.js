// Curves over updates, drawn to the width there is; each has a mark besides its colour.

import { el, svg } from "./dom.js";
import { figure } from "./numbers.js";
import { drawTable } from "./tables.js";

const HEIGHT = 240;
const NUM_COLOURS = 6;
const EDGE = { top: 12, bottom: 30, left: 44 };
const MARKS = ["circle", "square", "triangle"];

// `curves` are points [step, value] by name; `best` is a step to be marked.
export function drawCurves(title, curves, best, signal) {
  const known = Object.entries(curves)
    .map(([name, points]) => [name, points.filter(([, value]) => value !== null)])
    .filter(([, points]) => points.length);
  const frame = el("div", { class: "chart" });
  const draw = () =>
    frame.replaceChildren(drawChart(title, known, best, Math.max(280, frame.clientWidth)));
  const observer = new ResizeObserver(draw);
  observer.observe(frame);
  signal.addEventListener("abort", () => observer.disconnect());
  return el("figure", {}, drawLegend(known), frame, drawValues(title, known));
}

function drawLegend(known) {
  return el(
    "ul",
    { class: "legend" },
    known.map(([name], i) =>
      el(
        "li",
        {},
        svg(
          "svg",
          { width: 26, height: 12, "aria-hidden": "true", class: `series-${i % NUM_COLOURS}` },
          svg("path", { d: "M0 6H26" }),
          drawMark(i, 13, 6),
        ),
        name,
      ),
    ),
  );
}

function drawChart(title, known, best, width) {
  const right = 16;
  const points = known.flatMap(([, some]) => some);
  const [low, high, ticks] = scale(points.map(([, value]) => value));
  const last = Math.max(...points.map(([step]) => step), 1);
  const x = (step) => EDGE.left + (step / last) * (width - EDGE.left - right);
  const y = (value) =>
    EDGE.top + ((high - value) / (high - low)) * (HEIGHT - EDGE.top - EDGE.bottom);
  const line = (some) =>
    some
      .map(([step, value], i) => `${i ? "L" : "M"}${x(step).toFixed(1)} ${y(value).toFixed(1)}`)
      .join("");
  const describe = known
    .map(([name, some]) => `${name} from ${figure(some[0][1])} to ${figure(some.at(-1)[1])}`)
    .join("; ");
  return svg(
    "svg",
    { width, height: HEIGHT, role: "img", "aria-label": `${title}: ${describe}.` },
    ticks.map((tick) =>
      svg(
        "g",
        { class: "tick" },
        svg("path", { d: `M${EDGE.left} ${y(tick)}H${width - right}` }),
        svg("text", { x: EDGE.left - 8, y: y(tick) + 4, "text-anchor": "end" }, trim(tick)),
      ),
    ),
    stepTicks(last, width).map((step) =>
      svg(
        "text",
        { x: x(step), y: HEIGHT - 12, "text-anchor": step === 0 ? "start" : "middle" },
        step.toLocaleString("en"),
      ),
    ),
    svg("text", { x: width - right, y: HEIGHT - 12, "text-anchor": "end" }, "updates"),
    best > 0 && drawBest(x(best), best > last / 2),
    known.map(([name, some], i) =>
      svg(
        "g",
        { class: `series-${i % NUM_COLOURS}` },
        svg("path", { d: line(some) }),
        some.length <= 40 &&
          some.map(([step, value]) =>
            drawMark(i, x(step), y(value), `${name}: ${figure(value)} after ${step} updates`),
          ),
      ),
    ),
  );
}

function drawBest(x, isLate) {
  const y = EDGE.top;
  const [place, anchor] = isLate ? [x - 5, "end"] : [x + 5, "start"];
  return svg(
    "g",
    { class: "best" },
    svg("path", { d: `M${x} ${y}V${HEIGHT - EDGE.bottom}` }),
    svg("text", { x: place, y: y + 4, "text-anchor": anchor }, "best"),
  );
}

function drawMark(number, x, y, title) {
  const kind = MARKS[number % MARKS.length];
  const told = title ? [svg("title", {}, title)] : [];
  if (kind === "circle") return svg("circle", { cx: x, cy: y, r: 3.2 }, ...told);
  if (kind === "square") return svg("rect", { x: x - 3, y: y - 3, width: 6, height: 6 }, ...told);
  return svg("path", { class: "mark", d: `M${x} ${y - 4}l4 7h-8z` }, ...told);
}

// The ends of an axis, and round numbers between.
function scale(values) {
  let [low, high] = [Math.min(...values), Math.max(...values)];
  if (low > 0 && low < 0.5 * high) low = 0;
  if (low === high) [low, high] = [low - 0.5, high + 0.5];
  const room = 0.04 * (high - low);
  [low, high] = [low === 0 ? 0 : low - room, high + room];
  const step = roundUp((high - low) / 5);
  const first = Math.ceil(low / step);
  const ticks = Array.from({ length: Math.floor(high / step) - first + 1 }, (_, i) =>
    Number(((first + i) * step).toPrecision(12)),
  );
  return [low, high, ticks];
}

// Round numbers of updates, with room for the word at the end of the axis.
function stepTicks(last, width) {
  const step = Math.max(1, roundUp(last / Math.max(2, Math.floor(width / 130))));
  const most = last * (1 - 90 / width);
  return Array.from({ length: Math.floor(most / step) + 1 }, (_, i) => i * step);
}

// The next number that is 1, 2 or 5 times a power of ten.
function roundUp(number) {
  const power = 10 ** Math.floor(Math.log10(number));
  return [1, 2, 5, 10].map((factor) => factor * power).find((one) => one >= number);
}

function trim(number) {
  return String(number).replace("-", "−");
}

function drawValues(title, known) {
  const steps = [...new Set(known.flatMap(([, some]) => some.map(([step]) => step)))];
  const values = known.map(([, some]) => new Map(some));
  const rows = steps
    .sort((one, other) => one - other)
    .map((step) => [
      step.toLocaleString("en"),
      ...values.map((one) => (one.has(step) ? figure(one.get(step)) : "")),
    ]);
  const names = ["Updates", ...known.map(([name]) => name)];
  const options = { column: () => "number", hasHeads: true, isTall: true };
  return el(
    "details",
    {},
    el("summary", {}, "The same as a table"),
    drawTable(title, names, rows, options),
  );
}
