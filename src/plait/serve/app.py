"""The endpoints: check a request, put its texts into the queue, wait, return the answers."""

from __future__ import annotations

import asyncio
import mimetypes
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Depends, FastAPI, Request
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.staticfiles import StaticFiles

from plait import __version__
from plait.analysis.explanation import MOST_EXACT, Plan, choose_column, split_parts
from plait.errors import suggest
from plait.serve.batching import VECTOR, Answer, Job, ModelThread, Queue, make_rows
from plait.serve.middleware import (
    KeyCheck,
    Metrics,
    RequestError,
    RequestMiddleware,
    add_error_handlers,
)
from plait.serve.schemas import (
    MAX_INPUTS,
    EmbedRequest,
    EmbedResponse,
    ErrorResponse,
    ExplainRequest,
    ExplainResponse,
    PredictRequest,
    PredictResponse,
    RunList,
    TaskList,
    describe_answer,
    describe_task,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from plait.inference.predictor import Answerer

QUEUE_SIZE = 1024
MAX_SECONDS = 30.0
"""Time from a request to its answer."""
MAX_WORDS = 24
"""Words, or groups of neighbours, of an explanation."""
MAX_DRAWS = 8

LOCAL_NAMES = ["localhost", "127.0.0.1", "[::1]", "::1"]
CLIENT_CLOSED = 499
"""Status in the log if the client closed the connection, as nginx has it."""

PAGE = Path(__file__).parent / "page"
mimetypes.add_type("text/javascript", ".js")  # some machines have text/plain

ERRORS: dict[int | str, dict[str, Any]] = {
    422: {"model": ErrorResponse, "description": "The request is wrong; the message says how."},
    429: {"model": ErrorResponse, "description": "The queue is full; see Retry-After."},
    503: {"model": ErrorResponse, "description": "The server is stopping; see Retry-After."},
}


def make_app(
    models: Mapping[str, Answerer],
    *,
    keys: Sequence[str] = (),
    queue_size: int = QUEUE_SIZE,
    local_only: bool = True,
) -> FastAPI:
    """Return the application that serves some models by name.

    `local_only` accepts requests to this machine's own names only.
    """
    metrics = Metrics()
    queue = Queue(queue_size)
    thread = ModelThread(queue, models, metrics.add_batch)
    runs = {
        name: ServedRun(name, model, tuple(model.share_passes(list(model.tasks))))
        for name, model in models.items()
    }
    service = Service(runs, queue)

    @asynccontextmanager
    async def run_models(_: FastAPI) -> AsyncIterator[None]:
        thread.start()
        yield
        queue.close()  # what was accepted is still answered
        await asyncio.to_thread(thread.join)

    app = FastAPI(
        title="plait",
        version=__version__,
        description="Trained runs answer texts. All errors have the same shape.",
        lifespan=run_models,
        redoc_url=None,
        responses=ERRORS,
    )
    add_error_handlers(app)
    if local_only:  # a foreign page whose name resolves to this machine must not read answers
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=LOCAL_NAMES)
    app.add_middleware(RequestMiddleware, metrics=metrics)
    api = APIRouter(dependencies=[Depends(KeyCheck(keys))])
    _add_questions(api, service)
    _add_lists(api, service)

    @api.get("/metrics", response_class=Response)
    async def show_metrics() -> Response:
        """Return metrics for Prometheus."""
        return Response(metrics.show(), media_type="text/plain; version=0.0.4")

    @app.get("/healthz")
    async def healthz() -> dict[str, str]:
        """Return that the server is alive."""
        return {"status": "alive"}

    @app.get("/readyz")
    async def readyz() -> dict[str, str]:
        """Return whether requests are answered now."""
        if not thread.is_alive():
            raise RequestError(503, "not_ready", "The models have stopped", Retry_After="2")
        return {"status": "ready"}

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return FileResponse(PAGE / "index.html")

    app.include_router(api)
    app.mount("/page", StaticFiles(directory=PAGE))
    return app


# --- endpoints ---------------------------------------------------------------------------


def _add_questions(api: APIRouter, service: Service) -> None:
    @api.post("/v1/predict", response_model=PredictResponse)
    async def predict(body: PredictRequest, request: Request) -> Response:
        """Answer one task or several for each input."""
        run = service.find_run(body.run)
        given = [body.inputs] if isinstance(body.inputs, str) else body.inputs
        inputs = [(one,) if isinstance(one, str) else tuple(one) for one in given]
        wanted = [body.tasks] if isinstance(body.tasks, str) else body.tasks
        tasks = run.choose_tasks(inputs, wanted)
        found = await service.ask(request, run, inputs, tasks)
        answers = [
            {t: describe_answer(row[t], run.labels(t), full=body.probabilities) for t in some}
            for row, some in zip(found, tasks, strict=True)
        ]
        return JSONResponse({"run": run.name, "answers": answers})

    @api.post("/v1/explain", response_model=ExplainResponse)
    async def explain(body: ExplainRequest, request: Request) -> Response:
        """Return the effect of each word on an answer (Shapley values)."""
        run = service.find_run(body.run)
        texts = (body.input,) if isinstance(body.input, str) else tuple(body.input)
        ((task, *others),) = run.choose_tasks([texts], None if body.task is None else [body.task])
        if others:
            names = ", ".join((task, *others))
            raise RequestError(422, "which_task", f"Several tasks fit: {names}. Set 'task'")
        plan = plan_explanation(texts)
        found = await service.ask(request, run, plan.rows, [(task,)] * len(plan.subsets))
        answers = [row[task] for row in found]
        column = choose_column(run.model.tasks[task].spec, answers[0], body.label)
        values = [a.value if column is None else a.probabilities[column] for a in answers]
        if any(value != value for value in values):
            raise RequestError(500, "no_number", "The model's answer is not a number")
        return JSONResponse(
            {
                "run": run.name,
                "task": task,
                "answer": answers[0].label,
                "explained": None if column is None else run.labels(task)[column],
                "value": values[0],
                "bare": values[1],
                "method": plan.method,
                "parts": [asdict(part) for part in plan.share(values)],
            }
        )

    @api.post("/v1/embed", response_model=EmbedResponse)
    async def embed(body: EmbedRequest, request: Request) -> Response:
        """Return the encoder's vector of each text."""
        run = service.find_run(body.run)
        if not run.embeds:
            message = f"{run.name} is an ensemble and has no vectors; use one of its members"
            raise RequestError(422, "no_vectors", message)
        given = [body.inputs] if isinstance(body.inputs, str) else body.inputs
        inputs = [(text,) for text in given]
        answers = await service.ask(request, run, inputs, [()] * len(inputs))
        vectors = [answer[VECTOR] for answer in answers]
        return JSONResponse({"run": run.name, "width": len(vectors[0]), "vectors": vectors})


def _add_lists(api: APIRouter, service: Service) -> None:
    @api.get("/v1/runs", response_model=RunList)
    async def list_runs() -> Response:
        """List the runs that are served."""
        found = [
            {"name": name, "tasks": list(run.model.tasks), "embeds": run.embeds}
            for name, run in service.runs.items()
        ]
        return JSONResponse({"runs": found})

    @api.get("/v1/tasks", response_model=TaskList)
    async def list_tasks(run: str | None = None) -> Response:
        """List the tasks of all runs, or of one."""
        runs = service.runs.values() if run is None else [service.find_run(run)]
        found = [
            describe_task(one.name, task, one.model.config.tasks[task])
            for one in runs
            for task in one.model.tasks
        ]
        return JSONResponse({"tasks": found})


# --- what the endpoints share ------------------------------------------------------------


def plan_explanation(texts: Sequence[str]) -> Plan:
    """Choose the words to leave out so that an explanation costs at most MAX_INPUTS rows."""
    num = len(split_parts(texts, MAX_WORDS))
    draws = MAX_DRAWS
    if num > MOST_EXACT:  # each draw is an order and its reverse, of num - 1 rows each
        draws = min(draws, (MAX_INPUTS - 2) // (2 * (num - 1)))
    return Plan.make(texts, "shapley", draws, most_parts=MAX_WORDS)


@dataclass(frozen=True, slots=True)
class ServedRun:
    """A model and the name that requests give it."""

    name: str
    model: Answerer
    passes: tuple[tuple[str, ...], ...]
    """Its tasks, grouped by the pass of the encoder they share."""

    @property
    def embeds(self) -> bool:
        """Whether it has vectors; an ensemble has several encoders and no common one."""
        return hasattr(self.model, "embed")

    def labels(self, task: str) -> tuple[str, ...]:
        """Return a task's labels."""
        return self.model.tasks[task].spec.labels

    def choose_tasks(
        self, inputs: Sequence[tuple[str, ...]], wanted: Sequence[str] | None
    ) -> list[tuple[str, ...]]:
        """Return the tasks of each input: those wanted, or all that take as many texts."""
        num_texts = {name: len(task.spec.text) for name, task in self.model.tasks.items()}
        names = tuple(dict.fromkeys(wanted or num_texts))
        for name in names:
            if name not in num_texts:
                message = f"{self.name} has no task {name[:80]!r}{suggest(name[:80], num_texts)}"
                raise RequestError(422, "unknown_task", message)
        chosen = []
        for place, texts in enumerate(inputs):
            fitting = tuple(name for name in names if num_texts[name] == len(texts))
            if not fitting or (wanted is not None and len(fitting) < len(names)):
                count = "two texts" if len(texts) == 2 else "one text"
                wrong = next(name for name in names if name not in fitting)
                message = f"inputs[{place}] has {count}, but task {wrong!r} takes"
                message += " one" if len(texts) == 2 else " two: send a list of pairs"
                raise RequestError(422, "wrong_texts", message)
            chosen.append(fitting)
        return chosen


@dataclass(frozen=True, slots=True)
class Service:
    """The runs, and the queue through which they are asked."""

    runs: Mapping[str, ServedRun]
    queue: Queue

    def find_run(self, name: str | None) -> ServedRun:
        """Return a run by its name; the only one needs none."""
        if name is None:
            if len(self.runs) > 1:
                message = f"Several runs are served: {', '.join(self.runs)}. Set 'run'"
                raise RequestError(422, "which_run", message)
            return next(iter(self.runs.values()))
        if name not in self.runs:
            message = f"There is no run {name[:80]!r}{suggest(name[:80], self.runs)}"
            raise RequestError(404, "unknown_run", message)
        return self.runs[name]

    async def ask(
        self,
        request: Request,
        run: ServedRun,
        inputs: Sequence[tuple[str, ...]],
        tasks: Sequence[tuple[str, ...]],
    ) -> list[Answer]:
        """Put inputs into the queue and wait for their answers.

        A job that takes too long or whose client has left is dropped.
        """
        names = sorted({task for some in tasks for task in some}) or ["embed"]
        request.state.facts = {"run": run.name, "inputs": len(inputs), "tasks": names}
        job = Job(len(inputs))
        self.queue.put(make_rows(job, run.name, run.passes, inputs, tasks))
        answers = asyncio.wrap_future(job.future)
        closed = asyncio.create_task(_wait_until_closed(request))
        try:
            done, _ = await asyncio.wait(
                (answers, closed), timeout=MAX_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            closed.cancel()
            if not answers.done():
                answers.cancel()
                self.queue.drop(job)
        if answers in done:
            return answers.result()
        if closed in done:
            raise RequestError(CLIENT_CLOSED, "client_closed", "The client closed the connection")
        message = f"The answer took longer than {MAX_SECONDS:g} s; send fewer inputs"
        raise RequestError(504, "too_slow", message)


async def _wait_until_closed(request: Request) -> None:
    """Return when the client has closed its connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
