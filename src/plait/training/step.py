"""One update: batches of some tasks in, losses out, parameters moved.

Read as a recipe: one loss per task, its regularizer terms added, weighted, one gradient per
task on what is shared, gradients made one, clipped, applied. That is `Step.__call__`,
`_add_gradient`, `_losses`, `_update`, `_aggregate`, `_clip`; the rest is there to be fast on a GPU,
to take all tasks in one pass, or to go on from a checkpoint.

Tensors in, tensors out: nothing here looks at a value on the device or waits for it, so both halves
of the step, a task's gradient and the update, can be captured once and replayed.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch

from plait.data import Parcel
from plait.methods.aggregators.base import Mixing, inner_products, weighted_sum
from plait.methods.weighting import Fixed
from plait.model.dense import Dense, keep_copies, renew_copies
from plait.model.multitask import Group
from plait.training.gradients import FlatGradients
from plait.training.graphs import Graphs, Plain
from plait.training.lanes import Lanes
from plait.training.mean import RunningMean
from plait.training.team import ALONE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from torch import Tensor, nn

    from plait.data import Buckets
    from plait.methods.aggregators import Aggregator
    from plait.methods.losses import Loss
    from plait.methods.regularizers import Regularizer
    from plait.methods.weighting import Weighting
    from plait.model.multitask import MultitaskModel
    from plait.training.graphs import Outputs
    from plait.training.team import Team
    from plait.types import Batch


@dataclass(frozen=True, slots=True)
class TaskParts:
    """What the step needs to know of one task."""

    loss: Loss | Callable[[Tensor, Tensor], Tensor]
    """A Loss; what only has its call will do where there are no regularizers."""
    weight: float = 1.0
    regularizers: Sequence[Regularizer] = ()


@dataclass(frozen=True, slots=True)
class StepResult:
    """What one update saw, still on the device."""

    losses: dict[str, Tensor]
    """Each task's own loss, unweighted, without regularizer terms."""
    terms: dict[str, Tensor]
    """Each task's regularizer terms, where there are any."""
    grad_norm: Tensor
    """Norm of the whole gradient before clipping."""
    rows: tuple[str, ...] = ()
    """Tasks whose gradients were seen apart, in the order of `cosines`."""
    cosines: Tensor | None = None
    """[rows, rows]: how the tasks' gradients on the encoder agree, where two or more were seen."""


Parcels = list[tuple[str, Parcel]]
"""The batches of one update, by task, in order."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Where the gradients of one update go."""

    tasks: tuple[str, ...]
    rows: tuple[tuple[str, int], ...]
    """Row of the shared gradient of each task that has one."""
    num_turns: int
    apart: tuple[str, ...]
    """Tasks whose gradients the aggregator reads separately, by row."""

    def row(self, task: str) -> int | None:
        """Return a task's row, if it has one."""
        return dict(self.rows).get(task)

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        return len({row for _, row in self.rows})


@dataclass(slots=True)
class LossSums:
    """Losses of the turns of one update, added up per task."""

    losses: dict[str, Tensor] = field(default_factory=dict)
    terms: dict[str, Tensor] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, task: str, loss: Tensor, term: Tensor | None) -> None:
        """Add the loss and the regularization term of one batch."""
        self.counts[task] = self.counts.get(task, 0) + 1
        self.losses[task] = self.losses[task] + loss if task in self.losses else loss
        if term is not None:
            self.terms[task] = self.terms[task] + term if task in self.terms else term

    def mean(self, sums: dict[str, Tensor]) -> dict[str, Tensor]:
        """Divide sums of the tasks by how many batches each had."""
        return {task: total / self.counts[task] for task, total in sums.items()}


class Step:
    """Callable that makes one update from the batches of one or more turns."""

    def __init__(
        self,
        model: MultitaskModel,
        tasks: Mapping[str, TaskParts],
        aggregator: Aggregator,
        optimizer: torch.optim.Optimizer,
        *,
        weighting: Weighting | None = None,
        clip: float = 0.0,
        autocast: torch.dtype | None = None,
        team: Team = ALONE,
        graphs: bool = False,
        together: Buckets | None = None,
        average: float | None = None,
    ):
        self.model, self.tasks, self.aggregator = model, tasks, aggregator
        self.optimizer, self.clip, self.autocast = optimizer, clip, autocast
        self.team = team
        alike = len({tuple(map(id, parts.regularizers)) for parts in tasks.values()}) == 1
        # Terms are then taken of all tasks at once, and losses of one process's rows.
        self.together = together if alike and team.size == 1 else None
        self.device = next(model.parameters()).device
        self.weighting = weighting or Fixed(tuple(tasks), self.device)
        self.generator = team.generator(self.device)
        self.runner = self._choose_runner(graphs)
        self.lanes = Lanes(self.device)
        self.num_updates = 0
        """Made so far in the stage; whoever goes on from a saved place sets it."""
        self.dense = [part for part in model.modules() if isinstance(part, Dense)]
        """Layers that hold copies in the precision of the run, where that is not full."""
        for part in self.dense:
            part.drop_copies()
        if autocast is not None and self.device.type == "cuda":
            keep_copies(model, autocast)
        self.mean = None if average is None else RunningMean(model, average)
        # An earlier stage's gradients must not move heads that take no part in this one.
        model.zero_grad(set_to_none=True)
        self.gradients = FlatGradients(
            [p for p in model.shared_parameters().values() if p.requires_grad],
            {
                task: [
                    *(p for p in model.head_parameters(task).values() if p.requires_grad),
                    *self.weighting.parameters(task),
                ]
                for task in tasks
            },
            num_rows=max(1, sum(map(model.touches_encoder, tasks))) if aggregator.per_task else 1,
        )

    def __call__(self, turns: Sequence[Mapping[str, Batch | Parcel]]) -> StepResult:
        """Make one update from the turns' batches, every turn counting the same."""
        parcels = [
            (task, given if isinstance(given, Parcel) else Parcel.of(given))
            for turn in turns
            for task, given in turn.items()
        ]
        self.gradients.clear()
        sums = LossSums()
        plan = self._plan(turns)
        if self._can_join(turns, parcels):
            self._join(plan, parcels, sums)
        else:
            self._take_each(plan, parcels, sums)
        result = self._move(plan, sums)
        if self.weighting.looks_again:
            self.weighting.after_update(result.losses, self._look_again(parcels))
        return result

    def averaged(self) -> AbstractContextManager[None]:
        """Let the model be what is scored and kept: a running mean of it, where there is one."""
        return nullcontext() if self.mean is None else self.mean.in_place()

    def end_epoch(self) -> None:
        """Tell who counts in epochs that one of the schedule's is over."""
        self.weighting.end_epoch()

    def _plan(self, turns: Sequence[Mapping[str, object]]) -> Plan:
        """Give each task of an update that trains the encoder a row for its gradient."""
        tasks = tuple(dict.fromkeys(task for turn in turns for task in turn))
        touching = [task for task in tasks if self.model.touches_encoder(task)]
        per_task = self.aggregator.per_task
        rows = tuple((task, i if per_task else 0) for i, task in enumerate(touching))
        return Plan(tasks, rows, len(turns), tuple(touching) if per_task else ())

    # --- gradients, one batch after the other ---

    def _take_each(self, plan: Plan, parcels: Parcels, sums: LossSums) -> None:
        """Add the gradient of each batch, those of different rows side by side."""
        found: list[tuple[str, Outputs]] = []
        apart = self.team.size == 1 and not self._unmarked()
        num_lanes = plan.num_rows if apart else 1
        with self.lanes.open(num_lanes, (parcel for _, parcel in parcels)) as enter:
            for task, parcel in parcels:
                with enter(plan.row(task)) as place:
                    outputs = self.runner.run(
                        ("gradient", task, plan.row(task), plan.num_turns, place, parcel.key),
                        partial(self._add_gradient, task, plan, parcel),
                        parcel.inputs,
                    )
                found.append((task, outputs))
        for task, (loss, term) in found:
            sums.add(task, cast("Tensor", loss), term)

    def _add_gradient(
        self, task: str, plan: Plan, parcel: Parcel, *inputs: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """Add a batch's gradient to the task's row and head; return its loss and terms."""
        batch = parcel.unpack(*inputs)
        self.gradients.hide()
        with self._precision():
            loss, term = self._losses(task, batch)
        self.gradients.collect(task, plan.row(task))
        self._weigh(plan, task, loss, term).backward()
        return loss.detach(), None if term is None else term.detach()

    def _losses(self, task: str, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """Return a task's loss and the sum of its regularizer terms."""
        parts = self.tasks[task]
        assert batch.labels is not None
        outputs = self.model(task, batch.tokens)
        loss = self.team.loss(parts.loss, outputs, batch)
        if not parts.regularizers:
            return loss, None
        task_loss = cast("Loss", parts.loss)
        terms = [term(self.model, task, batch, outputs, task_loss) for term in parts.regularizers]
        return loss, self.team.mean(torch.stack(terms).sum(), batch)

    def _weigh(self, plan: Plan, task: str, loss: Tensor, term: Tensor | None) -> Tensor:
        """Return what a batch adds to what the update makes smaller."""
        whole = loss if term is None else loss + term
        return self.weighting(task, whole) * (self.tasks[task].weight / plan.num_turns)

    # --- gradients of all batches at once ---

    def _can_join(self, turns: Sequence[Mapping[str, object]], parcels: Parcels) -> bool:
        """Say whether an update's batches can go through the encoder as one.

        Nobody then sees the tasks' gradients apart; small batches take no longer than one of them.
        """
        return (
            self.together is not None
            and not self.aggregator.per_task
            and len(turns) == 1 < len(parcels)
            and all(parcel.lengths is not None for _, parcel in parcels)
        )

    def _join(self, plan: Plan, parcels: Parcels, sums: LossSums) -> None:
        """Add the gradient of all batches at once."""
        assert self.together is not None
        lengths = [cast("Any", parcel.lengths).ravel() for _, parcel in parcels]
        room = self.together.room(np.concatenate(lengths))
        counts = tuple(parcel.num_examples for _, parcel in parcels)
        found = self.runner.run(
            ("gradients", plan, counts, room),
            partial(self._add_gradients, plan, parcels, *room),
            [part for _, parcel in parcels for part in parcel.inputs],
        )
        for i, (task, _) in enumerate(parcels):
            sums.add(task, cast("Tensor", found[2 * i]), found[2 * i + 1])

    def _add_gradients(
        self, plan: Plan, parcels: Parcels, length: int, total: int, *inputs: Tensor
    ) -> list[Tensor | None]:
        """Add the gradient of all tasks' batches; return each one's loss and terms in turn."""
        batches, given = {}, iter(inputs)
        for task, parcel in parcels:
            own = [next(given) for _ in parcel.inputs]
            batches[task] = parcel.unpack(*own, length=length, total=None)
        self.gradients.hide()
        with self._precision():
            losses, terms = self._losses_of_all(Group.of(batches, total))
        found: list[Tensor | None] = []
        whole = torch.zeros((), device=self.device)
        for task, loss, term in zip(batches, losses, terms, strict=True):
            self.gradients.collect(task, plan.row(task))
            whole = whole + self._weigh(plan, task, loss, term)
            found += [loss.detach(), None if term is None else term.detach()]
        whole.backward()
        return found

    def _losses_of_all(self, group: Group) -> tuple[list[Tensor], list[Tensor | None]]:
        """Return each task's loss and the sum of its regularizer terms, after one pass."""
        outputs = self.model(group, group.tokens)
        means = [self.tasks[task].loss for task in group.tasks]
        losses = []
        for out, batch, loss in zip(outputs, group.batches, means, strict=True):
            assert batch.labels is not None
            losses.append(loss(out, batch.labels))
        if not self.regularizers:
            return losses, [None] * len(losses)
        task_losses = cast("list[Loss]", means)
        each = [term.for_all(self.model, group, outputs, task_losses) for term in self.regularizers]
        return losses, [torch.stack(own).sum() for own in zip(*each, strict=True)]

    # --- the update ---

    def _move(self, plan: Plan, sums: LossSums) -> StepResult:
        """Make an update from the gradients collected, and tell of it."""
        updater = self.runner if self.aggregator.capturable else Plain(self.device)
        grad_norm, cosines = updater.run(("update", plan), partial(self._update, plan))
        assert grad_norm is not None
        self.num_updates += 1
        for regularizer in self.regularizers:
            regularizer.after_update(self.model, self.num_updates)
        if self.mean is not None:
            self.mean.follow(self.num_updates)
        losses, terms = sums.mean(sums.losses), sums.mean(sums.terms)
        return StepResult(losses, terms, grad_norm, plan.apart, cosines)

    def _update(self, plan: Plan) -> tuple[Tensor, Tensor | None]:
        """Make the gradients one, clip it, and move the parameters; return norm and cosines."""
        if (factor := self.weighting.scale(plan.num_turns)) is not None:
            self.gradients.multiply(factor)
        cosines = self._aggregate(plan)
        self.gradients.apply(plan.tasks, shared=plan.num_rows > 0)
        grad_norm = self._clip()
        self.optimizer.step()
        renew_copies(self.dense)
        return grad_norm, cosines

    def _aggregate(self, plan: Plan) -> Tensor | None:
        """Make the tasks' gradients on the shared parameters one; say how they agreed."""
        gradients, rows = self.gradients, self.gradients.rows[: plan.num_rows]
        # Each worker's gradients first become everyone's.
        for part in (rows, gradients.own) if gradients.apart else (gradients.total,):
            self.team.reduce(part)
        if not rows.numel():  # no task trains the shared parameters
            return None
        if not gradients.apart:
            self._finish_sum(rows, plan)
            return None
        if len(rows) > 1 and isinstance(self.aggregator, Mixing):
            # The long rows' products serve the weights and the cosines.
            gram = inner_products(rows)
            weights = self.aggregator.mix(gram, self.generator, list(plan.apart))
            weighted_sum(weights, rows, gradients.reduced)
            return _cosines(gram)
        gradients.reduced.copy_(self.aggregator(rows, self.generator, plan.apart))
        return _cosines(inner_products(rows)) if len(rows) > 1 else None

    def _finish_sum(self, rows: Tensor, plan: Plan) -> None:
        """Hand the tasks' sum, which stands where the update reads, to an aggregator that wants it.

        One that wants each task's gradient has nothing to do: there is but one such task.
        """
        if self.aggregator.per_task:
            return
        made = self.aggregator(rows, self.generator, plan.apart)
        if made.data_ptr() != rows.data_ptr():  # the plain sum is there already
            self.gradients.reduced.copy_(made)

    def _clip(self) -> Tensor:
        norm: Tensor = torch.linalg.vector_norm(self.gradients.total)
        if self.clip and self._divides():
            # A GPU's fused AdamW divides the gradients as it reads them, which saves a pass.
            self.optimizer.grad_scale = ((norm + 1e-6) / self.clip).clamp(min=1.0)  # type: ignore[attr-defined]
        elif self.clip:
            self.gradients.total.mul_((self.clip / (norm + 1e-6)).clamp(max=1.0))
        return norm

    def _divides(self) -> bool:
        """Say whether the optimizer divides gradients by `grad_scale` as it reads them."""
        defaults = self.optimizer.defaults
        return bool(defaults.get("fused") and defaults.get("capturable"))

    # --- the same batches once more ---

    def _look_again(self, parcels: Sequence[tuple[str, Parcel]]) -> dict[str, Tensor]:
        """Return the losses of the same batches, without terms, as they are by now."""
        sums = LossSums()
        for task, parcel in parcels:
            (loss,) = self.runner.run(
                ("look", task, parcel.key), partial(self._look, task, parcel), parcel.inputs
            )
            assert loss is not None
            sums.add(task, loss, None)
        return sums.mean(sums.losses)

    @torch.no_grad()
    def _look(self, task: str, parcel: Parcel, *inputs: Tensor) -> tuple[Tensor]:
        batch = parcel.unpack(*inputs)
        assert batch.labels is not None
        with self._precision():
            outputs = self.model(task, batch.tokens)
            return (self.team.loss(self.tasks[task].loss, outputs, batch),)

    # --- how it is run ---

    def _choose_runner(self, wanted: bool) -> Plain:
        """Capture what can be captured, where it is wanted and there is a GPU."""
        if not wanted or self.device.type != "cuda":
            return Plain(self.device)
        if self.team.size > 1:
            plain = Plain(self.device)
            plain.trouble = "they wait for other workers on the way"
            return plain
        if strange := self._unmarked():
            plain = Plain(self.device)
            plain.trouble = f"{type(strange[0]).__name__} is not marked as capturable"
            return plain
        return Graphs(self.device)

    def _unmarked(self) -> list[Weighting | Regularizer]:
        """Return the parts that do not say how they treat what they remember."""
        parts: list[Weighting | Regularizer] = [self.weighting, *self.regularizers]
        return [part for part in parts if not part.capturable]

    def _precision(self) -> AbstractContextManager[object]:
        if self.autocast is None:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=self.autocast)

    # --- what it remembers ---

    @property
    def regularizers(self) -> list[Regularizer]:
        """Return every regularizer once, however many tasks share it."""
        every = (term for parts in self.tasks.values() for term in parts.regularizers)
        return list({id(term): term for term in every}.values())

    def tensors(self) -> dict[str, Tensor]:
        """Return what its parts remember from update to update, for a checkpoint.

        The model and the optimizer's moments of it are not among them.
        """
        kept = {f"aggregator.{name}": t for name, t in self.aggregator.tensors().items()}
        kept |= {f"weighting.{name}": t for name, t in self.weighting.tensors().items()}
        for i, regularizer in enumerate(self.regularizers):
            kept |= {f"regularizers.{i}.{name}": t for name, t in regularizer.tensors().items()}
        if self.mean is not None:
            kept |= {f"mean.{name}": t for name, t in self.mean.means.items()}
        for name, parameter in self._learned_weights():
            moments = self.optimizer.state.get(parameter, {})
            kept |= {f"optimizer.{name}.{key}": value for key, value in moments.items()}
        return kept

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Take back what `tensors` returned, from whatever device."""

        def under(place: str) -> dict[str, Tensor]:
            start = len(place) + 1
            return {name[start:]: t for name, t in tensors.items() if name.startswith(f"{place}.")}

        renew_copies(self.dense)  # the model was read back just before
        self.aggregator.load_tensors(under("aggregator"))
        self.weighting.load_tensors(under("weighting"))
        for i, regularizer in enumerate(self.regularizers):
            regularizer.load_tensors(under(f"regularizers.{i}"))
        if self.mean is not None:
            self.mean.load(under("mean"))
        for name, parameter in self._learned_weights():
            if moments := under(f"optimizer.{name}"):
                self.optimizer.state[parameter] = {
                    key: value.to(self.device, copy=True) for key, value in moments.items()
                }

    def _learned_weights(self) -> Iterator[tuple[str, nn.Parameter]]:
        for task in self.tasks:
            for i, parameter in enumerate(self.weighting.parameters(task)):
                yield f"{task}.{i}", parameter


def _cosines(gram: Tensor) -> Tensor:
    """Turn inner products of every two rows into cosines; 0 where one of the rows is 0."""
    norms = gram.diagonal().sqrt().clamp(min=torch.finfo(gram.dtype).tiny)
    return (gram / norms / norms.unsqueeze(1)).clamp(-1, 1)
