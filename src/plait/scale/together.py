"""Train one run with several workers of a Ray cluster, using Ray Train.

Ray starts and connects the workers. If one is lost, Ray restarts all of them, and they continue
from the run's last checkpoint. Their messages go through a board, a Ray actor. Errors of the recipe
or its data are not retried.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import tempfile
import threading
import time
import traceback
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plait.errors import Interrupted, UsageError, WorkerLostError, foresee
from plait.inference.folders import RunFolder, check_folder
from plait.scale.cluster import MISSING, connected, import_ray
from plait.scale.group import PATIENCE, Workers
from plait.scale.remote import MOST_LOSSES, Surroundings, describe_surroundings
from plait.scale.running import find_needs, wait_until_free
from plait.training.listeners import Listener
from plait.training.run import Outcome, read_state
from plait.training.runs import train
from plait.training.step import StepResult
from plait.training.team import Team

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from plait.config import RunConfig
    from plait.inference.scoring import Scores
    from plait.scale.cluster import Share
    from plait.scale.request import Engine
    from plait.training.loop import StepRecord

SECONDS_A_STEP = 0.25
"""Seconds between two reads of the board."""

Ended = tuple[dict[str, Any] | None, Exception | None]
"""A run's result and its error; both are None if too many workers were lost."""


@dataclass(frozen=True, slots=True)
class Order:
    """The input of every worker."""

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
    command: str = "plait train RECIPE --out RUN --jobs ray --resume",
    listeners: Sequence[Listener] = (),
) -> Outcome:
    """Train a recipe into a folder with several workers of a Ray cluster.

    All workers must see the folder under the same path, because each of them may become the leader.
    """
    folder = check_folder(out.absolute(), config, resume=resume, command=command)
    if read_state(folder).finished:
        return Outcome(out, folder.read_json(folder.scores))
    needs = find_needs([config], data)
    with connected(engine) as cluster, _storage(folder.path) as storage:
        share = cluster.choose_share(engine, gpu=needs.gpu)
        if (places := cluster.count_places(share)) < num_workers:
            raise UsageError(
                f"workers={num_workers}, but the Ray cluster has room for {places} with "
                f"{share.cpus:g} CPU{' and a GPU' if share.gpus else ''} each"
            )
        around = describe_surroundings((storage, *needs.paths), share)
        order = Order(config, folder.path, data, resume, command, around)
        board = cluster.ray.remote(num_cpus=0)(_Board).remote()
        trainer = _prepare(share, num_workers, storage, {"order": order, "board": board})
        (result, failure), why = _watch(cluster.ray, board, trainer, listeners)
    if failure is not None:
        raise failure
    if result is None:
        begun = f"continue from the last checkpoint with: {command}"
        lost = WorkerLostError(
            f"the workers were lost {MOST_LOSSES + 1} times or could not be started; "
            f"{begun if folder.recipe.exists() else 'nothing was written'}"
        )
        if why is not None:
            lost.add_note(str(why))  # the cause may be a bug in plait
        raise lost from why
    return Outcome(out, result)


@contextmanager
def _storage(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder for Ray's files next to the run, which all nodes see."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix=".ray-", dir=folder.parent))
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _prepare(share: Share, num_workers: int, storage: Path, asked: dict[str, Any]) -> Any:
    """Return the configured Ray trainer."""
    try:
        from ray.train import FailureConfig, RunConfig, ScalingConfig
        from ray.train.torch import TorchConfig, TorchTrainer
    except ImportError as error:  # Ray's trainer needs more packages than Ray
        raise UsageError(f"{MISSING}: {error}") from error
    logging.getLogger("ray.train").setLevel(logging.ERROR)
    resources = {"CPU": share.cpus, **({"GPU": share.gpus} if share.gpus else {})}
    return TorchTrainer(
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


def _watch(
    ray: Any, board: Any, trainer: Any, listeners: Sequence[Listener]
) -> tuple[Ended, Exception | None]:
    """Run Ray's trainer and pass events to listeners; return the board's content and Ray's error.

    After the first Ctrl-C, the workers finish the current update and save; the second one stops
    immediately.
    """

    troubles: list[Exception] = []

    def fit() -> None:
        try:
            trainer.fit()
        except Exception as error:  # the errors of workers are on the board
            troubles.append(error)

    # Not in the main thread, where Ray would handle Ctrl-C itself.
    thread = threading.Thread(target=fit, daemon=True)
    thread.start()
    is_stopping = False
    while True:
        is_last = not thread.is_alive()
        try:
            for event, args in ray.get(board.take.remote()):
                for listener in listeners:
                    getattr(listener, event)(*args)
        except KeyboardInterrupt:
            if is_stopping:
                raise
            is_stopping = True
            board.stop.remote()
            for listener in listeners:
                listener.note("stopping after this update; press Ctrl-C again to stop immediately")
        except ray.exceptions.RayError as error:  # the cluster is gone
            return (None, None), error
        if is_last:
            ended: Ended = ray.get(board.read.remote())
            return ended, next(iter(troubles), None)


# --- on a worker -------------------------------------------------------------------------


def _work(asked: dict[str, Any]) -> None:
    """Train as one of the workers; errors that should not be retried are posted on the board."""
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
        team = _make_team(context, board)
        folder, resume = RunFolder(order.folder), order.resume
        if leads:
            if ray.get(board.begin.remote()) > 1:
                relay.note("a worker was lost; all workers continue from the last checkpoint")
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
    except Interrupted as error:  # all workers stop after the same update
        ray.get(board.fail.remote(error))
        return
    except Exception as error:
        ray.get(board.fail.remote(foresee(error) or _describe(error)))
        raise
    if leads:
        ray.get(board.finish.remote(result))


def _describe(error: Exception) -> Exception:
    """Return an unexpected error in a form that can be pickled, with its traceback as a note."""
    described = RuntimeError(f"a worker raised {error!r}")
    described.add_note(traceback.format_exc())
    return described


def _make_team(context: Any, board: Any) -> Team:
    """Return the team of the workers; a single worker needs no communication."""
    if context.get_world_size() == 1:
        return RayAlone(board)
    return RayWorkers(context.get_local_rank(), context.get_local_world_size(), board)


class RayAlone(Team):
    """A single worker, which stops when the board says so."""

    def __init__(self, board: Any):
        self._bell = _Bell(board)

    def any(self, flag: bool) -> bool:
        """Return whether the flag is set or the board asks to stop."""
        return flag or self._bell.rings()


class RayWorkers(Workers):
    """Several workers, which stop when the board says so."""

    def __init__(self, local_rank: int, local_size: int, board: Any):
        super().__init__(local_rank, local_size)
        self._bell = _Bell(board)

    def any(self, flag: bool) -> bool:
        """Return whether the flag of a worker is set or the board asks to stop."""
        return super().any(flag or (self.leads and self._bell.rings()))


class _Bell:
    """Asks the board at intervals whether to stop."""

    def __init__(self, board: Any):
        self._board, self._last, self._has_rung = board, 0.0, False

    def rings(self) -> bool:
        """Return whether the board asks to stop."""
        if time.monotonic() - self._last > SECONDS_A_STEP:
            self._last = time.monotonic()
            self._has_rung = import_ray().get(self._board.is_stopping.remote())
        return self._has_rung


class Relay(Listener):
    """Posts the events of a run on the board."""

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

    def best(self, step: int) -> None:
        """Pass it on."""
        self._post("best", step)

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
    """A Ray actor through which workers send events, errors and the result."""

    def __init__(self) -> None:
        self.posts: asyncio.Queue[tuple[str, tuple[Any, ...]]] = asyncio.Queue()
        self.result: dict[str, Any] | None = None
        self.failure: Exception | None = None
        self.num_begun = 0
        self.is_asked_to_stop = False

    async def begin(self) -> int:
        """Return how many times the workers were started."""
        self.num_begun += 1
        return self.num_begun

    async def post(self, event: str, args: tuple[Any, ...]) -> None:
        """Add an event for the listeners."""
        await self.posts.put((event, args))

    async def take(self) -> list[tuple[str, tuple[Any, ...]]]:
        """Return the events so far; wait a moment if the list is empty."""
        found = []
        with suppress(asyncio.TimeoutError):
            found.append(await asyncio.wait_for(self.posts.get(), SECONDS_A_STEP))
        while not self.posts.empty():
            found.append(self.posts.get_nowait())
        return found

    async def stop(self) -> None:
        """Ask the workers to save and stop."""
        self.is_asked_to_stop = True

    async def is_stopping(self) -> bool:
        """Return whether the workers should stop."""
        return self.is_asked_to_stop

    async def fail(self, error: Exception) -> None:
        """Store an error; only the first one is kept."""
        self.failure = self.failure or error

    async def finish(self, result: dict[str, Any]) -> None:
        """Store the run's result."""
        self.result = result

    async def is_over(self) -> bool:
        """Return whether there is a result or an error."""
        return self.failure is not None or self.result is not None

    async def read(self) -> Ended:
        """Return the result and the error."""
        return self.result, self.failure
