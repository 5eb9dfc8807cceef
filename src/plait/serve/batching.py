"""Rows of many requests become parcels: of one pass of one encoder, the oldest first.

A row waits a few milliseconds at most for others to come along. Lengths do not matter, since on a
CPU plait's own BERT pads none of them, and so nobody is passed over for others whose length suits
better. The queue has an end; what does not fit is refused.
"""

from __future__ import annotations

import math
import time
from collections import deque
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass
from itertools import islice
from threading import Condition
from typing import TYPE_CHECKING

from plait.serve.parcels import Ask

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from plait.serve.catalog import RunFacts
    from plait.serve.parcels import Answer


FEW = 8
"""Rows that a parcel may have however few there are; fewer take longer a row."""


class Full(Exception):  # noqa: N818 - it is a state, and the client's turn to wait
    """The queue has no room."""

    def __init__(self, seconds: int):
        self.seconds = seconds
        """When to come again."""
        super().__init__(f"the queue is full; come again in {seconds} s")


class Closed(Exception):  # noqa: N818 - as above
    """The queue takes nothing more."""


class Job:
    """A request on its way: its inputs, and what they have been answered so far."""

    def __init__(self, num_inputs: int):
        self.answers: list[Answer] = [{} for _ in range(num_inputs)]
        self.num_left = 0
        self.future: Future[list[Answer]] = Future()


@dataclass(slots=True, eq=False)
class Row:
    """One input of a job in one pass of an encoder."""

    job: Job
    place: int
    """Which of the job's inputs it is."""
    key: tuple[str, tuple[str, ...]]
    """Run and pass; rows of one key can be answered together."""
    tasks: tuple[str, ...]
    """What is asked of it, among the tasks of its pass."""
    texts: tuple[str, ...]
    born: float = 0.0
    is_second_try: bool = False


def make_rows(
    job: Job, run: RunFacts, inputs: Sequence[tuple[str, ...]], tasks: Sequence[Sequence[str]]
) -> list[Row]:
    """Break a job into rows: one for each input and each pass that its tasks need.

    `tasks` are those asked of each input; none asks for its vector.
    """
    rows = []
    for place, (texts, wanted) in enumerate(zip(inputs, tasks, strict=True)):
        groups: dict[tuple[str, ...], list[str]] = {}
        for task in wanted:
            groups.setdefault(run.pass_of(task), []).append(task)
        for group, some in (groups or {(): []}).items():
            rows.append(Row(job, place, (run.name, group), tuple(some), texts))
    job.num_left = len(rows)
    return rows


class Queue:
    """Where rows wait; safe to use from several threads."""

    def __init__(self, size: int, batch_size: int, wait_seconds: float, num_takers: int = 1):
        self._size, self._batch_size, self._wait = size, batch_size, wait_seconds
        self._num_takers = num_takers
        self._waiting: deque[Row] = deque()
        self._changed = Condition()
        self._num_out = 0
        """Rows that somebody took and has not finished."""
        self._rate = 100.0
        """Rows a second, of late."""
        self._is_closed = False

    def __len__(self) -> int:
        """Rows accepted and not yet answered."""
        return len(self._waiting) + self._num_out

    def put(self, rows: Sequence[Row]) -> None:
        """Accept rows, all or none."""
        with self._changed:
            if self._is_closed:
                raise Closed
            if len(self) + len(rows) > self._size:
                raise Full(min(60, max(1, math.ceil(len(self) / self._rate))))
            now = time.monotonic()
            for row in rows:
                row.born = now
            self._waiting.extend(rows)
            self._changed.notify()

    def take(self, patience: float) -> list[Row]:
        """Wait for a parcel of rows; none where none came in so many seconds, or after the end.

        The end is when the queue is closed and nobody has rows that might still come back.
        """
        until = time.monotonic() + patience
        with self._changed:
            while True:
                self._drop_forgotten()
                now = time.monotonic()
                if not self._waiting:
                    if now >= until or (self._is_closed and not self._num_out):
                        return []
                    self._changed.wait(until - now)
                    continue
                alike = self._alike()
                due = self._waiting[0].born + self._wait
                if len(alike) >= self._batch_size or now >= due or self._is_closed:
                    return self._leave(alike[: self._choose_size()])
                self._changed.wait(due - now)

    def _drop_forgotten(self) -> None:
        """Leave out rows whose request was given up, or has failed in another row."""
        if any(row.job.future.done() for row in self._waiting):
            self._waiting = deque(row for row in self._waiting if not row.job.future.done())

    def _choose_size(self) -> int:
        """Return how many rows a parcel may have.

        Whoever takes leaves as much for the next time, so that he does not stand idle while
        those whom he has answered send something new.
        """
        share = math.ceil(len(self) / (2 * self._num_takers))
        return min(self._batch_size, max(FEW, share))

    def _alike(self) -> list[Row]:
        """Return the oldest row and what can go with it: nothing, if it has failed in company."""
        oldest = self._waiting[0]
        if oldest.is_second_try:
            return [oldest]
        alike = (r for r in self._waiting if r.key == oldest.key and not r.is_second_try)
        return list(islice(alike, self._batch_size))

    def _leave(self, parcel: list[Row]) -> list[Row]:
        """Take a parcel out."""
        taken = set(map(id, parcel))
        self._waiting = deque(row for row in self._waiting if id(row) not in taken)
        self._num_out += len(parcel)
        if self._waiting:  # many may have come with one word, which woke one taker alone
            self._changed.notify()
        return parcel

    def finish(self, rows: Sequence[Row], answers: Sequence[Answer], seconds: float) -> None:
        """Hand answers to the jobs; a job whose last row it is, is done."""
        with self._changed:
            self._num_out -= len(rows)
            self._rate += 0.1 * (len(rows) / max(seconds, 1e-4) - self._rate)
            for row, answer in zip(rows, answers, strict=True):
                job = row.job
                job.answers[row.place] |= {task: answer[task] for task in row.tasks or answer}
                job.num_left -= 1
                if not job.num_left and not job.future.done():
                    _settle(job.future, job.answers)
            if self._is_closed:  # it may have been the last that takers wait for
                self._changed.notify_all()

    def fail(self, rows: Sequence[Row], error: Exception) -> int:
        """Put rows back to be tried once more; those tried twice fail. Return how many go back.

        The second time each comes alone, so that one that takes the model down takes no other
        request with it.
        """
        with self._changed:
            self._num_out -= len(rows)
            again = [row for row in rows if not row.is_second_try]
            for row in rows:
                if row.is_second_try and not row.job.future.done():
                    _settle(row.job.future, error)
                row.is_second_try = True
            self._waiting.extendleft(reversed(again))
            self._changed.notify_all()
            return len(again)

    def drop(self, job: Job) -> int:
        """Give a job up, and return how many of its rows nobody had taken; the others go on."""
        with self._changed:
            job.future.cancel()
            kept = deque(row for row in self._waiting if row.job is not job)
            num_dropped = len(self._waiting) - len(kept)
            self._waiting = kept
            return num_dropped

    def close(self) -> None:
        """Accept nothing more; what was accepted is still given out."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    @property
    def is_closed(self) -> bool:
        """Whether nothing more is accepted."""
        return self._is_closed


def ask_for(rows: Sequence[Row]) -> Ask:
    """Say what a parcel asks: of every row, all that any of them wants."""
    run, group = rows[0].key
    wanted = {task for row in rows for task in row.tasks}
    return Ask(run, tuple(task for task in group if task in wanted), [row.texts for row in rows])


def _settle(future: Future[list[Answer]], outcome: list[Answer] | Exception) -> None:
    try:
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
    except InvalidStateError:  # given up between the question and the answer
        pass


def count_tasks(rows: Sequence[Row]) -> Mapping[tuple[str, str], int]:
    """Count a parcel's answers by run and task."""
    counts: dict[tuple[str, str], int] = {}
    for row in rows:
        for task in row.tasks or ("embed",):
            counts[row.key[0], task] = counts.get((row.key[0], task), 0) + 1
    return counts
