// CSV as RFC 4180 has it, with commas, semicolons or tabs between; and back.

const SEPARATORS = [",", ";", "\t"];

const MARK = "\ufeff"; // by which Excel knows UTF-8

// The text of a file, its mark included. Letters of another encoding would come out as others.
export function decode(bytes) {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw new Error("this is not UTF-8; in Excel, save it as “CSV UTF-8”");
  }
}

// The separator that cuts the first line into most cells.
export function guessSeparator(text) {
  const line = firstRecord(text);
  const counts = SEPARATORS.map((separator) => parse(line, separator)[0]?.length ?? 0);
  return SEPARATORS[counts.indexOf(Math.max(...counts))];
}

function firstRecord(text) {
  let quoted = false;
  for (let i = 0; i < text.length; i++) {
    if (text[i] === '"') quoted = !quoted;
    else if (text[i] === "\n" && !quoted) return text.slice(0, i);
  }
  return text;
}

// Rows of cells. Lines without anything are passed over.
export function parse(text, separator) {
  const rows = [];
  let row = [];
  let cell = "";
  let quoted = false;
  const endCell = () => {
    row.push(cell);
    cell = "";
  };
  const endRow = () => {
    endCell();
    if (row.length > 1 || row[0] !== "") rows.push(row);
    row = [];
  };
  for (let i = text.startsWith(MARK) ? 1 : 0; i < text.length; i++) {
    const letter = text[i];
    if (quoted) {
      if (letter !== '"') cell += letter;
      else if (text[i + 1] === '"') {
        cell += '"';
        i++;
      } else quoted = false;
    } else if (letter === '"' && cell === "") quoted = true;
    else if (letter === separator) endCell();
    else if (letter === "\n" || letter === "\r") {
      if (letter === "\r" && text[i + 1] === "\n") i++;
      endRow();
    } else cell += letter;
  }
  if (cell !== "" || row.length) endRow();
  return rows;
}

export function format(rows, separator) {
  const write = (cell) => {
    const text = cell === null || cell === undefined ? "" : String(cell);
    return text.includes(separator) || /["\r\n]/.test(text)
      ? `"${text.replaceAll('"', '""')}"`
      : text;
  };
  return rows.map((row) => row.map(write).join(separator) + "\r\n").join("");
}

// Cells by row, under names. A first row that looks like a text is no row of names.
export function readTable(text, name) {
  if (text.includes("\0")) throw new Error("this is no CSV: it holds bytes that are no text");
  const separator = guessSeparator(text);
  const rows = parse(text, separator);
  if (!rows.length)
    throw new Error("there is nothing in it; give a CSV with a row of names and rows below");
  const width = rows.reduce((most, row) => Math.max(most, row.length), 0);
  const hasNames =
    rows.length > 1 &&
    rows[0].every((cell) => cell.trim() && cell.length < 40) &&
    new Set(rows[0]).size === rows[0].length;
  const names = Array.from(
    { length: width },
    (_, i) => (hasNames && rows[0][i]) || `column ${i + 1}`,
  );
  const body = rows
    .slice(hasNames ? 1 : 0)
    .map((row) => Array.from({ length: width }, (_, i) => row[i] ?? ""));
  const mark = text.startsWith(MARK) ? MARK : "";
  return { name, separator, mark, names, rows: body };
}
