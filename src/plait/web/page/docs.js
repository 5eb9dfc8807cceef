// The API as a page: every endpoint of openapi.json, what it takes and what it gives.

import { complain, el } from "./dom.js";

const place = document.getElementById("endpoints");

function follow(schema, api) {
  return schema?.$ref ? api.components.schemas[schema.$ref.split("/").pop()] : schema;
}

function nameType(schema, api) {
  if (!schema) return "";
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.anyOf) return [...new Set(schema.anyOf.map((one) => nameType(one, api)))].join(" or ");
  if (schema.enum ?? schema.const) return [schema.enum ?? schema.const].flat().join(" | ");
  if (schema.type === "array") {
    const items = nameType(schema.items, api) || "anything";
    return items.includes(" or ") ? `list of (${items})` : `list of ${items}`;
  }
  return { null: "nothing", string: "text", integer: "whole number", number: "number", boolean: "true or false", object: "object" }[schema.type] ?? "anything";
}

function drawFields(schema, api) {
  const known = follow(schema, api);
  const fields = Object.entries(known?.properties ?? {});
  if (!fields.length) return "";
  return el(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": `Fields of ${known.title}` },
    el(
      "table",
      {},
      el("thead", {}, el("tr", {}, ["Field", "Holds", ""].map((name) => (name ? el("th", { scope: "col" }, name) : el("td"))))),
      el("tbody", {}, fields.map(([name, field]) =>
        el("tr", {}, el("th", { scope: "row" }, el("code", {}, name)), el("td", {}, nameType(field, api)), el("td", {}, field.description ?? "")))),
    ),
  );
}

function drawExample(method, path, schema, api) {
  const example = follow(schema, api)?.example;
  if (!example) return "";
  const command = `curl -s ${location.origin}${path} -H 'Content-Type: application/json' \\\n  -d '${JSON.stringify(example)}'`;
  return el("pre", { tabindex: "0" }, command);
}

function drawEndpoint(method, path, about, api) {
  const takes = about.requestBody?.content["application/json"]?.schema;
  const [status, good] = Object.entries(about.responses)[0];
  const gives = good.content?.["application/json"]?.schema;
  const problems = Object.entries(about.responses).filter(([code]) => code !== status);
  return el(
    "section",
    { class: "endpoint" },
    el("h2", {}, el("code", {}, `${method.toUpperCase()} ${path}`)),
    el("p", {}, about.description ?? ""),
    drawExample(method, path, takes, api),
    takes ? [el("h3", {}, "Takes"), drawFields(takes, api)] : "",
    gives ? [el("h3", {}, "Gives"), drawFields(gives, api)] : "",
    el("details", {}, el("summary", {}, "Other answers"), el("ul", {}, problems.map(([code, one]) => el("li", {}, el("strong", {}, code), ` ${one.description}`)))),
  );
}

try {
  const api = await (await fetch("/openapi.json")).json();
  const order = Object.entries(api.paths).flatMap(([path, methods]) => Object.entries(methods).map(([method, about]) => [method, path, about]));
  place.replaceChildren(...order.map(([method, path, about]) => drawEndpoint(method, path, about, api)));
} catch {
  place.replaceChildren(complain(new Error("the description could not be read; is the server still running?")));
}
