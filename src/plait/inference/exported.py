"""Load an ONNX export as a model that predicts with ONNX Runtime."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch

from plait.data import ONE_TEXT, Tokenizer
from plait.data.storage import hash_file
from plait.errors import RunError, UsageError, first_line
from plait.inference.build import build_collator, build_tasks
from plait.inference.calibration import plain_scalings, read_scalings
from plait.inference.folders import RunFolder
from plait.inference.predictor import SingleModel, require_list
from plait.registry import load_plugins

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from plait.data import Dataset
    from plait.inference.predictor import Progress
    from plait.tasks.kind import Floats
    from plait.types import Tokens

FILE = "export.json"

INPUTS = ("input_ids", "token_type_ids", "attention_mask")
"""Names of the graph's inputs, as on the Hub; each int64 [batch, length]."""


PAIR = ("first", "second")
"""Inputs of a separate head graph: float32 [batch, width] each."""

BATCH_SIZE = 32
"""Batch size, as for other models on a CPU."""


@dataclass(frozen=True, slots=True)
class Place:
    """The graph and output of a task's predictions."""

    graph: str
    output: str
    head: str | None = None
    """The graph of the head, if the two texts are encoded separately."""

    def to_json(self) -> dict[str, str]:
        """Return plain values."""
        head = {"head": self.head} if self.head else {}
        return {"graph": self.graph, "output": self.output, **head}


def need_package(name: str) -> Any:
    """Import a module of the extra `export`; raise UsageError if it is not installed."""
    try:
        return import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise UsageError(
            f"ONNX needs the package {package}: pip install 'plait[export]'"
        ) from error


def is_exported(folder: Path) -> bool:
    """Return whether a folder was exported by plait."""
    return (folder / FILE).is_file()


@dataclass(frozen=True, slots=True)
class ExportedModel(SingleModel):
    """A model of ONNX graphs, with the same predictions as the exported run."""

    sessions: Mapping[str, Any]
    """ONNX Runtime sessions by graph name."""
    weights: tuple[str, ...]
    """Files with weights outside of the graphs."""
    places: Mapping[str, Place]
    vectors: Place
    width: int
    progress: Progress | None = None

    @classmethod
    def load(
        cls,
        folder: str | Path,
        *,
        device: str = "auto",
        precision: str = "run",
        calibrated: bool = True,
    ) -> ExportedModel:
        """Load an exported folder; `precision` must be auto, run or that of the export.

        The graphs include the run's calibration. `calibrated=False` ignores a calibration that was
        fitted for this folder later.
        """
        path = Path(folder)
        facts = _read_facts(path)
        if precision not in ("auto", "run", facts["precision"]):
            raise UsageError(
                f"{path} holds {facts['precision']} graphs; for {precision} export the run again"
            )
        files = RunFolder(path)
        config = files.read_config()
        load_plugins(config.plugins)
        names = [name for name in config.tasks if name in facts["tasks"]]
        config = config.model_copy(update={"tasks": {name: config.tasks[name] for name in names}})
        tokenizer = Tokenizer.from_file(files.tokenizer)
        providers = _choose_providers(device)
        made = cls(
            path,
            config,
            build_tasks(config),
            {},
            tokenizer,
            build_collator(config, tokenizer),
            {file: _open(path / file, providers) for file in facts["graphs"]},
            tuple(facts.get("weights", ())),
            {name: _place(facts["tasks"][name]) for name in names},
            _place(facts["vectors"]),
            facts["vectors"]["width"],
        )
        if not calibrated:
            return made
        return replace(made, scalings=read_scalings(path, made.config.tasks, made.identify))

    def identify(self) -> str:
        """Return a hash of the graphs and of their separate weights."""
        files = sorted([*self.sessions, *self.weights])
        hashes = " ".join(hash_file(self.folder / file) for file in files)
        return hashlib.sha256(hashes.encode()).hexdigest()

    def fingerprint(self) -> str:
        """Return a hash that is equal for models whose predictions are bit-identical."""
        files = RunFolder(self.folder)
        facts = [self.identify(), *(hash_file(path) for path in (files.recipe, files.tokenizer))]
        facts += [
            json.dumps(plain_scalings(self.scalings), sort_keys=True),
            need_package("onnxruntime").__version__,
        ]
        facts += next(iter(self.sessions.values())).get_providers()
        return hashlib.sha256(" ".join(facts).encode()).hexdigest()

    def watched(self, progress: Progress) -> Self:
        """Return a copy that calls `progress` with the task, the rows done and the total."""
        return replace(self, progress=progress)

    def answer_uncalibrated(
        self, task: str, dataset: Dataset, rows: torch.Tensor | None = None
    ) -> Floats:
        """Return probabilities [examples, classes] or scores [examples], in order."""
        if not self.tasks[task].spec.both_orders:
            return self._answer(task, dataset, rows)
        return (self._answer(task, dataset, rows) + self._answer(task, dataset.turned(), rows)) / 2

    def _answer(self, task: str, dataset: Dataset, rows: torch.Tensor | None) -> Floats:
        """Predict pairs in the given order of their texts."""
        spec, place = self.tasks[task].spec, self.places[task]
        total = len(dataset) if rows is None else len(rows)
        parts, order = [], []
        for some, batch in self.collator.iterate(dataset, spec, BATCH_SIZE, rows):
            found = self._run(place, batch.tokens)
            if place.head is not None:
                halves = dict(zip(PAIR, np.split(found, 2), strict=True))
                (found,) = self.sessions[place.head].run(None, halves)
            parts.append(found)
            order.append(some)
            if self.progress is not None:
                self.progress(task, sum(map(len, order)), total)
        if not parts:
            return spec.kind.empty()
        answers: Floats = np.concatenate(parts).astype(np.float64)
        ordered: Floats = answers[torch.cat(order).argsort().numpy()]
        return ordered

    def embed(self, texts: Iterable[str]) -> NDArray[np.float32]:
        """Return the encoder's pooled vector of each text, [texts, width]."""
        require_list(texts)
        rows = [(text,) for text in texts]
        vectors = np.zeros((len(rows), self.width), dtype=np.float32)
        for some, batch in self.collator.iterate(self.tokenise(rows), ONE_TEXT, BATCH_SIZE):
            vectors[some.numpy()] = self._run(self.vectors, batch.tokens)
        return vectors

    def _run(self, place: Place, tokens: Tokens) -> NDArray[np.float32]:
        session = self.sessions[place.graph]
        given = (tokens.ids, tokens.types, tokens.mask.long())
        # An encoder without segments leaves them out of its graph.
        wanted = {each.name for each in session.get_inputs()}
        feed = {n: t.numpy() for n, t in zip(INPUTS, given, strict=True) if n in wanted}
        (found,) = session.run([place.output], feed)
        return found  # type: ignore[no-any-return]


def _place(table: Mapping[str, str]) -> Place:
    return Place(table["graph"], table["output"], table.get("head"))


def _read_facts(folder: Path) -> dict[str, Any]:
    path = folder / FILE
    facts = RunFolder(folder).read_json(path)
    if facts.get("format") != "onnx":
        raise RunError(
            f"{folder} was exported for another library ({facts.get('format')}; see its "
            "README.md); plait needs the run, or an export with --format onnx"
        )
    missing = {"precision", "tasks", "vectors", "graphs"} - facts.keys()
    if missing:
        raise RunError(f"{path} is damaged: it lacks {', '.join(sorted(missing))}")
    for kind, what in (("graphs", "a graph"), ("weights", "weights")):
        for file, wanted in facts.get(kind, {}).items():
            if Path(file).name != file:
                raise RunError(f"{path} is damaged: {what} {file!r} is outside of the folder")
            if hash_file(folder / file) != wanted:
                raise RunError(f"{folder / file} was changed after the export; copy it again")
    return facts


def _choose_providers(device: str) -> list[str]:
    """Return the providers of ONNX Runtime for a device's name."""
    there = need_package("onnxruntime").get_available_providers()
    kind, _, number = device.partition(":")
    if kind not in ("auto", "cpu", "cuda"):
        raise UsageError(f"device {device!r} cannot be used with ONNX; choose auto, cpu or cuda")
    if kind == "cuda" and "CUDAExecutionProvider" not in there:
        raise UsageError(
            "this ONNX Runtime has no CUDA: pip install onnxruntime-gpu, or choose --device cpu"
        )
    if kind == "cpu" or "CUDAExecutionProvider" not in there:
        return ["CPUExecutionProvider"]
    chosen: Any = ("CUDAExecutionProvider", {"device_id": int(number or 0)})
    return [chosen, "CPUExecutionProvider"]


def _open(path: Path, providers: list[str]) -> Any:
    onnxruntime = need_package("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=providers)
    except Exception as error:  # errors of the library have no common class
        raise RunError(f"ONNX Runtime cannot read {path}: {first_line(error)}") from error
