"""What a task is: its kind, its labels and its metrics. A kind is one file."""

from plait.tasks.binary import Binary
from plait.tasks.classes import Classes
from plait.tasks.guess import Guess, LabelColumn
from plait.tasks.kind import TASK_KINDS, Kind, TaskScores, Verdicts, guess_kind
from plait.tasks.label_sets import Labels
from plait.tasks.score import Score
from plait.tasks.spec import TaskSpec

__all__ = [
    "TASK_KINDS",
    "Binary",
    "Classes",
    "Guess",
    "Kind",
    "LabelColumn",
    "Labels",
    "Score",
    "TaskScores",
    "TaskSpec",
    "Verdicts",
    "guess_kind",
]
