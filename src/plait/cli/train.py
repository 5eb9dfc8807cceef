"""`plait train`: a recipe becomes a run."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plait.cli.commands import write_command
from plait.cli.jobs import (
    AddressOption,
    EngineOption,
    JobsOption,
    choose_training,
    make_engine,
)
from plait.cli.workers import WorkersOption, check_workers, find_team, launch_command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from plait.config import RunConfig, TaskConfig
    from plait.scale import Engine
    from plait.training.run import Outcome
    from plait.training.team import Team

RecipeArgument = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE", help="Name of a packaged recipe (plait list recipes), or a .toml file."
    ),
]
DataOption = Annotated[
    str | None,
    typer.Option(
        "--data",
        metavar="DIR",
        help="Folder the recipe's files are in; PLAIT_DATA unless given, then the recipe's own.",
    ),
]
OverrideOption = Annotated[
    list[str] | None,
    typer.Option(
        "-o",
        "--override",
        metavar="KEY=VALUE|FILE",
        help="Set one setting, such as train.lr=3e-5, or lay a .toml file over the recipe; may be "
        "repeated.",
    ),
]
FromOption = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="RUN",
        help="Start from a trained run: its encoder and its tasks' heads, new tasks besides.",
    ),
]


def train(
    recipe: RecipeArgument,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="RUN", help="Folder of the run; runs/NAME-TIME unless set."),
    ] = None,
    data: DataOption = None,
    override: OverrideOption = None,
    from_: FromOption = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run in --out, same recipe.")
    ] = False,
    seed: Annotated[
        int | None, typer.Option("--seed", metavar="N", help="Seed, over the recipe's.")
    ] = None,
    jobs: JobsOption = None,
    graphs: Annotated[
        bool,
        typer.Option(
            "--graphs/--no-graphs",
            help="On a GPU, capture each kind of step once and replay it. Results are the same.",
        ),
    ] = True,
    each_alone: Annotated[
        bool,
        typer.Option(
            "--each-alone", help="Train each task by itself, with its share of the joint budget."
        ),
    ] = False,
    engine: EngineOption = "local",
    workers: WorkersOption = None,
    address: AddressOption = None,
) -> None:
    """Train one encoder on all tasks of a recipe.

    The run is a folder with the resolved recipe, the best model, its scores and a checkpoint
    to go on from. Ctrl-C saves and says how to resume.

    With --each-alone there is a run in OUT/TASK for each task, trained on as many batches as the
    task has in the joint run, and none of the joint run itself; a joint run in OUT/joint is
    shown beside them. --resume skips those that are finished.

    With --from, the run starts with the encoder and heads of another, and answers all tasks of
    both; those that RECIPE does not name are not trained, but scored, before and after.

    A recipe that lists members trains each of them into OUT/members and makes OUT their ensemble.

    Under torchrun (torchrun --nproc-per-node 2 -m plait train ...) all its processes train one
    run, each on its share of every batch; so do --workers of a Ray cluster with --engine ray.
    Of several runs, each is trained there by one worker, as many at once as there is room for; or
    with --workers by so many, one run after the other.
    """
    overrides = [*(override or ()), *(() if seed is None else (f"seed={seed}",))]
    overrides += [] if graphs else ["graphs=false"]
    with find_team() as team:
        from plait.config import EnsembleConfig, lists_members, read_ensemble, read_recipe
        from plait.errors import UsageError

        asked = make_engine(engine, address, None, None)
        read = read_ensemble if lists_members(recipe) else read_recipe
        config = read(recipe, [*overrides, *start_override(from_)])
        several = each_alone or isinstance(config, EnsembleConfig)
        if (jobs or 1) > 1 and not several:
            raise UsageError(
                "--jobs is for several runs: a recipe that lists members, or --each-alone"
            )
        num_workers = check_workers(asked, workers, team, jobs, several=several)
        if each_alone and isinstance(config, EnsembleConfig):
            raise UsageError(f"{recipe} lists members; --each-alone takes one of them")

        place = out or _name_run(config.name, resume, team)
        more = ["--jobs", str(jobs)] if jobs else []
        more += asked.words()
        more += ["--workers", str(num_workers)] if num_workers > 1 else []
        more += ["--each-alone"] if each_alone else []
        command = resume_command(recipe, place, data, overrides, from_, more)
        if isinstance(config, EnsembleConfig):
            from plait.cli.members import train_members

            train_several = choose_training(asked, jobs, num_workers)
            train_members(
                config, place, data, resume=resume, command=command, train_several=train_several
            )
        elif each_alone:
            from plait.cli.alone import train_each_alone

            train_several = choose_training(asked, jobs, num_workers)
            train_each_alone(
                config, place, data, resume=resume, command=command, train_several=train_several
            )
        elif asked.is_ray:
            _show_training(config, place, data, resume, command, _on_ray(asked, num_workers))
        elif team is None or team.leads:
            _show_training(config, place, data, resume, command, _here(team))
        else:  # the leader shows for all
            _here(team)(config, place, data=data, resume=resume, command=command)


def _name_run(recipe: str, resume: bool, team: Team | None) -> Path:
    """Make up a folder for a run; of a team, one name for all."""
    from datetime import datetime

    from plait.errors import RunError

    if resume:
        raise RunError("--resume needs --out RUN, the folder to go on in")
    name = f"{recipe.replace('/', '-')}-{datetime.now():%Y%m%d-%H%M%S}"
    return Path("runs") / (name if team is None else team.lead(lambda: name))


def _here(team: Team | None) -> Callable[..., Outcome]:
    """Return what trains in this process, alone or with its team."""

    def start(*args: Any, **options: Any) -> Outcome:
        from plait.training.runs import train as run_training
        from plait.training.team import ALONE

        return run_training(*args, team=team or ALONE, **options)

    return start


def _on_ray(engine: Engine, num_workers: int) -> Callable[..., Outcome]:
    """Return what trains by workers of a Ray cluster."""

    def start(config: RunConfig, out: Path, **options: Any) -> Outcome:
        from plait.scale.together import train_together

        return train_together(config, out, engine, num_workers, **options)

    return start


def _show_training(
    config: RunConfig,
    out: Path,
    data: str | None,
    resume: bool,
    command: str,
    start: Callable[..., Outcome],
) -> None:
    """Train one run and show how it goes and what became of it."""
    from plait.cli.display import Display

    finished = resume and (out / "scores.json").exists()
    with resumable(out, command), Display() as display:
        display.begin("loading")
        outcome = start(config, out, data=data, resume=resume, command=command, listeners=[display])
        if finished:
            display.note(f"{out} is finished already; these are its scores")
    from plait.inference.folders import RunFolder

    tasks = RunFolder(outcome.folder).read_config().tasks  # with what the recipe leaves out
    show_outcome(outcome.result, display.first_scores, tasks)
    typer.echo(f"\nThe run is in {out}. Try next:\n{next_commands(out, data, config)}")


def start_override(run: str | None) -> list[str]:
    """Write --from as the setting that it stands for."""
    import json

    return [] if run is None else [f"start={json.dumps(run)}"]


def resume_command(
    recipe: str,
    out: Path,
    data: str | None,
    overrides: list[str],
    start: str | None = None,
    more: Iterable[str] = (),
) -> str:
    """Write the command that goes on with a run."""
    options = {"--out": out, "--data": data, "--from": start}
    words = [*launch_command(), "train", recipe]
    return write_command(words, options, overrides, ["--resume", *more])


def next_commands(out: Path, data: str | None, config: RunConfig) -> str:
    """Write what a user may want to do with a fresh run, a command a line."""
    import shlex

    name = config.trained_tasks[0]
    task = config.tasks[name]
    texts = ["One text.", "Another text."] if task.is_pair else ["Your own sentence."]
    evaluate = ["evaluate", str(out), *(["--data", data] if data else [])]
    predict = ["predict", str(out), "--task", name]
    lines = [f"{shlex.join(predict)} " + " ".join(f'"{t}"' for t in texts)]
    if any(task.dev for task in config.tasks.values()):
        lines.insert(0, shlex.join(evaluate))
    return "\n".join(f"  plait {line}" for line in lines)


@contextmanager
def resumable(out: Path, command: str, finished: int = 0) -> Iterator[None]:
    """Say what is left of a run that is stopped at once, without the time to save.

    `finished` is how many runs of the same command are done already.
    """
    try:
        yield
    except KeyboardInterrupt:
        from plait.errors import Interrupted

        if (out / "checkpoint.safetensors").exists():
            told = f"stopped; go on from what was saved last with: {command}"
        elif (out / "recipe.toml").exists():
            told = f"stopped before anything was saved; start over with: {command}"
        elif finished:
            runs = "1 run is" if finished == 1 else f"{finished} runs are"
            told = f"stopped before the next run began; {runs} finished. Go on with: {command}"
        else:
            told = "stopped before training began; nothing was written"
        raise Interrupted(told) from None


def _difference(
    before: Mapping[str, float | None], after: Mapping[str, float | None], task: str
) -> str:
    from plait.cli.display import figure

    old, new = before.get(task), after.get(task)
    if old is None or new is None:
        return ""
    change = figure(new - old)
    return change if change.startswith("-") or change == ".000" else f"+{change}"


def show_outcome(
    result: dict[str, Any], before: Mapping[str, float], tasks: Mapping[str, TaskConfig]
) -> None:
    """Print a finished run's table of dev scores, beside those of the best simple baselines."""
    from plait.cli.display import figure, make_console, print_table
    from plait.errors import counted
    from plait.inference.baselines import best_in, list_shortfalls
    from plait.tasks.metrics import primary_metric

    console = make_console()
    if "dev" not in result:
        done = f"{counted(result['steps'], 'update')} in {result['seconds']:.0f} s"
        console.print(f"{done}; there is no dev set to score.")
        return
    dev = result["dev"]
    best = {name: best_in(result, name, tasks[name].kind) for name in dev["primary"]}
    columns = {"baseline": {name: found[1] for name, found in best.items() if found}}
    if before := result.get("before", before):
        columns["before"] = before
    columns["trained"] = dev["primary"]
    rows = [["task", "figure", *columns, *(["difference"] if "before" in result else [])]]
    for name in dev["primary"]:
        metric = primary_metric(tasks[name].kind, tasks[name].metric)
        row = [name, metric, *(figure(values.get(name)) for values in columns.values())]
        if "before" in result:
            row += [_difference(before, dev["primary"], name)]
            row[3] = row[3] if name in before else "new"
        rows.append(row)
    console.print()
    print_table(console, rows, num_words=2)
    for sentence in list_shortfalls(result, tasks, figure):
        console.print(f"note: {sentence}")
    summary = dev["summary"]
    console.print(
        f"\noverall {figure(summary['overall'])}, mean {figure(summary['mean'])}, "
        f"sum {summary['sum']:.3f} on dev; best after {result['best_step']} of "
        f"{counted(result['steps'], 'update')}; trained for {result['seconds']:.0f} s"
    )
