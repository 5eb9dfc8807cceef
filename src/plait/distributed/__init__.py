"""Several processes train one model: who takes which rows, and how they agree."""

from plait.distributed.launch import find_launch, joined
from plait.distributed.team import ALONE, Team
from plait.distributed.workers import Workers

__all__ = ["ALONE", "Team", "Workers", "find_launch", "joined"]
