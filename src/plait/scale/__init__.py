"""Where many runs, or many rows, are worked on: processes of this machine, or a Ray cluster.

A crew takes jobs and gives back what they say. `processes` is one of this machine, `remote` one
of a cluster; `answering` answers files there. Ray is imported by whoever asks for it, not before.
"""

from plait.scale.crew import Crew, Message, Tell
from plait.scale.request import Engine, Jobs

__all__ = ["Crew", "Engine", "Jobs", "Message", "Tell"]
