"""What a task is: its kind, its labels and its metrics. A kind is one file."""

from plait.tasks.binary import Binary
from plait.tasks.classes import Classes
from plait.tasks.kind import TASK_KINDS, Kind, TaskScores, Verdicts
from plait.tasks.label_sets import Labels
from plait.tasks.score import Score
from plait.tasks.spec import TaskSpec

__all__ = [
    "TASK_KINDS",
    "Binary",
    "Classes",
    "Kind",
    "Labels",
    "Score",
    "TaskScores",
    "TaskSpec",
    "Verdicts",
]
