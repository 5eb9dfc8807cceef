"""The web application: endpoints that check a request, queue it, wait for answers and send them."""

from __future__ import annotations

import asyncio
import re
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from plait import __version__
from plait.errors import suggest
from plait.serve.batching import Closed, Full, Job, Queue, Row, count_tasks, make_rows
from plait.serve.browsing import add_browsing, look_up
from plait.serve.gate import Gate
from plait.serve.metrics import Metrics
from plait.serve.parcels import VECTOR
from plait.serve.pool import Died, Pool
from plait.serve.problems import GONE, Problem, describe_problems, handle_problems, respond
from plait.serve.schemas import (
    EmbedRequest,
    EmbedResponse,
    ExplainRequest,
    ExplainResponse,
    Health,
    PredictRequest,
    PredictResponse,
    TaskList,
)
from plait.serve.site import Site
from plait.serve.words import choose_label, conclude, plan_words

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from pathlib import Path

    from plait.serve.catalog import Catalog, RunFacts
    from plait.serve.errands import Errands
    from plait.serve.keys import Keys
    from plait.serve.limits import Limits
    from plait.serve.logs import Log
    from plait.serve.parcels import Answer
    from plait.serve.pool import Backend

ASKING = describe_problems(400, 401, 404, 408, 413, 422, 429, 500, 503, 504)


def make_app(
    catalog: Catalog,
    backends: Sequence[Backend],
    *,
    limits: Limits,
    keys: Keys,
    log: Log,
    local_only: bool = True,
    log_texts: bool = False,
    folders: Mapping[str, Path] | None = None,
    errands: Errands | None = None,
) -> FastAPI:
    """Make the application that serves some runs.

    `backends` answer, all of them the same; they are closed with the application. `local_only`
    says that only this machine is to reach it, under its own names. `folders` are where runs lie
    that can be browsed, and `errands` make their reports; without it, none are shown.
    """
    queue = Queue(limits.queue, limits.batch_size, limits.wait_ms / 1000, len(backends))
    metrics = Metrics(lambda: len(queue), lambda: pool.num_alive)
    pool = Pool(queue, backends, _Watcher(log, metrics))
    service = Service(catalog, queue, limits, metrics, log_texts)

    @asynccontextmanager
    async def live(_: FastAPI) -> AsyncIterator[None]:
        pool.start()
        yield
        await asyncio.to_thread(pool.close)
        if errands is not None:
            await asyncio.to_thread(errands.close)

    app = FastAPI(
        title="plait",
        version=__version__,
        description="Trained runs answer texts. Errors have one shape, with a code and a sentence.",
        lifespan=live,
        docs_url=None,  # they take their looks from the network; the site has a page instead
        redoc_url=None,
    )
    handle_problems(app)
    _add_questions(app, service)
    add_browsing(app, catalog, folders or {}, errands)
    _add_tasks(app, catalog)
    _add_signs(app, queue, pool, metrics)
    app.mount("/", Site(), name="site")
    app.add_middleware(
        Gate,
        limits=limits,
        keys=keys,
        log=log,
        metrics=metrics,
        local_only=local_only and not keys,
    )
    return app


# --- endpoints ---------------------------------------------------------------------------


def _add_questions(app: FastAPI, service: Service) -> None:
    @app.post("/v1/predict", responses={200: {"model": PredictResponse}, **ASKING})
    async def predict(body: PredictRequest, request: Request) -> Response:
        """Answer tasks for texts."""
        run = service.find_run(body.run)
        given = [body.inputs] if isinstance(body.inputs, str) else body.inputs
        inputs = [(one,) if isinstance(one, str) else tuple(one) for one in given]
        service.check(inputs)
        wanted = [body.tasks] if isinstance(body.tasks, str) else body.tasks
        tasks = choose_tasks(run, inputs, wanted)
        answers = await service.ask(request, run, inputs, tasks)
        if not body.probabilities:
            answers = [
                {t: {k: v for k, v in a.items() if k != "probabilities"} for t, a in row.items()}
                for row in answers
            ]
        ordered = [{t: row[t] for t in some} for row, some in zip(answers, tasks, strict=True)]
        return respond({"run": run.name, "answers": ordered})

    @app.post("/v1/explain", responses={200: {"model": ExplainResponse}, **ASKING})
    async def explain(body: ExplainRequest, request: Request) -> Response:
        """Say what each word of a text adds to the answer."""
        run = service.find_run(body.run)
        texts = (body.input,) if isinstance(body.input, str) else tuple(body.input)
        service.check([texts])
        wanted = None if body.task is None else [body.task]
        ((task, *others),) = choose_tasks(run, [texts], wanted)
        if others:
            names = ", ".join((task, *others))
            raise Problem(422, "which_task", f"several tasks fit; say which in task: {names}")
        label = choose_label(run.tasks[task], body.label)
        plan = plan_words(texts, service.limits.inputs)
        answers = await service.ask(request, run, plan.rows, [(task,)] * len(plan.subsets))
        found = conclude(plan, [answer[task] for answer in answers], label)
        return respond({"run": run.name, "task": task, **found})

    @app.post("/v1/embed", responses={200: {"model": EmbedResponse}, **ASKING})
    async def embed(body: EmbedRequest, request: Request) -> Response:
        """Return the encoder's vectors of texts."""
        run = service.find_run(body.run)
        if not run.embeds:
            message = f"{run.name} has no vectors of its own; ask one of its members"
            raise Problem(422, "no_vectors", message)
        inputs = [
            (one,) for one in ([body.inputs] if isinstance(body.inputs, str) else body.inputs)
        ]
        service.check(inputs)
        answers = await service.ask(request, run, inputs, [()] * len(inputs))
        vectors = [answer[VECTOR] for answer in answers]
        return respond({"run": run.name, "width": len(vectors[0]), "vectors": vectors})


def _add_tasks(app: FastAPI, catalog: Catalog) -> None:
    @app.get(
        "/v1/tasks", response_model=TaskList, responses=describe_problems(400, 401, 404, 422, 429)
    )
    async def tasks(run: str | None = None) -> Response:
        """List the tasks of all runs, or of one."""
        chosen = catalog.runs.values() if run is None else [look_up(catalog, run)]
        told = [
            {"run": one.name, **task.to_json()} for one in chosen for task in one.tasks.values()
        ]
        return respond({"tasks": told})


def _add_signs(app: FastAPI, queue: Queue, pool: Pool, metrics: Metrics) -> None:
    @app.get("/healthz", response_model=Health, responses=describe_problems(400, 429))
    async def healthz() -> Response:
        """Say that the server lives."""
        return respond({"status": "alive"})

    @app.get("/readyz", response_model=Health, responses=describe_problems(400, 429, 503))
    async def readyz() -> Response:
        """Say whether a question would be answered now."""
        if queue.is_closed or not pool.num_alive:
            raise Problem(503, "not_ready", "no worker can answer; come again", _LATER)
        return respond({"status": "ready"})

    @app.get("/metrics", response_class=Response, responses=describe_problems(400, 401, 429))
    async def show() -> Response:
        """Return figures for Prometheus."""
        return Response(metrics.show(), media_type="text/plain; version=0.0.4")


# --- what endpoints ask ------------------------------------------------------------------

_LATER = {"Retry-After": "2"}

_NO_TEXT = re.compile("[\0\ud800-\udfff]")
"""NUL, and halves of surrogate pairs."""


def choose_tasks(
    run: RunFacts, inputs: Sequence[tuple[str, ...]], wanted: Sequence[str] | None
) -> list[tuple[str, ...]]:
    """Return the tasks to ask of each input: those wanted, or all that take as many texts."""
    if wanted is not None:
        names = tuple(dict.fromkeys(wanted))
        for name in names:
            if name not in run.tasks:
                message = f"{run.name} has no task {name[:80]!r}{suggest(name[:80], run.tasks)}"
                raise Problem(422, "unknown_task", message)
            for place, texts in enumerate(inputs):
                if len(texts) != run.tasks[name].num_texts:
                    one, other = ("two texts", "one") if len(texts) == 1 else ("one text", "two")
                    message = (
                        f"task {name!r} takes {one} an input, and inputs[{place}] has {other}; a "
                        "pair is a list of two inside the list of inputs"
                    )
                    raise Problem(422, "wrong_texts", message)
        return [names] * len(inputs)
    fitting = {
        count: tuple(name for name, task in run.tasks.items() if task.num_texts == count)
        for count in (1, 2)
    }
    for place, texts in enumerate(inputs):
        if not fitting[len(texts)]:
            message = f"no task of {run.name} takes what inputs[{place}] has: {len(texts)} text(s)"
            raise Problem(422, "wrong_texts", f"{message}; /v1/tasks lists what they take")
    return [fitting[len(texts)] for texts in inputs]


@dataclass(frozen=True, slots=True)
class Service:
    """What endpoints share."""

    catalog: Catalog
    queue: Queue
    limits: Limits
    metrics: Metrics
    log_texts: bool

    def find_run(self, name: str | None) -> RunFacts:
        """Look a run up by its name; the only one has no need of it."""
        if name is not None:
            return look_up(self.catalog, name)
        if len(self.catalog.runs) > 1:
            names = ", ".join(self.catalog.runs)
            raise Problem(422, "which_run", f"several runs are served; say which in run: {names}")
        return next(iter(self.catalog.runs.values()))

    def check(self, inputs: Sequence[tuple[str, ...]]) -> None:
        """Refuse too many inputs, and texts that no model can read."""
        most, longest = self.limits.inputs, self.limits.text_chars
        if len(inputs) > most:
            message = f"{len(inputs):,} inputs are too many for one request; send {most:,} at most"
            raise Problem(422, "too_many_inputs", message)
        for place, texts in enumerate(inputs):
            for text in texts:
                if len(text) > longest:
                    message = f"inputs[{place}] has a text of {len(text):,} characters"
                    raise Problem(422, "too_long", f"{message}; send {longest:,} at most")
                if not text.strip():
                    message = f"inputs[{place}] has an empty text; leave it out or fill it"
                    raise Problem(422, "empty_text", message)
                if _NO_TEXT.search(text):
                    message = f"inputs[{place}] holds a NUL or half a surrogate pair; send Unicode"
                    raise Problem(422, "not_text", message)

    async def ask(
        self,
        request: Request,
        run: RunFacts,
        inputs: Sequence[tuple[str, ...]],
        tasks: Sequence[tuple[str, ...]],
    ) -> list[Answer]:
        """Queue a question and wait for its answers, for as long as its client does."""
        facts: dict[str, Any] = {"run": run.name, "inputs": len(inputs)}
        facts["tasks"] = sorted({task for some in tasks for task in some}) or ["embed"]
        if self.log_texts:
            facts["texts"] = inputs
        request.state.facts = facts
        job = Job(len(inputs))
        try:
            rows = make_rows(job, run, inputs, tasks)
            if len(rows) > self.limits.queue:
                message = "so many inputs of so many tasks never fit the queue; send fewer at once"
                raise Problem(422, "too_many_inputs", message)
            self.queue.put(rows)
            return await self._wait(request, job)
        except Full as error:
            message = f"too much is waiting; come again in {error.seconds} s"
            raise Problem(429, "busy", message, {"Retry-After": str(error.seconds)}) from error
        except Closed as error:
            raise Problem(503, "stopping", "the server is stopping; come again", _LATER) from error
        except TimeoutError as error:
            message = f"no answer within {self.limits.seconds:g} s; send fewer inputs, or later"
            raise Problem(504, "too_slow", message) from error
        except Died as error:
            message = "the model's process died of this question, twice; send other texts"
            raise Problem(503, "worker_died", message, _LATER) from error

    async def _wait(self, request: Request, job: Job) -> list[Answer]:
        """Wait for a job; one that nobody waits for any more leaves the queue."""
        answers = asyncio.wrap_future(job.future)
        leaving = asyncio.create_task(_leave(request))
        try:
            async with asyncio.timeout(self.limits.seconds):
                await asyncio.wait((answers, leaving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            if not answers.done():
                answers.cancel()
                self.metrics.drop(self.queue.drop(job))
        if answers.cancelled():
            raise Problem(GONE, "gone", "the client went away before it was answered")
        return answers.result()


async def _leave(request: Request) -> None:
    """Wait until a request's client has closed its connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass  # the body was read; what else comes before the end says nothing


class _Watcher:
    """Writes what becomes of parcels and workers into the log and the figures."""

    def __init__(self, log: Log, metrics: Metrics):
        self._log, self._metrics = log, metrics

    def answered(self, rows: Sequence[Row], seconds: float) -> None:
        self._metrics.batch(len(rows), seconds, count_tasks(rows))

    def failed(self, num_rows: int, num_again: int, error: Exception) -> None:
        self._log.write(
            "batch_failed", level="error", rows=num_rows, tried_again=num_again, error=str(error)
        )

    def restarted(self, number: int, reason: str, error: Exception | None) -> None:
        if error is None:
            self._metrics.restart()
        event = "worker_restarted" if error is None else "worker_not_restarted"
        told = None if error is None else str(error)
        self._log.write(event, level="warning", worker=number, reason=reason, error=told)
