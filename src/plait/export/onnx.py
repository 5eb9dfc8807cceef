"""Export a run to ONNX graphs, for plait and ONNX Runtime.

model.onnx        tokens of an input -> its vector, and predictions of all tasks with one input
task-NAME.onnx    the same for a task with an adapter, which changes the encoder
head-NAME.onnx    two vectors -> predictions, for a task that encodes its two texts separately
GRAPH.data        weights that are too large for the file of a graph
tokenizer.json, recipe.toml, export.json, README.md

Predictions are probabilities (calibrated if the run is), or scores in the task's units.
"""

from __future__ import annotations

import copy
import logging
import warnings
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from plait.data.storage import hash_file
from plait.errors import EncoderError, UsageError, first_line
from plait.export.folder import copy_reading, write_facts
from plait.inference.exported import INPUTS, PAIR, Place, need_package
from plait.model.encoder import pool
from plait.types import Tokens

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from plait.inference.calibration import Scaling
    from plait.inference.predictor import Predictor
    from plait.inference.scoring import Task
    from plait.model.encoder import Encoder
    from plait.model.interface import Adapter
    from plait.model.multitask import MultitaskModel

Precision = Literal["fp32", "int8"]

VECTORS = "vectors"
MODEL = "model.onnx"

LARGEST = 2**31 - 2**24
"""Maximum bytes of weights inside a graph's file; more weights are written to GRAPH.data."""


def data_file(graph: str) -> str:
    """Return the name of a graph's weights file, as torch and ONNX Runtime use it."""
    return f"{graph}.data"


class _Answers(nn.Module):
    """Convert a task's outputs to predictions."""

    def __init__(self, task: Task, scaling: Scaling | None):
        super().__init__()
        self.loss, self.scaling = task.loss, scaling

    def forward(self, outputs: Tensor) -> Tensor:
        answers = self.loss.decode(outputs)
        if self.scaling is None:
            return answers
        # As calibration.Scaling: the same for any loss that gives probabilities.
        logs = answers.clamp(min=torch.finfo(answers.dtype).tiny).log() / self.scaling.temperature
        if self.scaling.offsets:
            logs = logs + torch.tensor(self.scaling.offsets, dtype=logs.dtype)
        return logs.softmax(dim=-1)


class _Inputs(nn.Module):
    """Compute the vectors of inputs, and the predictions of tasks that read one input."""

    def __init__(
        self,
        model: MultitaskModel,
        encoder: Encoder,
        adapter: Adapter | None,
        answers: dict[str, _Answers],
    ):
        super().__init__()
        self.model, self.encoder, self.adapter = model, encoder, adapter
        self.names, self.answers = list(answers), nn.ModuleList(answers.values())

    def forward(
        self, input_ids: Tensor, token_type_ids: Tensor, attention_mask: Tensor
    ) -> tuple[Tensor, ...]:
        tokens = Tokens(input_ids, token_type_ids, attention_mask.bool())
        encoded = self.encoder(tokens, None, self.adapter)
        vectors = pool(encoded, tokens.mask, self.model.pooling)
        outputs = [self.model.read_out(name, encoded, tokens.mask) for name in self.names]
        decoded = [answers(o) for answers, o in zip(self.answers, outputs, strict=True)]
        return (vectors, *decoded)


class _Pairs(nn.Module):
    """Compute a task's predictions from the vectors of two texts."""

    def __init__(self, head: nn.Module, answers: _Answers):
        super().__init__()
        self.head, self.answers = head, answers

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        answers: Tensor = self.answers(self.head(torch.cat([first, second])))
        return answers


@dataclass(frozen=True, slots=True)
class _Plan:
    """The graphs to write, and the graph of each task's predictions."""

    graphs: dict[str, nn.Module] = field(default_factory=dict)
    outputs: dict[str, list[str]] = field(default_factory=dict)
    places: dict[str, Place] = field(default_factory=dict)


def _plan(run: Predictor, tasks: Sequence[str]) -> _Plan:
    model, plan = run.model, _Plan()
    answers = {name: _Answers(run.tasks[name], run.scalings.get(name)) for name in tasks}
    apart = [name for name in tasks if run.tasks[name].spec.inputs == "apart"]
    adapted = [name for name in tasks if f"task-{name}" in model.adapters]

    def add(file: str, encoder: Encoder, adapter: Adapter | None, names: Sequence[str]) -> None:
        joined = {name: answers[name] for name in names if name not in apart}
        plan.graphs[file] = _Inputs(model, encoder, adapter, joined)
        plan.outputs[file] = [VECTORS, *joined]
        for name in names:
            head = f"head-{name}.onnx" if name in apart else None
            plan.places[name] = Place(file, VECTORS if head else name, head)

    add(MODEL, model.encoder, None, [name for name in tasks if name not in adapted])
    for name in adapted:
        add(f"task-{name}.onnx", *adapt_encoder(model, name), [name])
    for name in apart:
        head = model.heads[f"task-{name}"]
        if head.takes == "hidden":
            raise UsageError(
                f"the head of {name} reads all tokens of two texts, which cannot be exported to "
                "ONNX; export the other tasks with --task"
            )
        file = f"head-{name}.onnx"
        plan.graphs[file], plan.outputs[file] = _Pairs(head, answers[name]), [name]
    return plan


def adapt_encoder(model: MultitaskModel, task: str) -> tuple[Encoder, Adapter | None]:
    """Return a task's encoder, with its adapter merged or attached."""
    key = f"task-{task}"
    if key not in model.adapters:
        return model.encoder, None
    adapter: Adapter = model.adapters[key]  # type: ignore[assignment]
    encoder = copy.deepcopy(model.encoder)
    return (encoder, None) if adapter.merge(encoder) else (model.encoder, adapter)


# --- writing them ------------------------------------------------------------------------


def need_onnx() -> None:
    """Raise UsageError if a package for the export is missing."""
    for package in ("onnx", "onnxscript", "onnxruntime"):
        need_package(package)


def write_onnx(folder: Path, run: Predictor, tasks: Sequence[str], precision: Precision) -> None:
    """Write a run's graphs, and the files that plait.load needs."""
    plan = _plan(run, tasks)
    for file, graph in plan.graphs.items():
        _write_graph(folder / file, graph.eval(), run, plan.outputs[file])
        if precision == "int8":
            _quantize(folder / file)
    copy_reading(folder, run)
    write_facts(folder, run, "onnx", _describe(folder, run, plan, precision))


def _describe(folder: Path, run: Predictor, plan: _Plan, precision: Precision) -> dict[str, Any]:
    tasks = {}
    for name, place in plan.places.items():
        spec = run.tasks[name].spec
        given = spec.kind.meaning()
        if spec.both_orders:
            given["both_orders"] = True
        if name in run.scalings:
            given["temperature"] = run.scalings[name].temperature
            if offsets := run.scalings[name].offsets:
                given["offsets"] = offsets
        tasks[name] = {**place.to_json(), "kind": spec.kind.name, "texts": len(spec.text), **given}
    settings = run.config.encoder
    beside = [data_file(file) for file in plan.graphs]
    return {
        "precision": precision,
        "inputs": INPUTS,
        "max_length": settings.max_length,
        "segments": settings.segments,
        "truncate": settings.truncate,
        "vectors": {"graph": MODEL, "output": VECTORS, "width": run.model.encoder.width},
        "tasks": tasks,
        "graphs": {file: hash_file(folder / file) for file in plan.graphs},
        "weights": {file: hash_file(folder / file) for file in beside if (folder / file).is_file()},
    }


def _write_graph(path: Path, graph: nn.Module, run: Predictor, outputs: list[str]) -> None:
    """Trace a graph with torch, for any number of rows and any length up to the run's."""
    batch = torch.export.Dim("batch", min=1, max=2**20)
    if isinstance(graph, _Pairs):
        given = tuple(torch.randn(3, run.model.encoder.width) for _ in PAIR)
        shapes: dict[str, Any] = {name: {0: batch} for name in PAIR}
    else:
        longest = run.config.encoder.max_length
        length = torch.export.Dim("length", min=1, max=longest)
        given = tuple(torch.ones(3, min(longest, 7), dtype=torch.long) for _ in INPUTS)
        shapes = {name: {0: batch, 1: length} for name in INPUTS}
    num_bytes = sum(p.numel() * p.element_size() for p in graph.parameters())
    try:
        with torch.no_grad(), _quiet():
            program = torch.onnx.export(
                graph,
                given,
                dynamo=True,
                input_names=list(shapes),
                output_names=outputs,
                dynamic_shapes=shapes,
                verbose=False,
            )
            assert program is not None
            _check_sizes(path, program)
            program.save(path, external_data=num_bytes > LARGEST)
    except torch.onnx.OnnxExporterError as error:
        raise EncoderError(
            f"torch cannot make a graph of {path.stem}: {first_line(_find_cause(error))}"
        ) from error


def _find_cause(error: BaseException) -> BaseException:
    """Return the original cause of an exporter's error."""
    return error if error.__cause__ is None else _find_cause(error.__cause__)


def _check_sizes(path: Path, program: torch.onnx.ONNXProgram) -> None:
    """Raise RunError for a graph with a fixed number of rows; the exporter does not check this."""
    for given in program.model.graph.inputs:
        if given.shape is None or isinstance(given.shape[0], int):
            raise EncoderError(
                f"the graph of {path.stem} accepts only inputs of shape {given.shape}, because a "
                "layer depends on the number of rows (e.g. chunk, split); export the other tasks"
            )


def _quantize(path: Path) -> None:
    """Quantize the matrix products of a graph to int8, in place."""
    quantization = need_package("onnxruntime.quantization")
    graph = need_package("onnx").load(path)
    beside = path.with_name(data_file(path.name))
    is_large = beside.exists()
    beside.unlink(missing_ok=True)  # otherwise the new weights would be appended to it
    # The quantizer transposes weights, so the stored shapes would be wrong.
    del graph.graph.value_info[:]
    with _quiet():
        quantization.quantize_dynamic(
            graph,
            path,
            per_channel=True,
            weight_type=quantization.QuantType.QInt8,
            use_external_data_format=is_large,
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress messages of the libraries for their developers."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
