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
"""Between two looks at the board."""

Ended = tuple[dict[str, Any] | None, Exception | None]
"""A run's result, and what went wrong; neither where too many workers were lost."""


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
    command: str = "plait train RECIPE --out RUN --jobs ray --resume",
    listeners: Sequence[Listener] = (),
) -> Outcome:
    """Train a recipe into a folder, by so many workers of a Ray cluster.

    The folder must be seen by all of them under its name: any of them may come to lead.
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
        begun = f"go on from what was saved last with: {command}"
        lost = WorkerLostError(
            f"Ray gave the run up, whose workers were lost {MOST_LOSSES + 1} times or could not be "
            f"started; {begun if folder.recipe.exists() else 'nothing was written'}"
        )
        if why is not None:
            lost.add_note(str(why))  # it may be a mistake of ours
        raise lost from why
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


def _prepare(share: Share, num_workers: int, storage: Path, asked: dict[str, Any]) -> Any:
    """Tell Ray Train what to do."""
    try:
        from ray.train import FailureConfig, RunConfig, ScalingConfig
        from ray.train.torch import TorchConfig, TorchTrainer
    except ImportError as error:  # Ray alone does not bring all that its trainer needs
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
    """Let Ray train, and listeners here hear how; return what is on the board, and Ray's error.

    The first Ctrl-C lets the workers finish the update at hand and save; the second stops at once.
    """

    troubles: list[Exception] = []

    def fit() -> None:
        try:
            trainer.fit()
        except Exception as error:  # what a worker has to tell is on the board
            troubles.append(error)

    # Not on the main thread, where Ray would answer Ctrl-C itself.
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
                listener.note("stopping after this update, to save it; once more stops at once")
        except ray.exceptions.RayError as error:  # the cluster itself is gone
            return (None, None), error
        if is_last:
            ended: Ended = ray.get(board.read.remote())
            return ended, next(iter(troubles), None)


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
        team = _make_team(context, board)
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
    except Interrupted as error:  # all are, after the same update
        ray.get(board.fail.remote(error))
        return
    except Exception as error:
        ray.get(board.fail.remote(foresee(error) or _describe(error)))
        raise
    if leads:
        ray.get(board.finish.remote(result))


def _describe(error: Exception) -> Exception:
    """Return a mistake of plait's or a plugin's so that it can travel, its traceback as a note."""
    described = RuntimeError(f"a worker raised {error!r}")
    described.add_note(traceback.format_exc())
    return described


def _make_team(context: Any, board: Any) -> Team:
    """Return who trains: one worker is what a process of its own is, whoever started it."""
    if context.get_world_size() == 1:
        return RayAlone(board)
    return RayWorkers(context.get_local_rank(), context.get_local_world_size(), board)


class RayAlone(Team):
    """One worker, who stops when whoever started it says so."""

    def __init__(self, board: Any):
        self._bell = _Bell(board)

    def any(self, flag: bool) -> bool:
        """Say whether it wants to stop, or somebody at the board does."""
        return flag or self._bell.rings()


class RayWorkers(Workers):
    """Workers who stop when whoever started them says so."""

    def __init__(self, local_rank: int, local_size: int, board: Any):
        super().__init__(local_rank, local_size)
        self._bell = _Bell(board)

    def any(self, flag: bool) -> bool:
        """Say whether a worker wants to stop, or somebody at the board does."""
        return super().any(flag or (self.leads and self._bell.rings()))


class _Bell:
    """Asks the board now and then whether to stop."""

    def __init__(self, board: Any):
        self._board, self._last, self._has_rung = board, 0.0, False

    def rings(self) -> bool:
        """Say whether somebody wants an end."""
        if time.monotonic() - self._last > SECONDS_A_STEP:
            self._last = time.monotonic()
            self._has_rung = import_ray().get(self._board.is_stopping.remote())
        return self._has_rung


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
    """What workers leave for whoever started them."""

    def __init__(self) -> None:
        self.posts: asyncio.Queue[tuple[str, tuple[Any, ...]]] = asyncio.Queue()
        self.result: dict[str, Any] | None = None
        self.failure: Exception | None = None
        self.num_begun = 0
        self.is_asked_to_stop = False

    async def begin(self) -> int:
        """Count the times that workers were started."""
        self.num_begun += 1
        return self.num_begun

    async def post(self, event: str, args: tuple[Any, ...]) -> None:
        """Leave what a listener should hear."""
        await self.posts.put((event, args))

    async def take(self) -> list[tuple[str, tuple[Any, ...]]]:
        """Return what is there, after a little while at most."""
        found = []
        with suppress(asyncio.TimeoutError):
            found.append(await asyncio.wait_for(self.posts.get(), SECONDS_A_STEP))
        while not self.posts.empty():
            found.append(self.posts.get_nowait())
        return found

    async def stop(self) -> None:
        """Ask the workers to save and end."""
        self.is_asked_to_stop = True

    async def is_stopping(self) -> bool:
        """Say whether they are asked to."""
        return self.is_asked_to_stop

    async def fail(self, error: Exception) -> None:
        """Leave what is wrong; the first to say so is heard."""
        self.failure = self.failure or error

    async def finish(self, result: dict[str, Any]) -> None:
        """Leave the run's result."""
        self.result = result

    async def is_over(self) -> bool:
        """Say whether there is nothing left to try."""
        return self.failure is not None or self.result is not None

    async def read(self) -> Ended:
        """Return the result, and what went wrong."""
        return self.result, self.failure
