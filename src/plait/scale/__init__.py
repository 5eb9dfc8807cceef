"""Run many jobs at once: in processes of this machine, or on a Ray cluster.

A worker pool takes jobs and returns their messages. `processes` is the pool of this machine,
`remote` the pool of a Ray cluster; `answering` predicts files on a cluster. Ray is imported only
where it is used.
"""

from plait.scale.pool import Message, Tell, WorkerPool
from plait.scale.request import Engine, Jobs

__all__ = ["Engine", "Jobs", "Message", "Tell", "WorkerPool"]
