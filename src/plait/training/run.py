"""A recipe becomes a trained model in a folder: the consumers of the loop's records.

Scores, log, checkpoints, early stopping and interruption live here; the loop knows none.
"""

from __future__ import annotations

import json
import math
import signal
import threading
import time
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from plait.config.choose import Choice, complete, complete_as, find_facts, is_whole
from plait.data import SplitName
from plait.data.loading import load_data
from plait.data.storage import disk_full_told, write_text
from plait.errors import Interrupted, RunError, counted, is_memory
from plait.inference.baselines import measure
from plait.inference.card import update_card
from plait.inference.folders import (
    RunFolder,
    check_folder,
    compare_parts,
    describe_data,
    opened,
    write_parts,
)
from plait.inference.interrupts import count_once
from plait.inference.scoring import Scorer, Scores, choose_room, score_baseline
from plait.model.weights import fill_model, read_learnt, save_weights
from plait.training.beginning import begin_heads, find_beginning
from plait.training.build import (
    Parts,
    build,
    build_stage,
    check_stages,
    drop_heads,
    load_named_texts,
    stage_heads,
)
from plait.training.checkpoint import load_checkpoint, load_state, save_checkpoint
from plait.training.conflicts import ConflictSums, LossMeans
from plait.training.holding import count_held_out, find_idle, find_missing
from plait.training.listeners import Listener, MetricsLog
from plait.training.loop import Stage, StepRecord, TrainState, run_stage, task_seed
from plait.training.memory import explain_scoring, explain_training
from plait.training.notes import note_data, note_held_out, note_stage
from plait.training.plan import Plan
from plait.training.scoring import TeamScorer
from plait.training.sharing import note_share
from plait.training.starting import Start, find_kept, find_tokenizer, find_width
from plait.training.teachers import Lessons
from plait.training.team import ALONE
from plait.training.workers import (
    check_device,
    compare_recipes,
    compare_workers,
    lost_workers_told,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from plait.config import EarlyStopping, RunConfig
    from plait.data import Dataset
    from plait.training.teachers import OpenTeacher
    from plait.training.team import Team

Data = dict[str, dict[str, "Dataset"]]

SPLITS: tuple[SplitName, ...] = ("train", "dev")


@dataclass(frozen=True, slots=True)
class Outcome:
    """A finished run."""

    folder: Path
    result: dict[str, Any]
    """What scores.json holds."""


def train(
    config: RunConfig,
    out: Path | str,
    *,
    data: str | None = None,
    resume: bool = False,
    command: str = "plait train RECIPE --out RUN --resume",
    listeners: Sequence[Listener] = (),
    open_teacher: OpenTeacher | None = None,
    team: Team = ALONE,
) -> Outcome:
    """Train a recipe into a folder, or go on with what is there.

    `data` stands in for the recipe's data root; `command` is how the user would resume;
    `open_teacher` is how stages that distil come by their teachers. Every process of a `team`
    makes the same call; its leader alone looks into the folder, and alone needs listeners.
    """
    folder = RunFolder(Path(out))
    with lost_workers_told(team, folder, command):
        check_device(config.device, team)
        team.lead(lambda: check_folder(folder.path, config, resume=resume, command=command))
        if team.lead(lambda: read_state(folder)).finished:
            return Outcome(folder.path, team.lead(lambda: folder.read_json(folder.scores)))
        choices: list[Choice] = []
        if (known := team.lead(lambda: _read_known(folder))) is not None:
            config = complete_as(config, known)
        else:
            with team.one_by_host():  # rows are tokenised once
                config, choices = complete_recipe(config, data, listeners if team.leads else ())
        compare_recipes(config, team)
        with team.one_by_host():  # an encoder may have to be fetched
            plan = Plan.build(config)
            parts = build(plan, Start.find(config, folder), team)
        heard = [*listeners, *(part.build() for part in plan.listeners)] if team.leads else []
        lessons = Lessons(plan, folder, open_teacher, data)
        session = _Session(parts, folder, heard, command, lessons)
        with disk_full_told(folder.log), ExitStack() as closing:
            for listener in session.listeners:
                closing.callback(listener.close)
            # Nothing that a second try would trip over is written before the data is known to
            # be good.
            with team.one_by_host():  # tokens are kept on disk
                datasets = session.read(data)
            check_stages(
                parts, datasets["train"], datasets["texts"], datasets.get("unlabelled", {})
            )
            compare_workers(parts, datasets)
            if team.leads:
                lessons.open(read_state(folder).stage)
                closing.enter_context(opened(folder, config, resume=resume, command=command))
            for choice in choices:
                session.tell("note", f"chosen: {choice}")
            with _own_stream(parts.device):
                return session.run(datasets, team.lead(lambda: read_state(folder)))


def _read_known(folder: RunFolder) -> RunConfig | None:
    """Read the recipe of a run to resume, with what was chosen for it; None of a new one."""
    return folder.read_config() if folder.recipe.exists() else None


def complete_recipe(
    config: RunConfig, data: str | None, listeners: Sequence[Listener] = ()
) -> tuple[RunConfig, list[Choice]]:
    """Return a recipe with the settings it leaves out, chosen after a look at its training rows."""
    if is_whole(config):
        return config, []

    def progress(what: str, done: int, total: int) -> None:
        for listener in listeners:
            listener.reading(what, done, total)

    train = load_data(
        config,
        find_tokenizer(config),
        "train",
        data=data,
        tasks=config.trained_tasks,
        progress=progress,
    )
    rows = {name: len(dataset) for name, dataset in train.items()}
    return complete(config, find_facts(config, rows, train), find_width(config))


def _own_stream(device: torch.device) -> AbstractContextManager[object]:
    """Work beside the default stream of a GPU, which cannot be captured."""
    return torch.cuda.stream(torch.cuda.Stream(device)) if device.type == "cuda" else nullcontext()


def read_state(folder: RunFolder) -> TrainState:
    """Read how far a run has got."""
    if folder.checkpoint.exists():
        return load_state(folder.checkpoint)
    # Of a finished run the checkpoint may have been deleted; it is not to be trained once more.
    return TrainState(finished=folder.scores.exists() and folder.weights.exists())


class _Session:
    """One sitting of a run, from its data to its scores."""

    def __init__(
        self,
        parts: Parts,
        folder: RunFolder,
        listeners: list[Listener],
        command: str,
        lessons: Lessons,
    ):
        self.lessons = lessons
        self.parts, self.config, self.folder = parts, parts.config, folder
        self.team, self.command = parts.team, command
        self.log = MetricsLog()
        self.listeners = [self.log, *listeners] if self.team.leads else []
        self.state = TrainState()
        self.interrupted = threading.Event()
        self.begun = False
        """Whether heads were fitted when this stage was opened."""
        self.best_scores: Scores | None = None
        """Those of the best model on all of dev, where this sitting has them."""
        scorer = Scorer(
            parts.model,
            parts.tasks,
            parts.collator,
            room=choose_room(parts.device),
            autocast=parts.autocast,
            progress=lambda *place: self.tell("scoring", *place),
        )
        self.scorer = TeamScorer(scorer, self.team)

    def tell(self, event: str, *args: Any) -> None:
        for listener in self.listeners:
            getattr(listener, event)(*args)

    def run(self, data: Data, state: TrainState) -> Outcome:
        self.state, self.log.lines = state, state.log_lines
        self.sums = LossMeans(state.losses, self.parts.device)
        self.conflicts = ConflictSums(self.config.tasks, state.conflicts, self.parts.device)
        self.clock = time.monotonic()
        if self.team.leads:
            self._describe(data)
        plain = self.config.model_dump(mode="json")
        self.tell("start", self.folder.path, plain, self.state.total_steps)
        if not self.state.total_steps:
            self.state.begun = find_beginning(self.parts)
        baseline = score_baseline(self.parts.tasks, data["train"], data["dev"])
        with self._catch_interrupt():
            if not self.state.total_steps and data["dev"] and self.team.leads:
                self._measure_baselines(data)
            first = self.config.score_first and data["dev"] and not self.state.total_steps
            if first and not self.state.begun:
                self._score_first(data["dev"])
            for index in range(self.state.stage, len(self.config.stages)):
                self._train_stage(index, data)
        return self._finish(data, baseline)

    def _measure_baselines(self, data: Data) -> None:
        """Score simple models of each task on dev, for whoever reads the scores."""
        found = measure(self.parts, data["train"], data["dev"], self._hear_start)
        self.state.baselines = {
            task: {name: v if math.isfinite(v) else None for name, v in figures.items()}
            for task, figures in found.items()
        }

    def _score_first(self, dev: Mapping[str, Dataset]) -> None:
        """Score dev before any training, and remember it of tasks that have been trained before."""
        scores = self._score(dev)
        self._hear_scores({"dev": scores}, counts=False)
        if start := self.parts.start:
            known = [task for task in start.taken_over(self.config) if task in scores.primary]
            self.state.before = {task: scores.primary[task] for task in known}

    # --- data ---

    def read(self, root: str | None) -> Data:
        def progress(what: str, done: int, total: int) -> None:
            self.tell("reading", what, done, total)

        start, config = self.parts.start, self.config
        kept, told = find_kept(config, root)
        names = config.trained_tasks if start else tuple(config.tasks)
        wanted = {"train": names, "dev": (*names, *kept)}
        tokenizer = self.parts.tokenizer
        load = partial(load_data, config, tokenizer, data=root, progress=progress)
        data: Data = {split: load(split, tasks=wanted[split]) for split in SPLITS}
        data["texts"] = load_named_texts(self.parts.plan, tokenizer, data=root, progress=progress)
        if any(config.tasks[name].unlabelled for name in names):
            data["unlabelled"] = load("unlabelled", tasks=names)
        told += start.notes(config, self.folder.path) if start else []
        told += filter(None, [note_share(self.parts.device)])
        idle, missing = find_idle(self.parts.plan), find_missing(self.parts.plan, root)
        told += note_held_out(idle, missing, count_held_out(self.parts.plan, data))
        told += note_data(self.parts, data["train"], data.get("unlabelled", {}), data["dev"])
        for note in told:
            self.tell("note", note)
        return data

    def _describe(self, data: Data) -> None:
        """Write what the run is made of, or check that a resumed one is made of the same."""
        facts = describe_data(data, count_held_out(self.parts.plan, data))
        if not self.folder.checkpoint.exists():
            write_parts(self.folder, self.parts, facts, self.lessons.describe())
            return
        self.lessons.check(self.folder.read_json(self.folder.info))
        for note in compare_parts(self.folder, self.parts, facts):
            self.tell("note", note)

    # --- training ---

    def _train_stage(self, index: int, data: Data) -> None:
        """Train a stage to its end, from wherever the state is in it."""
        parts, state = self.parts, self.state
        stage = self._open_stage(index, data)
        if self.begun:
            self._score_start(stage, data["dev"])
        for note in note_stage(stage):
            self.tell("note", note)
        parts.model.train()
        evaluate = self._evaluation(stage, data)
        try:
            for record in () if self._is_over(stage) else run_stage(stage, state, evaluate):
                self._consume(stage, record)
                if self._is_over(stage):
                    break
        except RuntimeError as error:
            if not is_memory(error):
                raise
            raise explain_training(self.config, stage, self.command) from error
        finally:
            stage.step.runner.close()
        if stage.step.mean is not None:  # the next stage goes on from what would be kept
            stage.step.mean.settle()
        if trouble := stage.step.runner.trouble:
            self.tell("note", f"some of the steps could not be captured and ran singly: {trouble}")
        drop_heads(parts)
        state.next_stage()
        if state.stage < len(self.config.stages):
            self._save(None)
        elif state.best is None and self.team.leads:  # no dev set chose a best one
            save_weights(self.folder.weights, parts.model)

    def _open_stage(self, index: int, data: Data) -> Stage:
        """Build a stage, and put into it what a checkpoint knows of it."""
        state, team, checkpoint = self.state, self.team, self.folder.checkpoint
        load = partial(load_checkpoint, checkpoint, self.parts.model, team=team)
        saved = team.lead(checkpoint.exists)
        is_inside = saved and state.step > 0
        if not is_inside:
            # Each stage chooses anew: a model that has not been through all of them is not what
            # the recipe asks for, and may not have learnt every task. But where every head began
            # as a regression, the untrained encoder is a model to beat.
            if state.best_step or state.best is None:
                state.best, state.best_step, self.best_scores = None, 0, None
            if saved and state.stage > 0:  # between stages no head is there but the tasks'
                load(None)
        train, unlabelled = data["train"], data.get("unlabelled", {})
        answers = team.spread(
            lambda: self.lessons.learn(index, train, unlabelled, self._hear_teacher)
        )
        # Inside a stage its own heads are there as well: its weights are read once these are in
        # the model, and again with the optimizer's moments once there is one.
        restore = partial(load, None) if is_inside else partial(self._begin_heads, index, data)
        self.begun = False
        stage = build_stage(self.parts, index, train, data["texts"], restore, answers, unlabelled)
        if is_inside:
            stage.step.load_tensors(load(stage.step.optimizer))
        return stage

    def _begin_heads(self, index: int, data: Data) -> None:
        """Fit the heads that begin as a regression, as long as only the encoder was trained.

        Before a stage that pre-trains, only what dev would be scored with.
        """
        kinds = [stage.kind for stage in self.parts.plan.stages[: index + 1]]
        tasks = self.state.begun
        if not tasks or not all(kind.pretrains for kind in kinds[:-1]):
            return
        if kinds[-1].pretrains and not data["dev"]:
            return

        begin_heads(self.parts, tasks, data["train"], self._hear_start)
        self.begun = True

    def _hear_start(self, *place: Any) -> None:
        """Pass on how far the work before the first update is, or end it on Ctrl-C."""
        self.tell("scoring", *place)
        if self.interrupted.is_set() and not self.state.total_steps and self.team.size == 1:
            raise Interrupted(
                f"stopped before the first update, so nothing is kept. Start over with: "
                f"{self.command}"
            )

    def _score_start(self, stage: Stage, dev: Mapping[str, Dataset]) -> None:
        """Score dev before the stage's first update; with fitted heads that is a model to beat."""
        if not dev:
            return
        with stage.step.averaged():
            scores = self._score(dev)
        heads = [self.parts.model.heads[f"task-{name}"] for name in self.config.trained_tasks]
        # Where no stage scores dev behind it, the last model is kept, not the best one.
        last = self.parts.plan.stages[-1].kind
        counts = all(head.begins for head in heads) and not last.pretrains
        if self._hear_scores({"dev": scores}, counts=counts):
            if self.team.leads:
                save_weights(self.folder.weights, self.parts.model, stage_heads(self.parts))
            self.best_scores = scores
        if not self.state.total_steps and (start := self.parts.start):
            known = [task for task in start.taken_over(self.config) if task in scores.primary]
            self.state.before = {task: scores.primary[task] for task in known}

    def _hear_teacher(self, task: str, done: int, total: int) -> None:
        self.tell("asking", task, done, total)
        if self.interrupted.is_set():  # there may be no update for long
            raise Interrupted(
                f"stopped while the teacher was answering {task!r}, of which nothing is kept. "
                f"Go on with: {self.command}"
            )

    def _evaluation(self, stage: Stage, data: Data) -> Callable[[], dict[str, Scores]] | None:
        """Choose the rows scored while training: dev, and some of train if asked."""
        if not data["dev"] or self.parts.plan.stages[stage.index].kind.pretrains:
            return None
        dev, limit = data["dev"], stage.config.eval_limit
        some = {name: self._some(name, d, limit) for name, d in dev.items() if limit}
        limit = stage.config.train_limit
        known = data["train"] if limit else {}
        some_known = {name: self._some(name, d, limit) for name, d in known.items()}

        def evaluate() -> dict[str, Scores]:
            with stage.step.averaged():
                scores = {"dev": self._score(dev, some)}
                return scores | ({"train": self._score(known, some_known)} if known else {})

        return evaluate

    def _score(
        self, datasets: Mapping[str, Dataset], rows: Mapping[str, torch.Tensor] | None = None
    ) -> Scores:
        try:
            return self.scorer.score(datasets, rows)
        except RuntimeError as error:
            if not is_memory(error):
                raise
            raise explain_scoring(self.command) from error

    def _some(self, name: str, dataset: Dataset, limit: int) -> torch.Tensor:
        generator = np.random.default_rng([self.config.seed, task_seed(name)])
        count = min(limit, len(dataset))
        return torch.from_numpy(np.sort(generator.choice(len(dataset), count, replace=False)))

    def _consume(self, stage: Stage, record: StepRecord) -> None:
        self.sums.add(record)
        self.conflicts.add(record.result)
        self.tell("step", record)
        is_last = record.step == record.num_steps  # the next stage may train something else
        if record.total_steps % self.config.log_every == 0 or record.scores or is_last:
            if conflicts := self.conflicts.take():
                self.tell("conflicts", record, conflicts)
            losses = self.sums.take()
            _refuse_divergence(losses, record, stage)
            self.tell("losses", record, losses)
        if record.scores:
            better = self._hear_scores(record.scores)
            if better:
                if self.team.leads:
                    with stage.step.averaged():
                        save_weights(self.folder.weights, self.parts.model)
                whole = stage.config.eval_limit is None
                self.best_scores = record.scores["dev"] if whole else None
            self._wait_longer(stage, record.scores["dev"])
        stopping = self.team.any(self.interrupted.is_set())
        if record.scores or stopping or record.total_steps % self.config.save_every == 0:
            self._save(stage)
        if stopping:
            raise Interrupted(
                f"stopped after {counted(record.total_steps, 'update')}; everything is saved in "
                f"{self.folder.path}. Go on with: {self.command}"
            )

    def _hear_scores(self, scores: Mapping[str, Scores], *, counts: bool = True) -> bool:
        """Pass scores on and remember the best; say whether these are."""
        state = self.state
        figure = scores["dev"].summary[self.config.select]
        # Of equals the first is best; but training that does no harm is kept.
        tied = figure == state.best and not state.best_step
        better = counts and (state.best is None or figure > state.best or tied)
        if better:
            state.best, state.best_step = figure, state.total_steps
            self.tell("best", state.total_steps)
        for split, figures in scores.items():
            self.tell("scores", state.total_steps, split, figures)
        return better

    def _wait_longer(self, stage: Stage, scores: Scores) -> None:
        """Count the evaluations since each figure was last at its best."""
        figures = {"": scores.summary[self.config.select], **scores.primary}
        for name, value in figures.items():
            # What cannot be told yet, as a correlation of equal answers, is not the best there is.
            figure = -math.inf if math.isnan(value) else value
            if name not in self.state.peaks or figure > self.state.peaks[name]:
                self.state.peaks[name], self.state.waits[name] = figure, 0
            else:
                self.state.waits[name] += 1
        rule = stage.config.early_stopping
        if rule is not None and rule.per_task:
            for task in stage.streams:
                if task not in self.state.stopped and _is_out(self.state, rule, task):
                    self.state.stopped.append(task)
                    self.tell("note", f"{task} no longer gets better and is left out from here on")

    def _is_over(self, stage: Stage) -> bool:
        """Say whether early stopping ends the stage; a resumed run asks before it goes on."""
        rule = stage.config.early_stopping
        if rule is None or rule.per_task or not _is_out(self.state, rule, ""):
            return False
        self.tell(
            "note",
            f"stopped early after {counted(self.state.total_steps, 'update')}: dev got no better",
        )
        return True

    # --- keeping ---

    def _save(self, stage: Stage | None) -> None:
        if not self.team.leads:
            return
        now = time.monotonic()
        self.state.seconds += now - self.clock
        self.clock = now
        self.log.flush()
        self.state.log_lines, self.state.losses = self.log.lines, self.sums.to_json()
        self.state.conflicts = self.conflicts.to_json()
        step = None if stage is None else stage.step
        save_checkpoint(
            self.folder.checkpoint,
            self.parts.model,
            None if step is None else step.optimizer,
            self.state,
            None if step is None else step.tensors(),
        )

    def _finish(self, data: Data, baseline: Scores) -> Outcome:
        state, folder = self.state, self.folder
        self.state.seconds += time.monotonic() - self.clock
        model = self.parts.model  # which gets its best weights back, not the last
        fill_model(
            folder.weights, model, self.team.spread(partial(read_learnt, folder.weights, model))
        )
        result: dict[str, Any] = {
            "recipe": self.config.name,
            "steps": state.total_steps,
            "best_step": state.total_steps if state.best is None else state.best_step,
            "seconds": round(state.seconds, 1),
        }
        if self.parts.device.type == "cuda":
            result["peak_memory_mib"] = torch.cuda.max_memory_allocated() >> 20
        if data["dev"]:
            result["dev"] = (self.best_scores or self._score(data["dev"])).to_json()
            result["baseline"] = baseline.to_json()
            result["baselines"] = state.baselines
        if state.before:
            finite = {n: v if math.isfinite(v) else None for n, v in state.before.items()}
            result["before"] = finite
        if self.team.leads:
            write_text(folder.scores, json.dumps(result, indent=1))
            update_card(folder.path)
        state.finished = True
        self.clock = time.monotonic()
        self._save(None)
        self.tell("end", result)
        return Outcome(folder.path, result)

    @contextmanager
    def _catch_interrupt(self) -> Iterator[None]:
        """Let the first Ctrl-C (or a polite kill) end the run after the update at hand."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def ask(number: int, _: object) -> None:
            self.interrupted.set()
            if self.team.size > 1:  # a launcher passes on what the terminal has sent already
                return
            told = "stopping after this update, to save it"
            if number == signal.SIGINT:
                signal.signal(number, count_once(stop, heard=True))
                told += "; once more stops at once"
            else:  # whoever kills a group, as `timeout` does, may well do so twice
                signal.signal(number, signal.SIG_IGN)
            with suppress(RuntimeError):  # the signal may have cut into a print of the same stream
                self.tell("note", told)

        def stop(number: int, _: object) -> None:
            signal.signal(number, previous[number])
            signal.raise_signal(number)

        previous: dict[int, Any] = {}
        for wanted in (signal.SIGINT, signal.SIGTERM):
            previous[wanted] = signal.signal(wanted, ask)
        try:
            yield
        finally:
            for asked, handler in previous.items():
                signal.signal(asked, handler)


def _refuse_divergence(losses: Mapping[str, float], record: StepRecord, stage: Stage) -> None:
    """Stop where a loss is no longer a number, before such a model is scored or kept."""
    lost = [task for task, loss in losses.items() if not math.isfinite(loss)]
    if lost:
        raise RunError(
            f"the loss of {', '.join(lost)} is not a number any more at update "
            f"{record.total_steps:,}: the training has diverged; try a lower rate than "
            f"{stage.config.lr:g} (lr of stage {stage.name!r}), a warmup, or clip = 1"
        )


def _is_out(state: TrainState, rule: EarlyStopping, name: str) -> bool:
    return state.waits.get(name, 0) >= rule.patience
