// CSV as in RFC 4180, separated by commas, semicolons or tabs.

const SEPARATORS = [",", ";", "\t"];
const BOM = "\ufeff"; // by which Excel recognises UTF-8

// Return a table: its names, rows of cells, separator and byte order mark.
export function readTable(bytes, name) {
  let text;
  try {
    text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw new Error("The file is not UTF-8. In Excel, save it as “CSV UTF-8”.");
  }
  if (text.includes("\0")) throw new Error("The file is not a CSV: it has NUL characters.");
  const separator = guessSeparator(text);
  const [names, ...rows] = parse(text, separator);
  if (!rows.length) throw new Error("The file needs a row of column names and rows below it.");
  const width = Math.max(names.length, ...rows.slice(0, 1000).map((row) => row.length));
  const fill = (row, make) => Array.from({ length: width }, (_, i) => row[i] || make(i));
  return {
    name,
    separator,
    bom: text.startsWith(BOM) ? BOM : "",
    names: fill(names, (i) => `column ${i + 1}`),
    rows: rows.map((row) => fill(row, () => "")),
  };
}

// Return the separator that cuts the first row into most cells.
function guessSeparator(text) {
  const head = text.slice(0, 10_000);
  const counts = SEPARATORS.map((separator) => parse(head, separator)[0]?.length ?? 0);
  return SEPARATORS[counts.indexOf(Math.max(...counts))];
}

// Return rows of cells, without empty lines.
function parse(text, separator) {
  const rows = [];
  let row = [];
  let cell = "";
  let quoted = false;
  const endRow = () => {
    row.push(cell);
    if (row.length > 1 || cell !== "") rows.push(row);
    [row, cell] = [[], ""];
  };
  for (let i = text.startsWith(BOM) ? 1 : 0; i < text.length; i++) {
    const character = text[i];
    if (quoted) {
      if (character !== '"') cell += character;
      else if (text[i + 1] === '"') cell += text[i++];
      else quoted = false;
    } else if (character === '"' && cell === "") quoted = true;
    else if (character === separator) {
      row.push(cell);
      cell = "";
    } else if (character === "\n" || character === "\r") {
      if (character === "\r" && text[i + 1] === "\n") i++;
      endRow();
    } else cell += character;
  }
  if (cell !== "" || row.length) endRow();
  return rows;
}

export function formatTable({ names, rows, separator, bom }) {
  const write = (cell) => {
    const text = String(cell);
    const isPlain = !text.includes(separator) && !/["\r\n]/.test(text);
    return isPlain ? text : `"${text.replaceAll('"', '""')}"`;
  };
  return bom + [names, ...rows].map((row) => `${row.map(write).join(separator)}\r\n`).join("");
}
