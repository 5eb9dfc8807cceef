"""What is said of runs that are trained at once."""

from __future__ import annotations

from types import SimpleNamespace

from plait.cli.jobs import Overview
from plait.scale.running import Place


def test_once_a_minute_all_runs_that_have_told_are_spoken_of(monkeypatch):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr("plait.cli.jobs.time.monotonic", lambda: clock.now)
    notes: list[str] = []
    overview = Overview(notes.append)
    for now, name, step in ((30, "a", 10), (40, "b", 5), (59, "c", 900), (61, "a", 1500)):
        if name == "a" and step > 10:
            overview.forget("c")
        clock.now = now
        overview.hear(name, Place("finetune", step, 24_000, 90.0))
    assert notes == ["a: finetune 1,500/24,000, 1:30 left; b: finetune 5/24,000, 1:30 left"]
    clock.now = 122
    overview.hear("b", Place("finetune", 9, 24_000, 3700.0))
    assert notes[1:] == ["b: finetune 9/24,000, 1:01:40 left"]
