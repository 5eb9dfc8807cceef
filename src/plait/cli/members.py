"""`plait train` of a recipe that lists members: a run for each, and their ensemble."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from plait.cli.display import Display
    from plait.config import EnsembleConfig, TaskConfig
    from plait.scale.running import Runs


def train_members(
    config: EnsembleConfig,
    out: Path,
    data: str | None,
    *,
    resume: bool,
    command: str,
    train_several: Callable[[Runs], None] | None,
) -> None:
    """Train every member into OUT/members, make OUT their ensemble and print what it came to.

    `train_several` may train them beforehand; else they are trained here, one after the other.
    """
    from plait.cli.display import Display
    from plait.cli.train import next_commands
    from plait.errors import Interrupted

    names = list(config.members)

    def listen(name: str) -> list[Display]:
        if train_several is not None:  # it is trained already
            return []
        display = Display()
        display.note(f"member {names.index(name) + 1} of {len(names)}: {name}")
        display.begin("loading")
        return [display]

    def train_all(places: Mapping[str, Path]) -> None:
        from plait.scale.running import Runs

        wanted = {name: (config.members[name], place) for name, place in places.items()}
        if train_several is not None:
            train_several(Runs(wanted, data, command))

    try:
        from plait.training.runs import train_ensemble

        with Display() as display:
            if len(names) == 1:
                display.note(
                    "an ensemble of one run answers as the run itself does; list other members, or "
                    "ensemble.seeds, to combine them"
                )
            outcome = train_ensemble(
                config,
                out,
                data=data,
                resume=resume,
                command=command,
                listen=listen,
                progress=display.scoring,
                note=display.note,
                train_all=None if train_several is None else train_all,
            )
    except KeyboardInterrupt:
        begun = (out / "members").exists()
        told = f"go on with: {command}" if begun else "nothing was written"
        raise Interrupted(f"stopped; {told}") from None
    from plait.inference.folders import RunFolder

    first = RunFolder(outcome.folder / "members" / names[0]).read_config()
    _show(config, outcome.result, first.tasks)
    member = next(iter(config.members.values()))
    typer.echo(f"\nThe ensemble is in {out}. Try next:\n{next_commands(out, data, member)}")


def _show(
    config: EnsembleConfig, result: Mapping[str, Any], settings: Mapping[str, TaskConfig]
) -> None:
    """Print the dev figures of the best baselines, of the members and of all together."""
    from plait.cli.display import figure, make_console, print_table
    from plait.inference.baselines import best_in, list_shortfalls

    console = make_console()
    console.print()
    if "dev" not in result:
        console.print(f"{len(config.members)} members; there is no dev set to score.")
        return
    lines = {**result["members"], f"ensemble ({config.how})": result["dev"]}
    tasks = list(result["dev"]["primary"])
    best = [best_in(result, task, settings[task].kind) for task in tasks]
    rows = [["", *tasks, "overall"]]
    rows.append(["baseline", *(figure(found[1] if found else None) for found in best), ""])
    for name, scores in lines.items():
        figures = [scores["primary"].get(task) for task in tasks]
        rows.append([name, *map(figure, [*figures, scores["summary"]["overall"]])])
    print_table(console, rows)
    for sentence in list_shortfalls(result, settings, figure):
        console.print(f"note: {sentence}")
