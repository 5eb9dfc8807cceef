"""One run, trained by several workers of a Ray cluster at once, by Ray Train.

Ray starts the workers, introduces them to each other and starts them anew where one is lost; they
then go on from the run's last checkpoint. What they say on the way goes through a board. What is
wrong with the recipe or its data is not tried again: it would be wrong again.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import tempfile
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plait.distributed import Workers
from plait.distributed.workers import PATIENCE
from plait.engines.cluster import connected
from plait.engines.remote import MOST_LOSSES, Surroundings, describe_surroundings
from plait.engines.running import find_paths, wait_until_free
from plait.errors import PlaitError, UsageError, WorkerLostError
from plait.runs import train
from plait.training.checkpoint import load_state
from plait.training.folder import RunFolder, check_folder
from plait.training.listeners import Listener
from plait.training.run import Outcome
from plait.training.step import StepResult

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from plait.config import RunConfig
    from plait.engines.cluster import Cluster, Share
    from plait.engines.request import Engine
    from plait.evaluate import Scores
    from plait.training.loop import StepRecord

SECONDS_A_STEP = 0.25
"""Between two updates that the board hears of."""


@dataclass(frozen=True, slots=True)
class Order:
    """What every worker is asked to do."""

    config: RunConfig
    folder: Path
    data: str | None
    resume: bool
    command: str
    around: Surroundings


def train_together(
    config: RunConfig,
    out: Path,
    engine: Engine,
    num_workers: int,
    *,
    data: str | None = None,
    resume: bool = False,
    command: str = "plait train RECIPE --out RUN --engine ray --resume",
    listeners: Sequence[Listener] = (),
) -> Outcome:
    """Train a recipe into a folder, by so many workers of a Ray cluster.

    The folder must be seen by all of them under its name: any of them may come to lead.
    """
    folder = check_folder(out.absolute(), config, resume=resume, command=command)
    if folder.scores.exists() and load_state(folder.checkpoint).finished:
        return Outcome(out, folder.read_json(folder.scores))
    asked = replace(engine, gpus=0.0) if config.device == "cpu" else engine
    with connected(asked) as cluster, _storage(folder.path) as storage:
        share = cluster.choose_share(asked)
        if (places := cluster.count_places(share)) < num_workers:
            raise UsageError(
                f"--workers {num_workers}, but the Ray cluster has room for {places} with "
                f"{share.cpus:g} CPU{' and a GPU' if share.gpus else ''} each"
            )
        around = describe_surroundings((storage, *find_paths([config], data)), share)
        order = Order(config, folder.path, data, resume, command, around)
        board = cluster.ray.remote(num_cpus=0)(_Board).remote()
        with _heard(cluster.ray, board, listeners):
            trouble = _fit(cluster, share, num_workers, storage, {"order": order, "board": board})
        result, failure = cluster.ray.get(board.read.remote())
        if failure is not None:
            raise failure
        if result is None:
            raise WorkerLostError(
                f"workers were lost {MOST_LOSSES + 1} times{trouble}; go on from what was saved "
                f"last with: {command}"
            )
    return Outcome(out, result)


@contextmanager
def _storage(folder: Path) -> Iterator[Path]:
    """Give Ray a place beside the run for its own notes, seen by all nodes as the run is."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix=".ray-", dir=folder.parent))
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _fit(
    cluster: Cluster, share: Share, num_workers: int, storage: Path, asked: dict[str, Any]
) -> str:
    """Let Ray train; return what it says where it gave up, else nothing."""
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    logging.getLogger("ray.train").setLevel(logging.ERROR)
    resources = {"CPU": share.cpus, **({"GPU": share.gpus} if share.gpus else {})}
    trainer = TorchTrainer(
        _work,
        train_loop_config=asked,
        scaling_config=ScalingConfig(
            num_workers=num_workers,
            use_gpu=bool(share.gpus),
            resources_per_worker=resources,
        ),
        run_config=RunConfig(
            name="run",
            storage_path=str(storage),
            failure_config=FailureConfig(max_failures=MOST_LOSSES),
        ),
        torch_config=TorchConfig(
            backend="cpu:gloo,cuda:nccl" if share.gpus else "gloo",
            timeout_s=int(PATIENCE.total_seconds()),
        ),
    )
    try:
        trainer.fit()
    except cluster.ray.exceptions.RayError as error:
        return f" ({type(error).__name__})"
    except RuntimeError as error:  # Ray Train's own, whose classes move between versions
        return f" ({type(error).__name__})"
    return ""


# --- on a worker -------------------------------------------------------------------------


def _work(asked: dict[str, Any]) -> None:
    """Train as one of the workers; what should not be tried again is left on the board."""
    import ray
    import ray.train

    order, board = asked["order"], asked["board"]
    context = ray.train.get_context()
    leads = context.get_world_rank() == 0
    if ray.get(board.is_over.remote()):
        return
    relay = Relay(board)
    try:
        if refusal := order.around.enter():
            raise UsageError(refusal)
        team = Workers(context.get_local_rank(), context.get_local_world_size())
        folder, resume = RunFolder(order.folder), order.resume
        if leads:
            if ray.get(board.begin.remote()) > 1:
                relay.note("a worker was lost; all begin again where the run was saved last")
                resume = folder.recipe.exists()
            wait_until_free(folder)
        result = train(
            order.config,
            order.folder,
            data=order.data,
            resume=resume,
            command=order.command,
            listeners=[relay] if leads else [],
            team=team,
        ).result
    except WorkerLostError:
        raise
    except PlaitError as error:
        ray.get(board.fail.remote(error))
        raise
    if leads:
        ray.get(board.finish.remote(result))


class Relay(Listener):
    """Passes on to the board what a run says."""

    def __init__(self, board: Any):
        self._board, self._last = board, 0.0

    def _post(self, event: str, *args: Any) -> None:
        self._board.post.remote(event, args)

    def note(self, text: str) -> None:
        """Pass it on."""
        self._post("note", text)

    def start(self, folder: Path, config: dict[str, Any], step: int) -> None:
        """Pass it on."""
        self._post("start", folder, config, step)

    def reading(self, what: str, done: int, total: int) -> None:
        """Pass it on now and then."""
        self._post_some("reading", what, done, total)

    def scoring(self, task: str, done: int, total: int) -> None:
        """Pass it on now and then."""
        self._post_some("scoring", task, done, total)

    def asking(self, task: str, done: int, total: int) -> None:
        """Pass it on now and then."""
        self._post_some("asking", task, done, total)

    def step(self, record: StepRecord) -> None:
        """Pass it on now and then, without its tensors."""
        self._post_some("step", _bare(record))

    def losses(self, record: StepRecord, losses: dict[str, float]) -> None:
        """Pass them on."""
        self._post("losses", _bare(record), losses)

    def scores(self, step: int, split: str, scores: Scores) -> None:
        """Pass them on."""
        self._post("scores", step, split, scores)

    def _post_some(self, event: str, *args: Any) -> None:
        if time.monotonic() - self._last > SECONDS_A_STEP:
            self._last = time.monotonic()
            self._post(event, *args)


def _bare(record: StepRecord) -> StepRecord:
    import torch

    return replace(record, result=StepResult({}, {}, torch.zeros(())), scores={})


# --- in between --------------------------------------------------------------------------


class _Board:
    """What workers leave for whoever started them."""

    def __init__(self) -> None:
        self.posts: asyncio.Queue[tuple[str, tuple[Any, ...]]] = asyncio.Queue()
        self.result: dict[str, Any] | None = None
        self.failure: PlaitError | None = None
        self.num_begun = 0

    async def begin(self) -> int:
        """Count the times that workers were started."""
        self.num_begun += 1
        return self.num_begun

    async def post(self, event: str, args: tuple[Any, ...]) -> None:
        """Leave what a listener should hear."""
        await self.posts.put((event, args))

    async def take(self) -> tuple[str, tuple[Any, ...]]:
        """Return the next of them, once it is there."""
        return await self.posts.get()

    async def fail(self, error: PlaitError) -> None:
        """Leave what is wrong; the first to say so is heard."""
        self.failure = self.failure or error

    async def finish(self, result: dict[str, Any]) -> None:
        """Leave the run's result."""
        self.result = result

    async def is_over(self) -> bool:
        """Say whether there is nothing left to try."""
        return self.failure is not None or self.result is not None

    async def read(self) -> tuple[dict[str, Any] | None, PlaitError | None]:
        """Return the result, and what went wrong."""
        return self.result, self.failure


@contextmanager
def _heard(ray: Any, board: Any, listeners: Sequence[Listener]) -> Iterator[None]:
    """Let listeners here hear what the leader posts."""

    def listen() -> None:
        with suppress(Exception):  # the cluster may be gone, which others will say
            while True:
                event, args = ray.get(board.take.remote())
                if event == "over":
                    return
                for listener in listeners:
                    getattr(listener, event)(*args)

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    try:
        yield
    finally:
        board.post.remote("over", ())
        thread.join(timeout=5)
