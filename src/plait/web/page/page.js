// Fills the table of tasks. Names are put in as text, never as HTML.
const place = document.getElementById("tasks");

function row(kind, cells) {
  const line = document.createElement("tr");
  for (const cell of cells) {
    line.append(Object.assign(document.createElement(kind), { textContent: cell }));
  }
  return line;
}

fetch("/v1/tasks")
  .then(async (response) => {
    const values = await response.json();
    if (!response.ok) throw new Error(values.error.message);
    const table = document.createElement("table");
    table.append(row("th", ["run", "task", "kind", "answers"]));
    for (const task of values.tasks) {
      const answers = task.range ? task.range.join(" to ") : task.labels.join(", ");
      table.append(row("td", [task.run, task.name, task.kind, answers]));
    }
    place.replaceChildren(table);
  })
  .catch((error) => { place.textContent = error.message; });
