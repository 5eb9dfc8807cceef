"""Runs of one shape become a run whose weights are the mean of theirs (a model soup).

The uniform soup of Wortsman et al. 2022 ("Model soups: averaging weights of multiple
fine-tuned models improves accuracy without increasing inference time"): every tensor is the
plain mean of the members', encoder and heads alike. Their greedy soup, which leaves out
members that do not help on held-out data, is not built in.
"""

from __future__ import annotations

import json
import platform
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from plait import __version__
from plait.config import to_toml
from plait.data.storage import atomic_path, hash_file, write_text
from plait.errors import RunError
from plait.inference.card import write_card
from plait.inference.folders import RunFolder, check_place, made_whole
from plait.model.weights import read_numbers, write_weights

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor


def average_runs(runs: Sequence[str | Path], out: str | Path) -> RunFolder:
    """Average the best models of runs into a new run's folder.

    Its recipe is the first one's. It has no checkpoint and no log, and no scores until somebody
    computes them; run.json names the members and the hashes of their weights.
    """
    target = RunFolder(Path(out))
    check_place(target.path)
    members = [RunFolder(Path(run)) for run in runs]
    if not members:
        raise RunError("an average needs at least one run")
    first = members[0]
    facts = _describe(first)
    for member in members[1:]:
        _compare(member, _describe(member), first, facts)
    weights = _mean(members)
    info = {
        "plait": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "encoder": first.read_json(first.info)["encoder"],
        "averaged": [
            {"run": str(member.path.resolve()), "sha256": hash_file(member.weights)}
            for member in members
        ],
    }
    with made_whole(target.path) as place:
        part = RunFolder(place)
        write_text(part.recipe, to_toml(first.read_config()))
        write_text(part.info, json.dumps(info, indent=1))
        for source, copy in ((first.encoder, part.encoder), (first.tokenizer, part.tokenizer)):
            with atomic_path(copy) as temporary:
                shutil.copyfile(source, temporary)
        write_card(part.path)
        write_weights(part.weights, weights)
    return target


def _describe(run: RunFolder) -> dict[str, Any]:
    """Return the facts that must be equal for weights to be averaged."""
    if not run.path.is_dir():
        raise RunError(f"there is no run at {run.path}")
    config = run.read_config()
    run.require_model()
    facts: dict[str, Any] = {"tasks": sorted(config.tasks)}
    for name, task in sorted(config.tasks.items()):
        for key in ("kind", "labels", "range", "inputs", "head", "loss", "adapter"):
            facts[f"tasks.{name}.{key}"] = getattr(task, key)
        facts[f"tasks.{name}: number of texts"] = len(task.text)
    for key in ("architecture", "pooling", "max_length", "truncate", "segments"):
        facts[f"encoder.{key}"] = getattr(config.encoder, key)
    facts["sha256 of the encoder they began with"] = run.read_json(run.info)["encoder"]["sha256"]
    # Dropout rates do not matter after training.
    shape = run.read_json(run.encoder)
    facts |= {f"encoder.json: {k}": v for k, v in shape.items() if "dropout" not in k}
    facts["tokenizer"] = hash_file(run.tokenizer)
    return facts


def _compare(
    run: RunFolder, found: Mapping[str, Any], first: RunFolder, wanted: Mapping[str, Any]
) -> None:
    for key in [*wanted, *found]:
        if found.get(key) != wanted.get(key):
            raise RunError(
                f"{run.path} and {first.path} cannot be averaged, since they differ in {key} "
                f"({found.get(key)!r} and {wanted.get(key)!r}); `plait ensemble` combines the "
                "predictions of different models"
            )


def _mean(members: Sequence[RunFolder]) -> dict[str, Tensor]:
    """Average each tensor in double precision; integer tensors must be equal in all runs."""
    first = read_numbers(members[0].weights)
    sums = {name: tensor.double() for name, tensor in first.items()}
    for member in members[1:]:
        weights = read_numbers(member.weights)
        for name in [*first, *weights]:
            if not _is_alike(first.get(name), weights.get(name)):
                raise RunError(
                    f"{member.path} and {members[0].path} cannot be averaged, since their models "
                    f"differ in the shape of {name}"
                )
        for name, tensor in weights.items():
            sums[name] += tensor.double()
    return {
        name: (sums[name] / len(members)).to(tensor.dtype) if tensor.is_floating_point() else tensor
        for name, tensor in first.items()
    }


def _is_alike(ours: Tensor | None, theirs: Tensor | None) -> bool:
    if ours is None or theirs is None or ours.shape != theirs.shape:
        return False
    return ours.is_floating_point() or torch.equal(ours, theirs)
