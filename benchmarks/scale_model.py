"""Reckon what an update takes on several workers, from what it takes on one.

    python benchmarks/scale_model.py

Prints the tables of docs/how-to/cluster.md. An update is the sum of what nothing in it overlaps:

    compute   rows of a worker x time of a row, but no less than asking for its kernels takes
    update    what does not depend on the rows: AdamW, and copies of the weights
    surgery   the passes of an aggregator over the tasks' gradients
    reduce    a ring: 2 (W - 1) / W of the gradients' bytes over a link, one gradient per task
              where surgery wants them apart; and a latency for every step of the ring
    agree     the small things: outputs gathered, losses, whether to stop
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

RESULTS = Path(__file__).parent / "records"


@dataclass(frozen=True, slots=True)
class Machine:
    """Times of one worker, and what connects it to the others."""

    row_s: float
    fixed_s: float
    gradient_bytes: float
    memory_bytes_s: float
    """How fast long vectors are read and written; what surgery is made of."""
    link_bytes_s: float
    latency_s: float
    floor_s: float = 0.0
    """What asking for an update's kernels one by one takes, where they are not captured."""


@dataclass(frozen=True, slots=True)
class Update:
    """Where the seconds of an update go."""

    compute: float
    update: float
    surgery: float
    reduce: float
    agree: float

    @property
    def seconds(self) -> float:
        """All of them: nothing overlaps."""
        return self.compute + self.update + self.surgery + self.reduce + self.agree


SURGERY_PASSES = 4
"""Times that PCGrad reads or writes each task's gradient: dot products, projections, the sum."""
COLLECTIVES = 3
"""Small exchanges for each batch: outputs, labels, whether to stop."""


def reckon(machine: Machine, workers: int, batch: int, *, tasks: int = 1) -> Update:
    """Reckon an update of `batch` rows in all; of several `tasks`, surgery sees each apart."""
    rows = math.ceil(batch / workers)
    floor = tasks * machine.floor_s if workers > 1 else 0.0  # one worker captures its steps
    surgery = tasks * SURGERY_PASSES * machine.gradient_bytes / machine.memory_bytes_s
    sent = 2 * (workers - 1) / workers * tasks * machine.gradient_bytes
    steps = 2 * (workers - 1)
    return Update(
        compute=max(rows * machine.row_s, floor),
        update=machine.fixed_s,
        surgery=surgery if tasks > 1 else 0.0,
        reduce=sent / machine.link_bytes_s + steps * machine.latency_s,
        agree=COLLECTIVES * tasks * math.log2(workers) * machine.latency_s * 2,
    )


def fit(times: dict[int, float]) -> tuple[float, float]:
    """Return seconds of a row and of what does not depend on them, from two batch sizes."""
    (few, short), (many, long) = sorted(times.items())
    row = (long - short) / (many - few)
    return row, short - few * row


# --- BERT-base on H200s ------------------------------------------------------------------

BERT_BASE = 109_482_240
"""Parameters."""
NVLINK, NETWORK = 370e9, 40e9
"""Assumed bytes per second of a ring inside a host of 8, and between hosts (400 Gbit a GPU)."""
ASKING_S = 0.038
"""Assumed: ten times a captured step at a batch of 8, as docs/how-to/cluster.md says."""


def bert_base(workers: int) -> Machine:
    """Return an H200 as it was measured alone, and links as they are assumed."""
    times = {}
    for batch in (8, 256):
        record = json.loads((RESULTS / "gpu" / f"train-{batch}.json").read_text(encoding="utf-8"))
        times[batch] = record["plait"]["step_ms"] / 1000
    row, fixed = fit(times)
    return Machine(
        row_s=row,
        fixed_s=fixed,
        gradient_bytes=4 * BERT_BASE,
        memory_bytes_s=3.5e12,
        link_bytes_s=NVLINK if workers <= 8 else NETWORK,
        latency_s=5e-6 if workers <= 8 else 2e-5,
        floor_s=ASKING_S,
    )


def table(batches: dict[int, int], tasks: int) -> list[str]:
    """Return a table of Markdown: an update on 1, 8 and 64 GPUs, in milliseconds."""
    lines = ["| GPUs | rows | compute | update | surgery | reduce | agree | ms | rows/s | of one |"]
    lines += ["|---|---|---|---|---|---|---|---|---|---|"]
    alone = 0.0
    for workers, batch in batches.items():
        # Each task of an update has a batch of its own.
        found = reckon(bert_base(workers), workers, batch * tasks, tasks=tasks)
        rate = batch * tasks / found.seconds
        alone = alone or rate
        parts = (found.compute, found.update, found.surgery, found.reduce, found.agree)
        shown = [f"{1000 * part:.1f}" for part in (*parts, found.seconds)]
        cells = [str(workers), f"{batch * tasks:,}", *shown, f"{rate:,.0f}", f"{rate / alone:.1f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


TABLES = {
    "the same 256 rows an update": ({1: 256, 8: 256, 64: 256}, 1),
    "256 rows a GPU": ({1: 256, 8: 2048, 64: 16384}, 1),
    "1,024 rows a GPU": ({1: 1024, 8: 8192, 64: 65536}, 1),
    "256 rows a GPU of each of three tasks, with PCGrad": ({1: 256, 8: 2048, 64: 16384}, 3),
}


def main() -> None:
    for title, (batches, tasks) in TABLES.items():
        print(f"\n{title}\n")
        print("\n".join(table(batches, tasks)))


if __name__ == "__main__":
    main()
