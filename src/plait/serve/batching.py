"""Group the texts of many requests into batches, oldest first, and run the models on them.

The texts of a batch may have any lengths: plait's own BERT does not pad them on a CPU.
"""

from __future__ import annotations

import math
import time
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import islice
from threading import Condition, Thread
from typing import TYPE_CHECKING, Any

from plait.serve.middleware import RequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from plait.inference.predictor import Answerer

Answer = dict[str, Any]
"""A `Prediction` for each task, or the text's vector under VECTOR."""

VECTOR = ""
BATCH_SIZE = 32
SMALL_BATCH = 8
"""Rows that a batch may always have; smaller batches take longer per row."""
WAIT_SECONDS = 0.005
"""Time that a row waits for others to join its batch."""


class Job:
    """The inputs of one request, and their answers so far."""

    def __init__(self, num_inputs: int):
        self.answers: list[Answer] = [{} for _ in range(num_inputs)]
        self.num_left = 0
        """Rows without an answer."""
        self.future: Future[list[Answer]] = Future()


@dataclass(slots=True, eq=False)
class Row:
    """One input of a job in one pass of an encoder."""

    job: Job
    place: int
    """Index of the input in its job."""
    run: str
    group: tuple[str, ...]
    """All tasks that share the pass; empty for a vector."""
    tasks: tuple[str, ...]
    """The tasks to answer, out of `group`."""
    texts: tuple[str, ...]
    added: float = 0.0
    """Time at which the queue accepted it (`time.monotonic`)."""


def make_rows(
    job: Job,
    run: str,
    passes: Sequence[tuple[str, ...]],
    inputs: Sequence[tuple[str, ...]],
    tasks: Sequence[Sequence[str]],
) -> list[Row]:
    """Split a job into rows: one for each input and each pass that its tasks need.

    `passes` are the run's tasks, grouped by the pass they share. `tasks` are those of each input;
    an input without tasks gets a vector.
    """
    rows = []
    for place, (texts, wanted) in enumerate(zip(inputs, tasks, strict=True)):
        for group in passes if wanted else [()]:
            some = tuple(task for task in wanted if task in group)
            if some or not wanted:
                rows.append(Row(job, place, run, group, some, texts))
    job.num_left = len(rows)
    return rows


class Queue:
    """Rows that wait for the models, or are in a batch: `size` at most.

    Methods may be called from any thread, `take` from one.
    """

    def __init__(self, size: int, batch_size: int = BATCH_SIZE, wait: float = WAIT_SECONDS):
        self._size, self._batch_size, self._wait = size, batch_size, wait
        self._waiting: deque[Row] = deque()
        self._changed = Condition()
        self._num_taken = 0
        self._rate = 100.0
        """Rows per second, as a moving average."""
        self._is_closed = False

    def __len__(self) -> int:
        """Return the number of rows without an answer."""
        return len(self._waiting) + self._num_taken

    def put(self, rows: Sequence[Row]) -> None:
        """Add all rows, or refuse all with a RequestError."""
        with self._changed:
            if self._is_closed:
                raise RequestError(503, "stopping", "The server is stopping", Retry_After="2")
            if len(rows) > self._size:
                raise RequestError(422, "too_many_inputs", "Too many inputs and tasks; send fewer")
            if len(self) + len(rows) > self._size:
                seconds = str(min(60, max(1, math.ceil(len(self) / self._rate))))
                message = f"The queue is full. Retry in {seconds} s"
                raise RequestError(429, "busy", message, Retry_After=seconds)
            now = time.monotonic()
            for row in rows:
                row.added = now
            self._waiting.extend(rows)
            self._changed.notify()

    def take(self) -> list[Row]:
        """Wait for a batch and take it; return no rows once the queue is closed and empty."""
        with self._changed:
            while True:
                if not self._waiting:
                    if self._is_closed:
                        return []
                    self._changed.wait()
                    continue
                oldest = self._waiting[0]
                alike = self._find_alike(oldest)
                left = oldest.added + self._wait - time.monotonic()
                if len(alike) >= self._batch_size or left <= 0 or self._is_closed:
                    return self._remove(alike[: self._choose_size()])
                self._changed.wait(left)

    def _find_alike(self, oldest: Row) -> list[Row]:
        """Return the rows that share the oldest one's pass, at most a batch of them."""
        alike = (r for r in self._waiting if (r.run, r.group) == (oldest.run, oldest.group))
        return list(islice(alike, self._batch_size))

    def _choose_size(self) -> int:
        """Return how many rows the next batch may have: half of those that wait.

        The other half keeps the models busy while clients that got an answer send new requests.
        """
        return min(self._batch_size, max(SMALL_BATCH, math.ceil(len(self) / 2)))

    def _remove(self, batch: list[Row]) -> list[Row]:
        taken = set(map(id, batch))
        self._waiting = deque(row for row in self._waiting if id(row) not in taken)
        self._num_taken += len(batch)
        return batch

    def finish(self, rows: Sequence[Row], answers: Iterable[Answer], seconds: float) -> None:
        """Give answers to the jobs; a job without rows left is done."""
        done = []
        with self._changed:
            self._num_taken -= len(rows)
            self._rate += 0.1 * (len(rows) / max(seconds, 1e-4) - self._rate)
            for row, answer in zip(rows, answers, strict=True):
                row.job.answers[row.place] |= answer
                row.job.num_left -= 1
                if not row.job.num_left:
                    done.append(row.job)
        for job in done:
            if job.future.set_running_or_notify_cancel():
                job.future.set_result(job.answers)

    def fail(self, rows: Sequence[Row], error: Exception) -> None:
        """End the jobs of these rows with an error."""
        jobs = dict.fromkeys(row.job for row in rows)
        with self._changed:
            self._num_taken -= len(rows)
        for job in jobs:
            self.drop(job)
            if not job.future.done() and job.future.set_running_or_notify_cancel():
                job.future.set_exception(error)

    def drop(self, job: Job) -> None:
        """Remove the rows of a job that are not in a batch yet."""
        with self._changed:
            self._waiting = deque(row for row in self._waiting if row.job is not job)

    def close(self) -> None:
        """Accept no more rows; those that wait are still given out."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()


class ModelThread(Thread):
    """Answers the batches of a queue until it is closed and empty."""

    def __init__(
        self,
        queue: Queue,
        models: Mapping[str, Answerer],
        record: Callable[[Sequence[Row], float], None],
    ):
        super().__init__(name="models", daemon=True)
        self._queue, self._models, self._record = queue, models, record

    def run(self) -> None:
        """Take batches and answer them."""
        while rows := self._queue.take():
            began = time.monotonic()
            try:
                answers = answer_rows(self._models[rows[0].run], rows)
            except Exception as error:  # the requests of the batch fail, the thread goes on
                self._queue.fail(rows, error)
                continue
            seconds = time.monotonic() - began
            self._record(rows, seconds)
            self._queue.finish(rows, answers, seconds)


def answer_rows(model: Answerer, rows: Sequence[Row]) -> list[Answer]:
    """Answer rows of one run and one pass."""
    if not rows[0].group:
        vectors = model.embed([text for (text,) in (r.texts for r in rows)])  # type: ignore[attr-defined]
        return [{VECTOR: vector} for vector in vectors.tolist()]
    tasks = [task for task in rows[0].group if any(task in row.tasks for row in rows)]
    found = model.answer_together(tasks, model.tokenise([row.texts for row in rows], blank=True))
    return [
        {task: model.describe(task, found[task][i]) for task in row.tasks}
        for i, row in enumerate(rows)
    ]
