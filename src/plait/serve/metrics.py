"""Events become figures that Prometheus reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics:
    """A server's figures; no label holds what a client chose, so that they stay few."""

    def __init__(self, queue: Callable[[], float], workers: Callable[[], float]):
        self._registry = own = CollectorRegistry()
        self._requests = Counter(
            "plait_requests", "Requests answered.", ["path", "status"], registry=own
        )
        self._seconds = Histogram(
            "plait_request_seconds",
            "From request to answer.",
            ["path"],
            buckets=SECONDS,
            registry=own,
        )
        self._problems = Counter(
            "plait_problems", "Requests refused or failed.", ["code"], registry=own
        )
        self._answers = Counter("plait_answers", "Answers given.", ["run", "task"], registry=own)
        self._batch_rows = Histogram(
            "plait_batch_rows", "Rows answered together.", buckets=ROWS, registry=own
        )
        self._batch_seconds = Histogram(
            "plait_batch_seconds", "Time of a batch in its model.", buckets=SECONDS, registry=own
        )
        self._dropped = Counter(
            "plait_dropped_rows",
            "Rows given up before a model had them.",
            registry=own,
        )
        self._restarts = Counter("plait_worker_restarts", "Workers replaced.", registry=own)
        Gauge("plait_queue_rows", "Rows not yet answered.", registry=own).set_function(queue)
        Gauge("plait_workers", "Workers that can answer.", registry=own).set_function(workers)

    def request(self, path: str, status: int, seconds: float, code: str | None) -> None:
        """Count a request."""
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)
        if code is not None:
            self._problems.labels(code).inc()

    def batch(self, num_rows: int, seconds: float, answers: Mapping[tuple[str, str], int]) -> None:
        """Count a batch and its answers by run and task."""
        self._batch_rows.observe(num_rows)
        self._batch_seconds.observe(seconds)
        for (run, task), count in answers.items():
            self._answers.labels(run, task).inc(count)

    def drop(self, num_rows: int) -> None:
        """Count rows that nobody waits for any more."""
        self._dropped.inc(num_rows)

    def restart(self) -> None:
        """Count a worker replaced."""
        self._restarts.inc()

    def show(self) -> bytes:
        """Return all figures as Prometheus reads them."""
        return generate_latest(self._registry)
