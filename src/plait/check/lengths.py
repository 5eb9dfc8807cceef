"""Texts become numbers of tokens: how long inputs are, and how many lose their end."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from plait.check.findings import num_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from plait.check.findings import Finding
    from plait.check.rows import SplitRows
    from plait.data import Tokenizer

MANY = 0.05
"""Part of the rows that may be cut before it is worth a warning."""
SHORT = 3
"""Letters and digits below which a text hardly says anything."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """Tokens of the inputs of a split, special ones included."""

    median: int
    most: int
    """That 95 of 100 inputs do not exceed."""
    longest: int
    cut: int
    """Rows that lose something."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def count_tokens(rows: SplitRows, tokenizer: Tokenizer) -> npt.NDArray[np.int64]:
    """Return each row's input length before anything is cut; of two inputs, the longer's."""
    layout = tokenizer.layout
    columns = zip(*rows.texts, strict=True)
    counts = np.stack([tokenizer.encode(list(column), 0)[1] for column in columns]).astype(np.int64)
    is_joined = len(counts) == 2 and rows.config.inputs == "joined"
    tokens: npt.NDArray[np.int64] = counts.sum(axis=0) if is_joined else counts.max(axis=0)
    return tokens + (layout.num_pair if is_joined else layout.num_single)


def measure(tokens: npt.NDArray[np.int64], max_length: int) -> Lengths:
    """Sum lengths up."""
    median, most = np.quantile(tokens, [0.5, 0.95])
    cut = int((tokens > max_length).sum())
    return Lengths(round(median), round(most), int(tokens.max()), cut)


def check_lengths(
    rows: SplitRows, tokens: npt.NDArray[np.int64], max_length: int
) -> Iterator[Finding]:
    """Tell of rows that are longer than an input may be, the longest first."""
    cut = np.flatnonzero(tokens > max_length)
    if len(cut) == 0:
        return
    cut = cut[np.argsort(-tokens[cut], kind="stable")]
    share = len(cut) / len(rows)
    enough = int(np.quantile(tokens, 0.99))
    lose = "is longer and loses its" if len(cut) == 1 else "are longer and lose their"
    yield rows.finding(
        "lengths",
        "warning" if share >= MANY else "note",
        f"of {num_rows(len(rows))} {len(cut):,} ({share:.1%}) {lose} end at encoder.max_length = "
        f"{max_length}",
        f"{enough} would hold 99 of 100, at the price of time and memory"
        if enough > max_length
        else "few enough to leave it so",
        cut,
        [f"{tokens[row]} tokens" for row in cut],
    )


def check_short(rows: SplitRows) -> Iterator[Finding]:
    """Tell of texts that hardly say anything."""
    short = [i for i, row in enumerate(rows.texts) if any(_weight(text) < SHORT for text in row)]
    if short:
        yield rows.finding(
            "short texts",
            "note",
            f"{num_rows(len(short))} {'has' if len(short) == 1 else 'have'} a text of fewer than "
            f"{SHORT} letters",
            "look whether something went missing",
            short,
        )


def _weight(text: str) -> int:
    """Count letters and digits; one sign of Chinese, Japanese or Korean says as much as three."""
    return sum((3 if c >= "\u2e80" else 1) for c in text if c.isalnum())
