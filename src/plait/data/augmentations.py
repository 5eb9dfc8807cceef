"""Augmentations: training rows become more of them, to train on as well.

They see training rows alone, after rows have been drawn (`count`, `fraction`) and before they
are tokenised. Each sees the rows of the files, never what another one added. Most go row by row
(Augmentation); some look at all rows of a task at once (SetAugmentation).
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from plait.data.digests import file_digest
from plait.data.rows import Rows
from plait.data.swaps import Swapper
from plait.registry import Registry

if TYPE_CHECKING:
    import numpy.typing as npt

    from plait.data.heldout import HeldOut
    from plait.tasks import TaskSpec


@dataclass(kw_only=True)
class _Described:
    """A dataclass: its fields are what the rows it adds depend on."""

    def check(self, task: TaskSpec) -> None:
        """Refuse a task it is not for, with a ValueError that says why."""

    def describe(self) -> dict[str, Any]:
        """Return everything the added rows depend on, to name a cache entry by.

        Of a part that is not plait's, also the file it is written in, which may change.
        """
        own = type(self)
        described = {"class": own.__qualname__, **asdict(self)}
        file = getattr(sys.modules.get(own.__module__), "__file__", None)
        if file is None or own.__module__.startswith("plait."):
            return described
        return described | {"hash of its file": file_digest(Path(file))}


@dataclass(kw_only=True)
class Augmentation(_Described, ABC):
    """Contract of those that go row by row: an added row has the label of the row it is made of."""

    @abstractmethod
    def __call__(
        self, texts: tuple[str, ...], generator: np.random.Generator
    ) -> tuple[str, ...] | None:
        """Return the texts of a row to add, as many as given; None to add none."""


@dataclass(frozen=True, slots=True, eq=False)
class Made:
    """Rows that an augmentation makes of a whole training set."""

    texts: tuple[list[str], ...]
    """One list per text column."""
    labels: npt.NDArray[np.float64]
    sources: npt.NDArray[np.int64]
    """For each, a training row it was made of: its place, and the beginning of its id."""
    counts: dict[str, int] = field(default_factory=dict)
    """What to tell of the making, in the words to tell it with."""

    def __len__(self) -> int:
        return len(self.sources)

    def rows(self, training: Rows, name: str, some: npt.NDArray[np.int64], file: int) -> Rows:
        """Return some of them as rows of a file."""
        sources = self.sources[some]
        ids = training.ids.take(sources).to_pylist()
        numbered = zip(ids, some.tolist(), strict=True)
        return Rows(
            tuple(pa.array([column[i] for i in some], pa.string()) for column in self.texts),
            self.labels[some],
            pa.array([f"{id_}~{name}-{number + 1}" for id_, number in numbered], pa.string()),
            training.position,
            training.numbers[sources],
            file=file,
        )


@dataclass(kw_only=True)
class SetAugmentation(_Described, ABC):
    """Contract of those that look at all training rows of a task at once."""

    @abstractmethod
    def __call__(self, training: Rows, held_out: HeldOut, generator: np.random.Generator) -> Made:
        """Return rows to add, none of them one that dev or test has."""


AUGMENTATIONS: Registry[Augmentation | SetAugmentation] = Registry(
    "augmentation", "texts of a training row, or of all -> those of rows to add"
)


def add_rows(
    rows: Rows, name: str, augmentation: Augmentation, generator: np.random.Generator
) -> Rows | None:
    """Return the rows an augmentation adds to some; None where it adds none.

    An added row has the label of the row it was made from, and its id with `~name` after it.
    """
    texts = zip(*(column.to_pylist() for column in rows.texts), strict=True)
    made = [augmentation(row, generator) for row in texts]
    places = [i for i, row in enumerate(made) if row is not None]
    if not places:
        return None
    columns = zip(*(row for row in made if row is not None), strict=True)
    ids = rows.ids.to_pylist()
    return Rows(
        tuple(pa.array(column, pa.string()) for column in columns),
        None if rows.labels is None else rows.labels[places],
        pa.array([f"{ids[i]}~{name}" for i in places], pa.string()),
        rows.position,
        rows.numbers[places],
        file=rows.file,
    )


@AUGMENTATIONS.register("gender-swap")
@dataclass(kw_only=True)
class GenderSwap(Augmentation):
    """A copy of each row with its gendered words swapped: he for she, father for mother.

    Rows without such a word get no copy; of a pair both texts are swapped. `share` is the part
    of the rows that is considered, drawn from the run's seed. `pairs` replaces the built-in list
    ([["he", "she"], ...]), so that other words can be swapped in the same way: names, places,
    religions. Counterfactual data augmentation as in Lu et al. 2018 (Gender Bias in Neural
    Natural Language Processing); the built-in words, and the rule for 'her' and 'his', are ours.
    """

    share: float = 1.0
    pairs: tuple[tuple[str, str], ...] | None = None
    words: dict[str, str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Check the settings and get ready to swap."""
        if not 0 < self.share <= 1:
            raise ValueError(f"share must be above 0 and at most 1, not {self.share}")
        self._swap = Swapper(self.pairs)
        self.words = self._swap.words

    def __call__(
        self, texts: tuple[str, ...], generator: np.random.Generator
    ) -> tuple[str, ...] | None:
        """Return the texts swapped, if that changes them and the row is drawn."""
        # Drawn for every row, so that whether one is does not hang on the words of others.
        drawn = generator.random() < self.share
        swapped = tuple(map(self._swap, texts)) if drawn else texts
        return None if swapped == texts else swapped


@AUGMENTATIONS.register("other-order")
@dataclass(kw_only=True)
class OtherOrder(Augmentation):
    """A copy of each pair with its two texts in the other order.

    For relations that hold both ways, such as sameness and similarity; not for entailment. A
    pair of one text with itself gets no copy. `share` is the part of the rows that is
    considered, drawn from the run's seed.
    """

    share: float = 1.0

    def __post_init__(self) -> None:
        """Check the settings."""
        if not 0 < self.share <= 1:
            raise ValueError(f"share must be above 0 and at most 1, not {self.share}")

    def check(self, task: TaskSpec) -> None:
        """Refuse tasks of single texts."""
        if not task.is_pair:
            raise ValueError("it swaps the texts of a pair, but the task has one text column")

    def __call__(
        self, texts: tuple[str, ...], generator: np.random.Generator
    ) -> tuple[str, ...] | None:
        """Return the texts turned round, if that changes them and the row is drawn."""
        drawn = generator.random() < self.share
        return texts[::-1] if drawn and texts[0] != texts[-1] else None
