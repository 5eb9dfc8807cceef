"""Augmentations: a training row becomes another one with the same label, to train on as well.

They see training rows alone, after rows have been drawn (`count`, `fraction`) and before they
are tokenised. Each sees the rows of the files, never what another one added.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from plait.data.rows import Rows
from plait.data.swaps import Swapper
from plait.registry import Registry

if TYPE_CHECKING:
    import numpy as np


@dataclass(kw_only=True)
class Augmentation(ABC):
    """Contract of the family. A dataclass: its fields are what the rows it adds depend on."""

    @abstractmethod
    def __call__(
        self, texts: tuple[str, ...], generator: np.random.Generator
    ) -> tuple[str, ...] | None:
        """Return the texts of a row to add, as many as given; None to add none."""

    def describe(self) -> dict[str, Any]:
        """Return everything the added rows depend on, to name a cache entry by."""
        return {"class": type(self).__qualname__, **asdict(self)}


AUGMENTATIONS: Registry[Augmentation] = Registry(
    "augmentation", "texts of a training row -> those of a row to add"
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
