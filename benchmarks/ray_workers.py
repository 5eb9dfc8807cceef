"""Processes of a command that works on a Ray of its own: found, weighed, and one of them killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path


def descendants(pid: int) -> list[int]:
    """Return the processes that a process started, and those that they did."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):  # it is gone
            continue
        children.setdefault(parent, []).append(int(entry.name))
    found, waiting = [], [pid]
    while waiting:
        more = children.get(waiting.pop(), [])
        found += more
        waiting += more
    return found


def find_workers(pid: int, word: str) -> list[int]:
    """Return the workers that are at something: Ray writes what into their names."""
    found = []
    for worker in descendants(pid):
        try:
            title = Path(f"/proc/{worker}/cmdline").read_text(errors="replace")
        except OSError:
            continue
        if title.startswith("ray::") and word in title:
            found.append(worker)
    return found


def kill_one(pid: int, word: str) -> bool:
    """Kill a worker that is at something, without a warning; say whether there was one."""
    for worker in find_workers(pid, word)[:1]:
        os.kill(worker, signal.SIGKILL)
        return True
    return False


def memory_mib(pid: int) -> float:
    """Return what a process and all that it started hold, shared pages counted once."""
    total = 0
    for one in (pid, *descendants(pid)):
        try:
            lines = Path(f"/proc/{one}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return round(total / 1024, 1)
