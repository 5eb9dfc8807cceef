"""Commands and options of plait 0.1 that have another name or are gone. To be deleted after 0.2."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS = {
    "fewshot": "use `python -m reproduction.few_shot` in the repository",
    "reproduce": "use `python -m reproduction run` in the repository",
    "results": "use `python -m reproduction page` in the repository",
    "train-all": "use `plait train RECIPE... --out DIR`, and --resume to continue",
    "mistakes": "use `plait evaluate RUN --errors N`",
    "card": "use `plait report RUN --out card.md`, or `--out -` to print the card",
    "average": "use `plait ensemble RUN... --method weights --out DIR`",
    "pairs": "use `plait augment RECIPE --method pairs`",
    "vary": "use `plait augment RECIPE --method words`",
    "submit": "use `plait predict RUN --split test --out DIR`, and --split dev",
}

RAY = "use --jobs ray, --jobs ray:ADDRESS or --jobs ray,runs=4,cpus=2,gpus=0.5"
EDIT = "write the recipe, then change it there"
AUTOMATIC = "set CUDA_VISIBLE_DEVICES= to stay on the CPU"

# Option, or "command option" where it is gone from that command alone.
OPTIONS = {
    "--engine": RAY,
    "--workers": "use --jobs ray,workers=N",
    "--address": RAY,
    "--cpus-per-run": RAY,
    "--gpus-per-run": RAY,
    "--profile": "use -o FILE.toml",
    "--seed": "use -o seed=N",
    "--output": "use --out",
    "--quoting": "quote the fields of the file",
    "--no-quoting": "quote the fields of the file",
    "demo --again": "choose another folder with --out",
    "new --encoding": "convert the file to UTF-8 first",
    "new --header": "add a line with the column names to the file",
    "new --no-header": "add a line with the column names to the file",
    "new --dev-fraction": "split the file yourself, or leave out the dev file: 10% is held out",
    "new --yes": "there is no question any more; --dry-run shows the guesses",
    "new --id": EDIT,
    "new --range": EDIT,
    "new --encoder": "use -o encoder.source=SOURCE with `plait train`",
    "plan --from": "use -o start=RUN",
    "train --graphs": "use -o graphs=true",
    "train --no-graphs": "use -o graphs=false",
    "search --space": "use -o FILE.toml",
    "search --prune": "use -o search.prune=true",
    "search --no-prune": "use -o search.prune=false",
    "compare --figure": "all scores are tested",
    "compare --keep": "runs are always kept",
    "audit --english": "write english = true into the file of --words",
    "audit --no-english": "write english = false into the file of --words",
    "audit --json": "read RUN/audit.json, or --out FILE",
    "audit --device": AUTOMATIC,
    "calibrate --device": AUTOMATIC,
    "explain --device": AUTOMATIC,
    "report --device": AUTOMATIC,
    "explain --method": "effects are Shapley values",
    "explain --draws": "the number of samples is fixed",
    "explain --top": "all words are in the output of --json",
    "explain --precision": "the run's own precision is used",
    "report --alone": "name the folder as the last RUN",
    "report --pictures": "save them from the report with the browser",
    "embed --format": "the ending of --out chooses the format",
    "augment --least": "select rows of the file by its column similarity (where)",
    "ensemble --how": "use --method vote or --method mean",
}


def explain_removed(words: Sequence[str], option: str | None) -> str | None:
    """Return the sentence about a removed command, or about an option of a command."""
    command = next((word for word in words if not word.startswith("-")), "")
    if command in COMMANDS:
        return f"`plait {command}` was removed in 0.2: {COMMANDS[command]}"
    sentence = OPTIONS.get(f"{command} {option}") or OPTIONS.get(option or "")
    return None if sentence is None else f"{option} was removed in 0.2: {sentence}"
