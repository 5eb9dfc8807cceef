// The columns that texts are read from, and those that answers are written into, which are called
// as `plait predict` calls them.

export class AnswerTable {
  #rows = [];

  constructor(table, tasks) {
    const taken = new Set(table.names);
    this.tasks = tasks.map((task) => {
      const free = [task.name, `predicted_${task.name}`, `plait_${task.name}`];
      const name =
        free.find((one) => columnsOf(task, one).every((column) => !taken.has(column))) ?? free[2];
      columnsOf(task, name).forEach((column) => taken.add(column));
      return [task, name];
    });
    this.names = this.tasks.flatMap(([task, name]) => columnsOf(task, name));
  }

  put(row, answers) {
    this.#rows[row] = answers;
  }

  cells(row) {
    return this.tasks.flatMap(([task, name]) => {
      const answer = this.#rows[row]?.[task.name];
      return answer ? cellsOf(task, answer) : columnsOf(task, name).map(() => "");
    });
  }
}

function columnsOf(task, name) {
  if (task.kind === "score") return [name];
  const several = task.kind === "labels" ? [`${name}_label_probabilities`] : [];
  return [name, `${name}_label`, `${name}_confidence`, ...several];
}

function cellsOf(task, answer) {
  if (task.kind === "score") return [shorten(answer.value)];
  if (task.kind !== "labels") return [answer.value, answer.label, shorten(answer.confidence)];
  const each = answer.label_probabilities.map(shorten);
  const joined = [answer.value, answer.labels, each].map((several) => several.join(task.label_separator));
  return [joined[0], joined[1], shorten(answer.confidence), joined[2]];
}

// Digits beyond the sixth depend on what a row was answered together with.
function shorten(number) {
  return number === null ? "" : Number(number.toFixed(6));
}

// Columns called as a task's own are, else those with the longest texts.
export function guessColumns({ names, rows }, tasks) {
  for (const task of [...tasks].sort((one, other) => other.num_texts - one.num_texts)) {
    if (task.columns.every((column) => names.includes(column))) return task.columns;
  }
  const some = rows.slice(0, 50);
  const lengths = names.map((_, i) => some.reduce((sum, row) => sum + row[i].length, 0));
  return [names[lengths.indexOf(Math.max(...lengths))]];
}
