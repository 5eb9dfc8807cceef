"""A run's answers become what to learn from them: its worst mistakes, and where they gather."""

from plait.mistakes.comparison import Comparison, compare
from plait.mistakes.finding import Mistake, Mistakes, Other, Row, find_mistakes, list_mistakes
from plait.mistakes.neighbours import find_nearest
from plait.mistakes.slices import SliceScore, cut_slices, score_slices
from plait.mistakes.verdicts import Verdicts, judge
from plait.mistakes.words import share_words, split_words

__all__ = [
    "Comparison",
    "Mistake",
    "Mistakes",
    "Other",
    "Row",
    "SliceScore",
    "Verdicts",
    "compare",
    "cut_slices",
    "find_mistakes",
    "find_nearest",
    "judge",
    "list_mistakes",
    "score_slices",
    "share_words",
    "split_words",
]
