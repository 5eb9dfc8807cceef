"""Texts become numbers of tokens: how long inputs are, what is cut, what is unknown."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from plait.analysis.check.findings import num_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from plait.analysis.check.findings import Finding
    from plait.analysis.check.rows import SplitRows
    from plait.data import Tokenizer

MANY = 0.05
"""Part of the rows that may be cut before it is worth a warning."""
UNKNOWN = 0.05
"""Part of a file's tokens that may be unknown before it is worth a warning."""
BATCH = 8192
"""Rows that are tokenised together."""
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


@dataclass(frozen=True, slots=True, eq=False)
class Counted:
    """Tokens of each row of a split."""

    lengths: npt.NDArray[np.int64]
    """Of the input, special ones included, before anything is cut; of two inputs, the longer's."""
    texts: npt.NDArray[np.int64]
    """Of its texts together."""
    unknown: npt.NDArray[np.int64]
    """Those of them that the tokenizer has no word for."""

    def share_unknown(self, rows: npt.NDArray[np.bool_]) -> float:
        """Return the part of some rows' tokens that is unknown."""
        return float(self.unknown[rows].sum() / max(self.texts[rows].sum(), 1))


def count_tokens(rows: SplitRows, tokenizer: Tokenizer) -> Counted:
    """Tokenise a split, some rows at a time."""
    layout, width = tokenizer.layout, len(rows.config.text)
    counts, unknown = np.zeros((2, width, len(rows)), np.int64)
    for start in range(0, len(rows), BATCH):
        some = slice(start, start + BATCH)
        for i, column in enumerate(zip(*rows.texts[some], strict=True)):
            flat, lengths = tokenizer.encode(column)
            sums = np.concatenate([[0], np.cumsum(flat == tokenizer.unknown_id)])
            ends = np.cumsum(lengths)
            counts[i, some] = lengths
            unknown[i, some] = sums[ends] - sums[ends - lengths]
    is_joined = width == 2 and rows.config.inputs == "joined"
    tokens: npt.NDArray[np.int64] = counts.sum(axis=0) if is_joined else counts.max(axis=0)
    tokens += layout.num_pair if is_joined else layout.num_single
    return Counted(tokens, counts.sum(axis=0), unknown.sum(axis=0))


def find_unknown(rows: SplitRows, counted: Counted) -> dict[str, float]:
    """Return the part of each file's tokens that the tokenizer has no word for."""
    return {
        str(source.path): counted.share_unknown(rows.files == i)
        for i, source in enumerate(rows.sources)
    }


def check_unknown(rows: SplitRows, shares: dict[str, float]) -> Iterator[Finding]:
    """Tell of files with many unknown tokens."""
    for path, share in shares.items():
        if share > UNKNOWN:
            yield rows.finding(
                "unknown words",
                "warning",
                f"{share:.0%} of the tokens of {path} are unknown to the encoder's tokenizer",
                "look whether the file is what it should be, or take an encoder that was made "
                "for its language",
            )


def measure(tokens: npt.NDArray[np.int64], max_length: int) -> Lengths:
    """Sum lengths up."""
    median, most = np.quantile(tokens, [0.5, 0.95])
    cut = int((tokens > max_length).sum())
    return Lengths(round(median), round(most), int(tokens.max()), cut)


def check_lengths(
    rows: SplitRows, tokens: npt.NDArray[np.int64], max_length: int, most: int | None = None
) -> Iterator[Finding]:
    """Tell of rows that are longer than an input may be, the longest first.

    `most` is how many tokens the encoder reads, where that is known.
    """
    cut = np.flatnonzero(tokens > max_length)
    if len(cut) == 0:
        return
    cut = cut[np.argsort(-tokens[cut], kind="stable")]
    share = len(cut) / len(rows)
    enough = int(np.quantile(tokens, 0.99))
    if enough <= max_length:
        advice = "few enough to leave it so"
    elif most is None or enough <= most:
        advice = f"{enough} would hold 99 of 100, at the price of time and memory"
    elif max_length < most:
        advice = f"this encoder reads {most} at most, at the price of time and memory"
    else:
        advice = "this encoder reads no more; shorten the texts, or take one that does"
    lose = "is longer and loses its" if len(cut) == 1 else "are longer and lose their"
    yield rows.finding(
        "lengths",
        "warning" if share >= MANY else "note",
        f"of {num_rows(len(rows))} {len(cut):,} ({share:.1%}) {lose} end at encoder.max_length = "
        f"{max_length}",
        advice,
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
