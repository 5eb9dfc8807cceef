// The API as a page: every endpoint of openapi.json, what it takes and what it gives.

import { complain, el } from "./dom.js";
import { drawTable } from "./tables.js";

const place = document.getElementById("endpoints");

const TYPES = {
  null: "nothing",
  string: "text",
  integer: "whole number",
  number: "number",
  boolean: "true or false",
  object: "object",
};

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
  return TYPES[schema.type] ?? "anything";
}

function drawFields(label, schema, api) {
  const fields = Object.entries(follow(schema, api)?.properties ?? {});
  if (!fields.length) return "";
  const rows = fields.map(([name, field]) => [
    el("code", {}, name),
    nameType(field, api),
    field.description ?? "",
  ]);
  const names = ["Field", "Holds", "Means"];
  const isTold = rows.some((row) => row[2]);
  const shown = isTold ? rows : rows.map((row) => row.slice(0, 2));
  return drawTable(label, isTold ? names : names.slice(0, 2), shown, { hasHeads: true });
}

function drawExample(path, schema, api) {
  const example = follow(schema, api)?.example;
  if (!example) return "";
  const header = "-H 'Content-Type: application/json'";
  const body = `-d '${JSON.stringify(example)}'`;
  const command = `curl -s ${location.origin}${path} ${header} \\\n  ${body}`;
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
    drawExample(path, takes, api),
    takes ? [el("h3", {}, "Takes"), drawFields(`What ${method} ${path} takes`, takes, api)] : "",
    gives ? [el("h3", {}, "Gives"), drawFields(`What ${method} ${path} gives`, gives, api)] : "",
    el(
      "details",
      {},
      el("summary", {}, "Other answers"),
      el(
        "ul",
        {},
        problems.map(([code, one]) => el("li", {}, el("strong", {}, code), ` ${one.description}`)),
      ),
    ),
  );
}

try {
  const api = await (await fetch("/openapi.json")).json();
  const order = Object.entries(api.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, about]) => [method, path, about]),
  );
  place.replaceChildren(
    ...order.map(([method, path, about]) => drawEndpoint(method, path, about, api)),
  );
} catch {
  place.replaceChildren(
    complain(new Error("the description could not be read; is the server still running?")),
  );
}
