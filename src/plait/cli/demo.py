"""`plait demo`: three small tasks trained together, on any machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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
        ("Which train goes from Lyon to Turin?", "Which train goes from Turin to Lyon?"),
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
            "--encoder", help="Another encoder: a folder, or a Hub id such as owner/name."
        ),
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Train anew, in a folder of its own.")
    ] = False,
) -> None:
    """Train sentiment, paraphrase and similarity together on the sample inside plait.

    Takes about two minutes on two cores. A second call shows the finished run; one that was
    stopped goes on where it was.
    """
    from plait.config import read_recipe

    overrides = [] if encoder is None else [f"encoder.source={encoder!r}"]
    config = read_recipe("demo", overrides)
    if again:
        from datetime import datetime

        out = out.with_name(f"{out.name}-{datetime.now():%Y%m%d-%H%M%S}")
    resume = (out / "recipe.toml").exists()

    from plait.cli.display import Display
    from plait.cli.train import show_outcome
    from plait.training.run import train

    display = Display()
    command = " ".join(["plait demo", *([f"--encoder {encoder}"] if encoder else [])])
    outcome = train(
        config, out, data="@sample", resume=resume, command=command, listeners=[display]
    )
    before = display.first_scores or _first_scores(out)
    show_outcome(outcome.result, before, config.tasks)
    _show_predictions(out)
    typer.echo(
        f"\nThe run is in {out}. Try next:\n"
        f'  plait predict {out} --task sentiment "Your own sentence."\n'
        f"  plait evaluate {out} --json\n"
        "  plait list recipes"
    )


def _first_scores(out: Path) -> dict[str, float]:
    """Read the scores before training out of a run's log."""
    import json

    for line in (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
        event = json.loads(line)
        if event["event"] == "scores" and event["step"] == 0:
            return {task: next(iter(m.values())) for task, m in event["metrics"].items()}
    return {}


def _show_predictions(out: Path) -> None:
    from rich.console import Console

    from plait.predict import Predictor

    predictor = Predictor.load(out)
    console = Console(highlight=False)
    console.print()
    for task, texts in EXAMPLES:
        answer = predictor.predict(task, [texts])[0]
        sure = "" if answer.confidence is None else f" ({answer.confidence:.0%} sure)"
        console.print(f"{task}: {answer.label}{sure}", style="bold", markup=False)
        for text in texts:
            console.print(f"  {text}", markup=False)
