"""`plait train`: train one or several recipes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plait.cli.options import (
    DataOption,
    JobsOption,
    OverrideOption,
    RecipesArgument,
    resume_command,
)
from plait.cli.workers import check_jobs, find_team

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from plait.cli.display import Display
    from plait.config import EnsembleConfig, RunConfig, TaskConfig
    from plait.scale import Jobs
    from plait.scale.running import Runs
    from plait.training.team import Team

JOINT = "joint"
"""Folder beside the single-task runs; if a joint run is there, its scores are shown as well."""

FromOption = Annotated[
    str | None,
    typer.Option(
        "--from", metavar="RUN", help="Initialise the encoder and matching heads from this run."
    ),
]


def train(
    recipes: RecipesArgument,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Folder of the run. Default: runs/NAME-TIME."),
    ] = None,
    data: DataOption = None,
    override: OverrideOption = None,
    from_: FromOption = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the run in --out; skip finished runs.")
    ] = False,
    each_alone: Annotated[
        bool,
        typer.Option("--each-alone", help="Train each task separately, for comparison."),
    ] = False,
    jobs: JobsOption = None,
) -> None:
    """Train one encoder on all tasks of a recipe.

    The run folder holds the resolved recipe, the best model, its scores and a checkpoint. Press
    Ctrl-C to stop; the message shows the command that resumes the run.

    Several recipes are trained into DIR/NAME, each task of --each-alone into DIR/TASK with the
    number of batches that it has in the joint run, and the members of an ensemble recipe into
    DIR/members. A run that fails does not stop the others.

    To use several processes for one run, start it with torchrun or with --jobs ray,workers=N.
    """
    with find_team() as team:
        from plait.config import EnsembleConfig, lists_members, read_ensemble, read_recipe
        from plait.errors import UsageError
        from plait.scale import Jobs
        from plait.scale.cluster import check_engine

        how = Jobs.read(jobs)
        check_engine(how.engine)
        overrides = [*(override or ()), *start_override(from_)]
        if len(recipes) > 1:
            if each_alone:
                raise UsageError("--each-alone takes one recipe")
            check_jobs(how, team, several=True)
            folder = out or Path("runs")
            found = _read_recipes(recipes, folder, overrides)
            _train_recipes(found, data, how, resume=resume)
            typer.echo(f"\nThe runs are in {folder}.")
            return
        (recipe,) = recipes
        read = read_ensemble if lists_members(recipe) else read_recipe
        config = read(recipe, overrides)
        is_ensemble = isinstance(config, EnsembleConfig)
        if each_alone and is_ensemble:
            raise UsageError(f"{recipe} is an ensemble recipe; use --each-alone with one member")
        check_jobs(how, team, several=each_alone or is_ensemble)
        place = out or _name_run(config.name, resume, team)
        command = resume_command(*([] if out else ["--out", place]))
        if isinstance(config, EnsembleConfig):
            _train_ensemble(config, place, data, how, resume, command)
        elif each_alone:
            _train_each_alone(config, place, data, how, resume, command)
        else:
            _train_one(config, place, data, how, team, resume, command)


def start_override(run: str | None) -> list[str]:
    """Return --from as an override of the recipe."""
    import json

    return [] if run is None else [f"start={json.dumps(run)}"]


def _name_run(recipe: str, resume: bool, team: Team | None) -> Path:
    """Return a new folder name, the same for all processes of a team."""
    from datetime import datetime

    from plait.errors import RunError

    if resume:
        raise RunError("--resume needs --out DIR, the folder of the run to continue")
    name = f"{recipe.replace('/', '-')}-{datetime.now():%Y%m%d-%H%M%S}"
    return Path("runs") / (name if team is None else team.lead(lambda: name))


# --- one run -----------------------------------------------------------------------------


def _train_one(
    config: RunConfig,
    out: Path,
    data: str | None,
    jobs: Jobs,
    team: Team | None,
    resume: bool,
    command: str,
) -> None:
    from plait.cli.display import Display
    from plait.cli.runs import resumable

    options: dict[str, Any] = {"data": data, "resume": resume, "command": command}
    if team is not None and not team.leads:  # only the leader prints
        from plait.training.runs import train as run_training

        run_training(config, out, team=team, **options)
        return
    finished = resume and (out / "scores.json").exists()
    with resumable(out, command), Display() as display:
        display.begin("loading")
        options["listeners"] = [display]
        if jobs.engine.is_ray:
            from plait.scale.together import train_together

            outcome = train_together(config, out, jobs.engine, jobs.workers, **options)
        else:
            from plait.training.runs import train as run_training
            from plait.training.team import ALONE

            outcome = run_training(config, out, team=team or ALONE, **options)
        if finished:
            display.note(f"{out} is already finished; these are its scores")
    from plait.inference.folders import RunFolder

    tasks = RunFolder(outcome.folder).read_config().tasks  # with the settings that were chosen
    show_outcome(outcome.result, display.first_scores, tasks)
    typer.echo(f"\nThe run is in {out}. Next:\n{next_commands(out, data, config)}")


def next_commands(out: Path, data: str | None, config: RunConfig) -> str:
    """Return commands to use a new run with, one a line."""
    import shlex

    name = config.trained_tasks[0]
    task = config.tasks[name]
    texts = ["First text.", "Second text."] if task.is_pair else ["Your own sentence."]
    predict = ["plait", "predict", str(out), "--task", name]
    lines = [f"{shlex.join(predict)} " + " ".join(f'"{text}"' for text in texts)]
    if any(task.dev_files for task in config.tasks.values()):
        evaluate = ["plait", "evaluate", str(out), *(["--data", data] if data else [])]
        lines.insert(0, shlex.join([*evaluate, "--errors", "5"]))
    return "\n".join(f"  {line}" for line in lines)


def show_outcome(
    result: dict[str, Any], before: Mapping[str, float], tasks: Mapping[str, TaskConfig]
) -> None:
    """Print the dev scores of a finished run beside those of the best simple baseline."""
    from plait.cli.display import figure, make_console, print_table
    from plait.errors import counted
    from plait.inference.baselines import best_in, list_shortfalls
    from plait.tasks.metrics import primary_metric

    console = make_console()
    if "dev" not in result:
        done = f"{counted(result['steps'], 'update')} in {result['seconds']:.0f} s"
        console.print(f"{done}. There is no dev set to score.")
        return
    dev = result["dev"]
    best = {name: best_in(result, name, tasks[name].kind) for name in dev["primary"]}
    columns = {"baseline": {name: found[1] for name, found in best.items() if found}}
    if before := result.get("before", before):
        columns["before"] = before
    columns["trained"] = dev["primary"]
    rows = [["task", "metric", *columns, *(["difference"] if "before" in result else [])]]
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
    console.print(
        f"\n{write_average(dev['summary'])} on dev; best model after {result['best_step']} of "
        f"{counted(result['steps'], 'update')}; training took {result['seconds']:.0f} s"
    )


def write_average(summary: Mapping[str, float | None]) -> str:
    """Write the average of the tasks' scores."""
    from plait.cli.display import figure

    return f"average score {figure(summary['mean'])}"


def _difference(
    before: Mapping[str, float | None], after: Mapping[str, float | None], task: str
) -> str:
    from plait.cli.display import signed

    old, new = before.get(task), after.get(task)
    return "" if old is None or new is None else signed(new - old)


# --- several runs ------------------------------------------------------------------------


def _check_folders(runs: Runs, *, resume: bool) -> None:
    """Refuse folders that exist without --resume, and finished runs of another recipe."""
    from plait.errors import RunError
    from plait.inference.folders import RunFolder

    for config, out in runs.wanted.values():
        folder = RunFolder(out)
        if out.exists() and not resume:
            raise RunError(
                f"{out} exists already and is not overwritten; continue with `{runs.command}`, or "
                "choose another --out"
            )
        if folder.scores.exists() and (changed := folder.find_changes(config)):
            raise RunError(
                f"{out} was trained with another recipe ({'; '.join(changed[:3])}); choose another "
                "--out"
            )


def _read_recipes(
    recipes: Sequence[str], out: Path, overrides: Sequence[str]
) -> dict[str, tuple[RunConfig, Path]]:
    """Read all recipes before the first is trained; refuse two with the same name."""
    from plait.config import lists_members, read_recipe
    from plait.errors import UsageError

    runs: dict[str, tuple[RunConfig, Path]] = {}
    for recipe in recipes:
        if lists_members(recipe):
            raise UsageError(f"{recipe} is an ensemble recipe; train it with a separate command")
        config = read_recipe(recipe, overrides)
        name = config.name.replace("/", "-")
        if name in runs:
            raise UsageError(
                f"two recipes are named {config.name!r}: their runs would be in the same folder"
            )
        runs[name] = config, out / name
    return runs


def _train_recipes(
    wanted: Mapping[str, tuple[RunConfig, Path]],
    data: str | None,
    jobs: Jobs,
    *,
    resume: bool,
) -> None:
    """Train several recipes and print a line of dev scores for each."""
    from plait.cli.display import figure, make_console, print_table
    from plait.cli.runs import raise_failed, train_runs
    from plait.inference.folders import RunFolder
    from plait.scale.running import Runs

    runs = Runs(wanted, data, resume_command())
    _check_folders(runs, resume=resume)
    failed = train_runs(runs, jobs)
    results: dict[str, Any] = {}
    for name, (_, out) in wanted.items():
        if name not in failed:
            folder = RunFolder(out)
            results[name] = folder.read_json(folder.scores).get("dev")
    tasks = list(dict.fromkeys(t for dev in results.values() if dev for t in dev["primary"]))
    rows = [["run", *tasks, "average"]]
    for name, dev in results.items():
        primary = dev["primary"] if dev else {}
        figures = [figure(primary[task]) if task in primary else "" for task in tasks]
        rows.append([name, *figures, figure(dev["summary"]["mean"]) if dev else "no dev set"])
    print_table(make_console(), rows)
    raise_failed(failed)


def _train_each_alone(
    config: RunConfig,
    out: Path,
    data: str | None,
    jobs: Jobs,
    resume: bool,
    command: str,
) -> None:
    """Train every task separately into OUT/TASK and print its dev score."""
    from plait.cli.display import figure, make_console, print_table
    from plait.cli.plan import read_amounts
    from plait.cli.runs import raise_failed, train_runs
    from plait.inference.baselines import best_in, list_shortfalls
    from plait.inference.folders import RunFolder
    from plait.scale.running import Runs
    from plait.tasks.metrics import primary_metric

    if not resume:  # before any file is read
        _check_folders(
            Runs({t: (config, out / t) for t in config.tasks}, data, command), resume=resume
        )
    from plait.training.alone import plan_alone

    planned = plan_alone(config, read_amounts(config, data, {}))
    wanted = {task: (alone.config, out / task) for task, alone in planned.items()}
    runs = Runs(wanted, data, command)
    _check_folders(runs, resume=resume)
    failed = train_runs(runs, jobs)
    joint = _joint_scores(config, out)
    rows = [["task", "metric", "updates", "baseline", "alone", *([JOINT] if joint else [])]]
    notes = []
    for task, (alone, place) in wanted.items():
        folder = RunFolder(place)
        result = {} if task in failed else folder.read_json(folder.scores)
        if "dev" not in result:
            continue
        settings = folder.read_config().tasks[task]
        best = best_in(result, task, settings.kind)
        row = [task, primary_metric(settings.kind, settings.metric), f"{result['steps']:,}"]
        row += [figure(None if best is None else best[1]), figure(result["dev"]["primary"][task])]
        rows.append([*row, *([figure(joint.get(task))] if joint else [])])
        notes += list_shortfalls(result, alone.tasks, figure)
    console = make_console()
    console.print()
    if len(rows) == 1:
        console.print("There is no dev set to score.")
    else:
        print_table(console, rows, num_words=2)
    for note in notes:
        console.print(f"note: {note}")
    typer.echo(f"\nThe runs are in {out}, one folder for each task.")
    raise_failed(failed)


def _joint_scores(config: RunConfig, out: Path) -> Mapping[str, float | None]:
    """Return the dev scores of a joint run in OUT/joint; empty if there is no joint run."""
    from plait.inference.folders import RunFolder

    folder = RunFolder(out / JOINT)
    if JOINT in config.tasks or not folder.scores.is_file():
        return {}
    figures: dict[str, float | None] = (
        folder.read_json(folder.scores).get("dev", {}).get("primary", {})
    )
    return figures


# --- an ensemble -------------------------------------------------------------------------


def _train_ensemble(
    config: EnsembleConfig,
    out: Path,
    data: str | None,
    jobs: Jobs,
    resume: bool,
    command: str,
) -> None:
    """Train every member into OUT/members, make OUT their ensemble and print the dev scores."""
    from plait.cli.display import Display
    from plait.cli.runs import raise_failed, train_runs
    from plait.errors import Interrupted
    from plait.inference.folders import RunFolder
    from plait.scale.running import Runs

    def train_all(places: Mapping[str, Path]) -> None:
        display.close()
        wanted = {name: (config.members[name], place) for name, place in places.items()}
        raise_failed(train_runs(Runs(wanted, data, command), jobs))

    display: Display
    try:
        from plait.training.runs import train_ensemble

        with Display() as display:
            if len(config.members) == 1:
                display.note(
                    "an ensemble of one run predicts what the run predicts; add members or "
                    "ensemble.seeds"
                )
            outcome = train_ensemble(
                config,
                out,
                data=data,
                resume=resume,
                command=command,
                progress=display.scoring,
                note=display.note,
                train_all=train_all,
            )
    except KeyboardInterrupt:
        begun = (out / "members").exists()
        message = f"continue with: {command}" if begun else "nothing was written"
        raise Interrupted(f"stopped; {message}") from None
    first = RunFolder(outcome.folder / "members" / next(iter(config.members))).read_config()
    _show_ensemble(config, outcome.result, first.tasks)
    member = next(iter(config.members.values()))
    typer.echo(f"\nThe ensemble is in {out}. Next:\n{next_commands(out, data, member)}")


def _show_ensemble(
    config: EnsembleConfig, result: Mapping[str, Any], settings: Mapping[str, TaskConfig]
) -> None:
    """Print the dev scores of the best baselines, of the members and of the ensemble."""
    from plait.cli.display import figure, make_console, print_table
    from plait.inference.baselines import best_in, list_shortfalls

    console = make_console()
    console.print()
    if "dev" not in result:
        console.print(f"{len(config.members)} members. There is no dev set to score.")
        return
    lines = {**result["members"], f"ensemble ({config.how})": result["dev"]}
    tasks = list(result["dev"]["primary"])
    best = [best_in(result, task, settings[task].kind) for task in tasks]
    rows = [["", *tasks, "average"]]
    rows.append(["baseline", *(figure(found[1] if found else None) for found in best), ""])
    for name, scores in lines.items():
        figures = [scores["primary"].get(task) for task in tasks]
        rows.append([name, *map(figure, [*figures, scores["summary"]["mean"]])])
    print_table(console, rows)
    for sentence in list_shortfalls(result, settings, figure):
        console.print(f"note: {sentence}")
