"""A run's answers become what to learn from them: its worst mistakes, and where they gather."""

from plait.analysis.mistakes.comparison import Comparison, compare
from plait.analysis.mistakes.finding import (
    Mistake,
    Mistakes,
    Other,
    Row,
    find_mistakes,
    list_mistakes,
)
from plait.analysis.mistakes.neighbours import find_nearest
from plait.analysis.mistakes.slices import SliceScore, cut_slices, score_slices
from plait.analysis.mistakes.words import share_words, split_words

__all__ = [
    "Comparison",
    "Mistake",
    "Mistakes",
    "Other",
    "Row",
    "SliceScore",
    "compare",
    "cut_slices",
    "find_mistakes",
    "find_nearest",
    "list_mistakes",
    "score_slices",
    "share_words",
    "split_words",
]
