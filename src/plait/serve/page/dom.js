// Elements out of plain values. Texts become text nodes, never HTML.

const SVG = "http://www.w3.org/2000/svg";

// Attributes that are null or false are left out; functions become listeners; `style` is an object.
function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") node.addEventListener(name, value);
    else if (name === "style") {
      for (const [key, what] of Object.entries(value)) node.style.setProperty(key, what);
    } else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== false));
  return node;
}

export function el(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

export function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

let numIds = 0;

// A labelled control: the label stands above it.
export function field(label, control, attributes = {}) {
  control.id ||= `field-${++numIds}`;
  return el(
    "div",
    { class: "field", ...attributes },
    el("label", { for: control.id }, label),
    control,
  );
}

export function choice(options, chosen, attributes = {}) {
  const entries = options.map((one) => (Array.isArray(one) ? one : [one, one]));
  return el(
    "select",
    attributes,
    entries.map(([value, text]) => el("option", { value, selected: value === chosen }, text)),
  );
}

// Say something to those who do not see the page change.
export function announce(text) {
  let place = document.getElementById("said");
  if (!place) {
    place = el("p", { id: "said", class: "unseen", role: "status" });
    document.body.append(place);
  }
  place.textContent = text;
}

export function complain(error) {
  return el("p", { class: "problem", role: "alert" }, sentence(error.message));
}

export function sentence(text) {
  const trimmed = text.trim();
  return trimmed.charAt(0).toUpperCase() + trimmed.slice(1) + (/[.!?]$/.test(trimmed) ? "" : ".");
}
