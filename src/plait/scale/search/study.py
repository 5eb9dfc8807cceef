"""Run the trials of a search, and write the best one as a recipe.

study.db     Optuna's study: settings and scores of the trials
search.toml  the recipe and the space, resolved
trials/NNN/  a trial's run, or a run for each fold
trials.csv   every trial with its settings and score
best.toml    a recipe with the best settings
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from plait.config import read_resolved, to_toml
from plait.data.storage import write_text
from plait.errors import Interrupted, RecipeError, ResourceError, RunError, UsageError
from plait.inference.folders import RunFolder, list_changes, take_lock
from plait.scale.factory import open_pool
from plait.scale.pool import DONE, FAILED, LOST, SPENT
from plait.scale.running import find_needs
from plait.scale.search.request import Search
from plait.scale.search.results import Trial, rank, write_best, write_trials
from plait.scale.search.space import find_distributions, read_settings, write_override
from plait.scale.search.trial import Job, run_trial

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from plait.config import RunConfig
    from plait.scale import Message, WorkerPool

STUDY = "search"
"""The study's name in its file."""

AS = "as"
"""Attribute of a trial: the earlier trial with the same settings, whose score it gets."""

NUM_RUNS = "num_runs"
"""Attribute of the study: the runs per trial."""

ERROR = "error"
"""Attribute of a failed trial: the error message."""


def run_search(
    search: Search,
    *,
    resume: bool = False,
    command: str = "plait search RECIPE --out OUT --resume",
    hear: Callable[[Trial], None] = lambda _: None,
    note: Callable[[str], None] = lambda _: None,
) -> list[Trial]:
    """Run or continue a search; return every trial, the best first.

    `hear` is called when a trial starts and when it ends, `note` with messages about lost workers.
    With one job, the same seed gives the same trials. `command` is the command that resumes the
    search.
    """
    try:
        import optuna
    except ImportError as error:
        raise UsageError(
            f"plait search needs Optuna (pip install 'plait[search]'): {error}"
        ) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    config = search.read_config()
    num_places = search.num_jobs and min(search.num_jobs, search.num_trials)
    with (
        _opened(search, config, resume=resume, command=command),
        _storage_explained(search.out, command),
        open_pool(search.engine, num_places, search.out, note, gpu=config.device != "cpu") as pool,
    ):
        study = optuna.create_study(
            storage=f"sqlite:///{search.out.resolve() / 'study.db'}",
            study_name=STUDY,
            direction="maximize",
            pruner=optuna.pruners.MedianPruner() if search.prune else optuna.pruners.NopPruner(),
            load_if_exists=True,
        )
        before = study.user_attrs.get(NUM_RUNS, search.num_runs)
        if before != search.num_runs:
            raise RunError(
                f"{search.out} was started with {before} runs per trial, not {search.num_runs}; "
                "resume it with the same options, or choose another --out"
            )
        study.set_user_attr(NUM_RUNS, search.num_runs)
        session = _Session(search, config, study, pool, hear)
        try:
            session.run()
        except KeyboardInterrupt:
            session.stop()
            raise Interrupted(
                f"stopped; every trial is kept in {search.out}. Continue with: {command}"
            ) from None
    return rank(session.trials())


@contextmanager
def _opened(search: Search, config: RunConfig, *, resume: bool, command: str) -> Iterator[None]:
    """Create the folder, or check that it holds this search; lock it for other processes."""
    out, kept = search.out, search.out / "search.toml"
    begun = out.exists() and (not out.is_dir() or any(i.name[0] != "." for i in out.iterdir()))
    if begun and not resume:
        raise RunError(
            f"{out} exists already and is not overwritten; continue with `{command}`, or "
            "choose another --out"
        )
    if resume and not kept.is_file():
        raise RunError(f"there is no search at {out} to resume; leave out --resume to start one")
    if resume:
        changed = list_changes(read_resolved(kept), config, _read_run(out))
        if changed:
            more = f" and {len(changed) - 5} more" if len(changed) > 5 else ""
            raise RunError(
                f"{out} was started with another recipe or space ({'; '.join(changed[:5])}{more}); "
                "resume it with the same options, or choose another --out"
            )
    out.mkdir(parents=True, exist_ok=True)
    with RunFolder(out).lock.open("a") as file:
        take_lock(file, RunFolder(out))
        if not kept.exists():
            write_text(kept, to_toml(config))
        yield


def _read_run(out: Path) -> dict[str, Any]:
    """Return the run.json of the first run, which has absolute paths; empty without a run."""
    found = min(out.glob("trials/**/run.json"), default=None)
    return {} if found is None else RunFolder(found.parent).read_json(found)


@contextmanager
def _storage_explained(out: Path, command: str) -> Iterator[None]:
    """Convert a database error, such as a full disk, to an error with one sentence."""
    from optuna.exceptions import StorageInternalError
    from sqlalchemy.exc import OperationalError

    try:
        yield
    except (StorageInternalError, OperationalError) as error:
        cause = error.__cause__ if isinstance(error, StorageInternalError) else error
        reason = getattr(cause, "orig", None) or error
        raise ResourceError(
            f"{out / 'study.db'} cannot be written: {reason}; fix this and continue with: {command}"
        ) from error


class _Session:
    """A search from its start or continuation until it stops."""

    def __init__(
        self,
        search: Search,
        config: RunConfig,
        study: Any,
        pool: WorkerPool,
        hear: Callable[[Trial], None],
    ):
        self.search, self.config, self.study, self.hear = search, config, study, hear
        self.pool = pool
        self.space = config.search.space
        self.distributions = find_distributions(self.space)
        self.active: dict[str, Any] = {}
        """Running trials by name."""

    # --- trials ---

    def trials(self) -> list[Trial]:
        """Return every trial so far, in order."""
        return [self._show(trial) for trial in self.study.get_trials(deepcopy=False)]

    def _show(self, trial: Any) -> Trial:
        values = list(trial.intermediate_values.values())
        state = {"COMPLETE": "done", "FAIL": "failed"}.get(trial.state.name)
        same = trial.user_attrs.get(AS)
        figure = trial.value if trial.state.name == "COMPLETE" else max(values, default=None)
        figure = None if trial.state.name == "FAIL" else figure
        number = trial.number + 1
        return Trial(
            number=number,
            state=state or trial.state.name.lower(),
            figure=figure,
            settings=read_settings(self.space, trial.params),
            folder=self._folder(number if same is None else same),
            evaluations=len(values),
            seconds=None if trial.duration is None else trial.duration.total_seconds(),
            note=trial.user_attrs.get(ERROR, "") if same is None else f"settings of trial {same}",
        )

    def _folder(self, number: int) -> Path:
        return self.search.out / "trials" / f"{number:03}"

    def run(self) -> None:
        """Run trials until the requested number is reached."""
        import optuna

        running = optuna.trial.TrialState.RUNNING
        # Trials that were running when the search stopped continue from their checkpoints.
        waiting = [
            optuna.trial.Trial(self.study, trial._trial_id)
            for trial in self.study.get_trials(deepcopy=False, states=(running,))
        ]
        while True:
            while len(self.active) < self.pool.num_places:
                trial = waiting.pop(0) if waiting else self._ask()
                if trial is None:
                    break
                self._start(trial)
            if not self.active:
                return
            for heard in self.pool.hear():
                self._listen(*heard)

    def _ask(self) -> Any:
        """Draw a trial; one with the settings of an earlier trial gets its score without a run."""
        import optuna

        while (number := len(self.study.get_trials(deepcopy=False))) < self.search.num_trials:
            # Seeded by number, so that a resumed search draws the same trials.
            seed = np.random.SeedSequence([self.config.seed, number]).generate_state(1)[0]
            self.study.sampler = optuna.samplers.TPESampler(seed=int(seed))
            trial = self.study.ask(self.distributions)
            known = self._find_same(trial)
            if known is None:
                return trial
            trial.set_user_attr(AS, known.user_attrs.get(AS, known.number + 1))
            for step, value in known.intermediate_values.items():
                trial.report(value, step)
            value = known.value if known.state.name == "COMPLETE" else None
            self._end(trial, known.state, value)
        return None

    def _find_same(self, trial: Any) -> Any:
        from optuna.trial import TrialState

        over = (TrialState.COMPLETE, TrialState.PRUNED)
        known = self.study.get_trials(deepcopy=False, states=over)
        return next((other for other in known if other.params == trial.params), None)

    def _start(self, trial: Any) -> None:
        number, search = trial.number + 1, self.search
        folder = self._folder(number).absolute()  # a worker may have another working directory
        settings = read_settings(self.space, trial.params)
        try:
            if search.num_runs == 1:
                runs = [(search.trial_config(settings), folder)]
            else:
                folds = range(1, search.num_runs + 1)
                runs = [(search.trial_config(settings, i), folder / f"fold-{i}") for i in folds]
        except RecipeError as error:
            self._fail(trial, str(error))
            return
        name = f"trial {number}"
        needs = find_needs([config for config, _ in runs], search.data)
        self.active[name] = trial  # before the start: Ctrl-C may come directly after it
        self.pool.start(name, run_trial, Job(tuple(runs), search.data), needs)
        self._tell(trial)

    def _listen(self, name: str, message: Message, is_last: bool) -> None:
        """Handle one message of a trial."""
        from optuna.trial import TrialState

        event, *values = message
        trial = self.active.pop(name) if is_last else self.active[name]
        if event == "figure":
            self.pool.answer(name, self._hear_figure(trial, *values))
        elif event == DONE:
            self._end(trial, TrialState.COMPLETE, values[0])
        elif event == "pruned":
            self._end(trial, TrialState.PRUNED, None)
        elif event in (FAILED, SPENT, LOST):
            self._fail(trial, values[0])

    def _hear_figure(self, trial: Any, step: int, value: float) -> bool:
        if step not in self._frozen(trial).intermediate_values:  # else reported before a kill
            trial.report(value, step)
        return not trial.should_prune()

    def _fail(self, trial: Any, why: str) -> None:
        from optuna.trial import TrialState

        trial.set_user_attr(ERROR, why)
        self._end(trial, TrialState.FAIL, None)

    def _end(self, trial: Any, state: Any, value: float | None) -> None:
        self.study.tell(trial, value, state=state)
        folder = self._folder(trial.number + 1)
        for path in folder.rglob("*.safetensors") if folder.is_dir() else ():
            # The trial never continues, and a checkpoint has the size of three models.
            if state.name == "PRUNED" or path.name == "checkpoint.safetensors":
                path.unlink()
        self._write()
        self._tell(trial)

    def _frozen(self, trial: Any) -> Any:
        return self.study.get_trials(deepcopy=False)[trial.number]

    def _tell(self, trial: Any) -> None:
        self.hear(self._show(self._frozen(trial)))

    def _write(self) -> None:
        trials = self.trials()
        write_trials(self.search.out, trials, list(self.space))
        done = [trial for trial in rank(trials) if trial.state == "done"]
        if done:
            search = self.search
            config = replace(search, folds=None).trial_config(done[0].settings)
            more = [write_override(key, value) for key, value in done[0].settings.items()]
            write_best(
                search.out,
                config,
                search.recipe,
                [*search.overrides, *more],
                search.data,
            )

    # --- stopping ---

    def stop(self) -> None:
        """Let every trial save its state; a second Ctrl-C ends them immediately."""
        self.pool.stop()
        while self.pool.names():
            for name, message, is_last in self.pool.hear():
                # Finished trials are recognised when the search continues.
                if not is_last and message[0] == "figure":
                    self._hear_figure(self.active[name], *message[1:])
                    self.pool.answer(name, True)
