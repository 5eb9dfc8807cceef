"""Predict files on a Ray cluster, with Ray Data.

Readers split files into parts. Workers, each with a copy of the model, predict the parts and write
them. This process receives an entry for each written part. If a worker dies, another one predicts
its part into the same file. Readers do not read ahead of the workers.
"""

from __future__ import annotations

import importlib
import json
import logging
import pickle
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from plait.errors import PlaitError, RunError, UsageError
from plait.inference.answers.manifest import NAME as MANIFEST
from plait.inference.answers.parts import (
    Part,
    answer_part,
    pack_records,
    read_parts,
    unpack_records,
)
from plait.inference.ensemble import load
from plait.scale.cluster import connected
from plait.scale.remote import MOST_LOSSES, describe_surroundings

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from plait.inference.answers.folder import AnswerParts, Todo
    from plait.inference.answers.parts import Plan
    from plait.inference.predictor import Answerer
    from plait.scale.cluster import Share
    from plait.scale.remote import Surroundings
    from plait.scale.request import Engine

BLOCK_BYTES = 1 << 20
"""Size of a block that readers pass on: about one part."""


@dataclass(frozen=True, slots=True)
class Source:
    """The model to load on the workers."""

    run: Path
    device: str
    precision: str


def answer_on_ray(source: Source, engine: Engine) -> AnswerParts:
    """Return a function that predicts parts on a cluster."""

    def answer(plan: Plan, todo: Todo) -> Generator[dict[str, Any]]:
        placed = replace(plan, out=plan.out.absolute())
        own = replace(source, run=source.run.absolute())
        with connected(engine) as cluster:
            share = cluster.choose_share(engine, gpu=source.device != "cpu")
            # Each node checks that it sees the manifest, so that all write to the same folder.
            around = describe_surroundings((own.run, placed.out / MANIFEST), share)
            places = cluster.count_places(share)
            try:
                # Ray asks the cluster when it ends an unfinished stream: close the stream first.
                with closing(_stream(placed, todo, own, around, share, places)) as rows:
                    for row in rows:
                        if row["error"]:
                            raise pickle.loads(row["error"])
                        yield json.loads(row["note"])
            except PlaitError:
                raise
            except Exception as error:
                raise _explain(error) from error

    return answer


def _stream(
    plan: Plan, todo: Todo, source: Source, around: Surroundings, share: Share, num_places: int
) -> Generator[dict[str, Any]]:
    """Start the stream, which yields a row for each written part."""
    data: Any = importlib.import_module("ray.data")
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)  # what matters is raised
    context = data.DataContext.get_current().copy()
    context.enable_progress_bars = False
    context.target_max_block_size = BLOCK_BYTES
    files = [{"file": file, "done": json.dumps(sorted(done))} for file, done in todo.items()]
    shape: dict[str, Any] = {"batch_size": 1, "batch_format": "pyarrow"}
    with data.DataContext.current(context):
        listed = data.from_items(files, override_num_blocks=len(files))
        # A reader mostly waits, and workers may have all the CPUs. Asking for another share
        # than they do also keeps Ray from making one task of reading and answering.
        read = listed.map_batches(
            _read,
            fn_args=(plan, around),
            num_cpus=0,
            concurrency=min(num_places, len(files)),
            **shape,
        )
        answered = read.map_batches(
            _answer,
            fn_args=(plan, source, around),
            max_calls=0,  # a process keeps its model for the next part, on a GPU as well
            **share.options(),
            **shape,
        )
        yield from answered.iter_rows()


# Expected errors are returned in the stream: Ray would wrap a raised one, differently from version
# to version, and stop the parts in progress.


def _read(batch: Any, plan: Plan, around: Surroundings) -> Iterator[Any]:
    """Split a file into parts, one row of the stream each."""
    file, done = batch["file"][0].as_py(), json.loads(batch["done"][0].as_py())
    try:
        _enter(replace(around, paths=(plan.files[file],)))
        for part, records in read_parts(plan, file, frozenset(done)):
            yield _row(part=json.dumps(asdict(part)), rows=pack_records(records))
    except PlaitError as error:
        yield _row(part="", rows=b"", error=pickle.dumps(error))


def _answer(batch: Any, plan: Plan, source: Source, around: Surroundings) -> Any:
    """Predict a part; return its manifest entry."""
    if error := batch["error"][0].as_py():
        return _row(note="", error=error)
    try:
        _enter(around)
        part = Part(**json.loads(batch["part"][0].as_py()))
        _refuse_deadly(plan.place(part))
        records = unpack_records(batch["rows"][0].as_buffer())
        return _row(note=json.dumps(answer_part(_load(source), plan, part, records)))
    except PlaitError as found:
        return _row(note="", error=pickle.dumps(found))


def _row(*, error: bytes = b"", **columns: str | bytes) -> Any:
    """Return a row of the stream."""
    kinds = {str: pa.string(), bytes: pa.large_binary()}
    cells: dict[str, str | bytes] = {**columns, "error": error}
    return pa.table({name: pa.array([cell], kinds[type(cell)]) for name, cell in cells.items()})


def _enter(around: Surroundings) -> None:
    if refusal := around.enter():
        raise UsageError(refusal)


def _refuse_deadly(place: Path) -> None:
    """Stop if a part has killed its workers several times; Ray would retry it forever."""
    left = list(place.parent.glob(f".{place.name}.*"))  # what each had begun to write
    if len(left) > MOST_LOSSES:
        raise RunError(
            f"{place.name} was started {len(left)} times, and its worker was lost each time, "
            "possibly out of memory: run fewer workers at once, for example with --jobs ray,cpus=4"
        )


@lru_cache(maxsize=1)
def _load(source: Source) -> Answerer:
    return load(source.run, device=source.device, precision=source.precision)


def _explain(error: Exception) -> RunError:
    """Return an unexpected error as a RunError with one sentence."""
    said = [line.strip() for line in str(error).splitlines() if line.strip()]
    explained = RunError(
        f"the workers failed ({type(error).__name__}: {said[-1] if said else ''}); finished parts "
        "are kept: continue with --resume"
    )
    explained.add_note(str(error))  # of which a worker's traceback is part
    return explained
