"""Train a recipe into a run folder.

This module consumes the records of the training loop: it scores, logs, saves checkpoints, stops
early and handles interruption.
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
from plait.training.teachers import TeacherAnswers
from plait.training.team import ALONE
from plait.training.workers import (
    check_device,
    compare_recipes,
    compare_workers,
    explain_lost_workers,
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
    """Train a recipe into a folder, or resume the run in it.

    `data` replaces the recipe's data root; `command` is the command that resumes the run, for
    messages; `open_teacher` opens the teachers of distillation stages. Every process of a `team`
    makes the same call; only the leader reads the folder and needs listeners.
    """
    folder = RunFolder(Path(out))
    with explain_lost_workers(team, folder, command):
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
        active = [*listeners, *(part.build() for part in plan.listeners)] if team.leads else []
        teachers = TeacherAnswers(plan, folder, open_teacher, data)
        session = _Session(parts, folder, active, command, teachers)
        with disk_full_told(folder.log), ExitStack() as closing:
            for listener in session.listeners:
                closing.callback(listener.close)
            # The folder is written only after the data was read without errors, so that a failed
            # start can be repeated.
            with team.one_by_host():  # tokens are kept on disk
                datasets = session.read(data)
            check_stages(
                parts, datasets["train"], datasets["texts"], datasets.get("unlabelled", {})
            )
            compare_workers(parts, datasets)
            if team.leads:
                teachers.open(read_state(folder).stage)
                closing.enter_context(opened(folder, config, resume=resume, command=command))
            for choice in choices:
                session.notify("note", f"chosen: {choice}")
            with _own_stream(parts.device):
                return session.run(datasets, team.lead(lambda: read_state(folder)))


def _read_known(folder: RunFolder) -> RunConfig | None:
    """Return the recipe of a run to resume, with its chosen settings; None for a new run."""
    return folder.read_config() if folder.recipe.exists() else None


def complete_recipe(
    config: RunConfig, data: str | None, listeners: Sequence[Listener] = ()
) -> tuple[RunConfig, list[Choice]]:
    """Return a recipe with all settings; missing ones are chosen from its training rows."""
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
    """Use a side stream on a GPU: CUDA graphs cannot capture the default stream."""
    return torch.cuda.stream(torch.cuda.Stream(device)) if device.type == "cuda" else nullcontext()


def read_state(folder: RunFolder) -> TrainState:
    """Return the training state of a run."""
    if folder.checkpoint.exists():
        return load_state(folder.checkpoint)
    # A finished run whose checkpoint was deleted is not trained again.
    return TrainState(finished=folder.scores.exists() and folder.weights.exists())


class _Session:
    """One process's part of a run, from reading the data to the final scores."""

    def __init__(
        self,
        parts: Parts,
        folder: RunFolder,
        listeners: list[Listener],
        command: str,
        teachers: TeacherAnswers,
    ):
        self.teachers = teachers
        self.parts, self.config, self.folder = parts, parts.config, folder
        self.team, self.command = parts.team, command
        self.log = MetricsLog()
        self.listeners = [self.log, *listeners] if self.team.leads else []
        self.state = TrainState()
        self.interrupted = threading.Event()
        self.begun = False
        """Whether heads were initialized when this stage was opened."""
        self.best_scores: Scores | None = None
        """Scores of the best model on the whole dev set, if this process computed them."""
        scorer = Scorer(
            parts.model,
            parts.tasks,
            parts.collator,
            room=choose_room(parts.device),
            autocast=parts.autocast,
            progress=lambda *place: self.notify("scoring", *place),
        )
        self.scorer = TeamScorer(scorer, self.team)

    def notify(self, event: str, *args: Any) -> None:
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
        self.notify("start", self.folder.path, plain, self.state.total_steps)
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
        """Score baselines of each task on dev, for scores.json."""
        found = measure(self.parts, data["train"], data["dev"], self._report_start)
        self.state.baselines = {
            task: {name: v if math.isfinite(v) else None for name, v in figures.items()}
            for task, figures in found.items()
        }

    def _score_first(self, dev: Mapping[str, Dataset]) -> None:
        """Score dev before training; keep the scores of tasks that the starting run trained."""
        scores = self._score(dev)
        self._update_best({"dev": scores}, counts=False)
        if start := self.parts.start:
            known = [task for task in start.taken_over(self.config) if task in scores.primary]
            self.state.before = {task: scores.primary[task] for task in known}

    # --- data ---

    def read(self, root: str | None) -> Data:
        def progress(what: str, done: int, total: int) -> None:
            self.notify("reading", what, done, total)

        start, config = self.parts.start, self.config
        kept, notes = find_kept(config, root)
        names = config.trained_tasks if start else tuple(config.tasks)
        wanted = {"train": names, "dev": (*names, *kept)}
        tokenizer = self.parts.tokenizer
        load = partial(load_data, config, tokenizer, data=root, progress=progress)
        data: Data = {split: load(split, tasks=wanted[split]) for split in SPLITS}
        data["texts"] = load_named_texts(self.parts.plan, tokenizer, data=root, progress=progress)
        if any(config.tasks[name].unlabelled for name in names):
            data["unlabelled"] = load("unlabelled", tasks=names)
        notes += start.notes(config, self.folder.path) if start else []
        notes += filter(None, [note_share(self.parts.device)])
        idle, missing = find_idle(self.parts.plan), find_missing(self.parts.plan, root)
        notes += note_held_out(idle, missing, count_held_out(self.parts.plan, data))
        notes += note_data(self.parts, data["train"], data.get("unlabelled", {}), data["dev"])
        for note in notes:
            self.notify("note", note)
        return data

    def _describe(self, data: Data) -> None:
        """Write run.json, or check that a resumed run has the same data and parts."""
        facts = describe_data(data, count_held_out(self.parts.plan, data))
        if not self.folder.checkpoint.exists():
            write_parts(self.folder, self.parts, facts, self.teachers.describe())
            return
        self.teachers.check(self.folder.read_json(self.folder.info))
        for note in compare_parts(self.folder, self.parts, facts):
            self.notify("note", note)

    # --- training ---

    def _train_stage(self, index: int, data: Data) -> None:
        """Train a stage to its end, starting at the current state."""
        parts, state = self.parts, self.state
        stage = self._open_stage(index, data)
        if self.begun:
            self._score_start(stage, data["dev"])
        for note in note_stage(stage):
            self.notify("note", note)
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
        if stage.step.mean is not None:  # the next stage starts from the averaged weights
            stage.step.mean.settle()
        if trouble := stage.step.runner.trouble:
            self.notify(
                "note",
                f"some steps were not captured as CUDA graphs and ran without: {trouble}",
            )
        drop_heads(parts)
        state.next_stage()
        if state.stage < len(self.config.stages):
            self._save(None)
        elif state.best is None and self.team.leads:  # no dev set: keep the last model
            save_weights(self.folder.weights, parts.model)

    def _open_stage(self, index: int, data: Data) -> Stage:
        """Build a stage and restore it from the checkpoint, if it has one."""
        state, team, checkpoint = self.state, self.team, self.folder.checkpoint
        load = partial(load_checkpoint, checkpoint, self.parts.model, team=team)
        saved = team.lead(checkpoint.exists)
        is_inside = saved and state.step > 0
        if not is_inside:
            # Each stage selects its best model again: a model from an earlier stage has not been
            # trained on everything in the recipe. Exception: if every head was initialized with a
            # linear model, the untrained encoder is a candidate too.
            if state.best_step or state.best is None:
                state.best, state.best_step, self.best_scores = None, 0, None
            if saved and state.stage > 0:  # between stages only the heads of the tasks exist
                load(None)
        train, unlabelled = data["train"], data.get("unlabelled", {})
        answers = team.spread(
            lambda: self.teachers.load_or_ask(index, train, unlabelled, self._report_teacher)
        )
        # Inside a stage the model also has the stage's heads: the weights are read after these are
        # added, and again, with the optimizer's moments, after the optimizer is built.
        restore = partial(load, None) if is_inside else partial(self._begin_heads, index, data)
        self.begun = False
        stage = build_stage(self.parts, index, train, data["texts"], restore, answers, unlabelled)
        if is_inside:
            stage.step.load_tensors(load(stage.step.optimizer))
        return stage

    def _begin_heads(self, index: int, data: Data) -> None:
        """Initialize heads with linear models, if only pre-training stages ran so far.

        Before a pre-training stage this is needed only to score dev.
        """
        kinds = [stage.kind for stage in self.parts.plan.stages[: index + 1]]
        tasks = self.state.begun
        if not tasks or not all(kind.pretrains for kind in kinds[:-1]):
            return
        if kinds[-1].pretrains and not data["dev"]:
            return

        begin_heads(self.parts, tasks, data["train"], self._report_start)
        self.begun = True

    def _report_start(self, *place: Any) -> None:
        """Report progress before the first update; stop on Ctrl-C."""
        self.notify("scoring", *place)
        if self.interrupted.is_set() and not self.state.total_steps and self.team.size == 1:
            raise Interrupted(
                f"stopped before the first update; nothing is saved. Start again with: "
                f"{self.command}"
            )

    def _score_start(self, stage: Stage, dev: Mapping[str, Dataset]) -> None:
        """Score dev before the stage's first update; initialized heads make it a candidate."""
        if not dev:
            return
        with stage.step.averaged():
            scores = self._score(dev)
        heads = [self.parts.model.heads[f"task-{name}"] for name in self.config.trained_tasks]
        # If the last stage pre-trains, no stage scores dev, and the last model is kept.
        last = self.parts.plan.stages[-1].kind
        counts = all(head.begins for head in heads) and not last.pretrains
        if self._update_best({"dev": scores}, counts=counts):
            if self.team.leads:
                save_weights(self.folder.weights, self.parts.model, stage_heads(self.parts))
            self.best_scores = scores
        if not self.state.total_steps and (start := self.parts.start):
            known = [task for task in start.taken_over(self.config) if task in scores.primary]
            self.state.before = {task: scores.primary[task] for task in known}

    def _report_teacher(self, task: str, done: int, total: int) -> None:
        self.notify("asking", task, done, total)
        if self.interrupted.is_set():  # the next update may be far away
            raise Interrupted(
                f"stopped while the teacher predicted {task!r}; these predictions are not saved. "
                f"Go on with: {self.command}"
            )

    def _evaluation(self, stage: Stage, data: Data) -> Callable[[], dict[str, Scores]] | None:
        """Return the function that scores dev, and part of train if set; None without dev."""
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
        self.notify("step", record)
        is_last = record.step == record.num_steps  # the next stage may train something else
        if record.total_steps % self.config.log_every == 0 or record.scores or is_last:
            if conflicts := self.conflicts.take():
                self.notify("conflicts", record, conflicts)
            losses = self.sums.take()
            _refuse_divergence(losses, record, stage)
            self.notify("losses", record, losses)
        if record.scores:
            better = self._update_best(record.scores)
            if better:
                if self.team.leads:
                    with stage.step.averaged():
                        save_weights(self.folder.weights, self.parts.model)
                whole = stage.config.eval_limit is None
                self.best_scores = record.scores["dev"] if whole else None
            self._update_patience(stage, record.scores["dev"])
        stopping = self.team.any(self.interrupted.is_set())
        if record.scores or stopping or record.total_steps % self.config.save_every == 0:
            self._save(stage)
        if stopping:
            raise Interrupted(
                f"stopped after {counted(record.total_steps, 'update')}; everything is saved in "
                f"{self.folder.path}. Go on with: {self.command}"
            )

    def _update_best(self, scores: Mapping[str, Scores], *, counts: bool = True) -> bool:
        """Report scores and update the best; return whether these are the best so far."""
        state = self.state
        figure = scores["dev"].summary[self.config.select]
        # On a tie the earlier model is kept, but a trained model wins over the untrained one.
        tied = figure == state.best and not state.best_step
        better = counts and (state.best is None or figure > state.best or tied)
        if better:
            state.best, state.best_step = figure, state.total_steps
            self.notify("best", state.total_steps)
        for split, figures in scores.items():
            self.notify("scores", state.total_steps, split, figures)
        return better

    def _update_patience(self, stage: Stage, scores: Scores) -> None:
        """Count the evaluations since the last improvement of each score."""
        figures = {"": scores.summary[self.config.select], **scores.primary}
        for name, value in figures.items():
            # An undefined score, such as a correlation of constant predictions, is never the best.
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
                    self.notify(
                        "note",
                        f"{task}: stopped early, no improvement in "
                        f"{counted(rule.patience, 'evaluation')}",
                    )

    def _is_over(self, stage: Stage) -> bool:
        """Return whether early stopping ends the stage; a resumed run checks this first."""
        rule = stage.config.early_stopping
        if rule is None or rule.per_task or not _is_out(self.state, rule, ""):
            return False
        self.notify(
            "note",
            f"stopped early after {counted(self.state.total_steps, 'update')}: dev did not improve",
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
        model = self.parts.model  # load the best weights, not the last
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
        self.notify("end", result)
        return Outcome(folder.path, result)

    @contextmanager
    def _catch_interrupt(self) -> Iterator[None]:
        """Stop after the current update on the first Ctrl-C or SIGTERM."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def ask(number: int, _: object) -> None:
            self.interrupted.set()
            if self.team.size > 1:  # a launcher forwards a signal that the terminal has sent too
                return
            message = "stopping after this update and saving"
            if number == signal.SIGINT:
                signal.signal(number, count_once(stop, heard=True))
                message += "; press Ctrl-C again to stop now"
            else:  # `timeout` and other tools that kill a group may send the signal twice
                signal.signal(number, signal.SIG_IGN)
            with suppress(RuntimeError):  # the signal may have interrupted a print
                self.notify("note", message)

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
    """Raise RunError if a loss is NaN or infinite, before the model is scored or saved."""
    lost = [task for task, loss in losses.items() if not math.isfinite(loss)]
    if lost:
        raise RunError(
            f"training diverged: the loss of {', '.join(lost)} is NaN or infinite at update "
            f"{record.total_steps:,}; lower lr (now {stage.config.lr:g} in stage {stage.name!r}), "
            "add warmup, or set clip = 1"
        )


def _is_out(state: TrainState, rule: EarlyStopping, name: str) -> bool:
    return state.waits.get(name, 0) >= rule.patience
