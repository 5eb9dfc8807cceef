"""Captured functions: when they are captured, what they read, and that results stay apart.

A recorder stands in for CUDA's: it does everything again on the captured memory, as a graph does.
scripts/check_gpu.py compares whole runs on a GPU.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from plait.training.graphs import Graphs, Plain

CPU = torch.device("cpu")


def double(x: Tensor) -> tuple[Tensor, None]:
    return 2 * x, None


def test_the_second_time_captures_and_later_ones_replay(recorder) -> None:
    graphs = recorder(CPU)
    counts = []
    for i in range(4):
        out, none = graphs.run("double", double, (torch.tensor([float(i)]),))
        assert out is not None
        assert out.item() == 2 * i
        assert none is None
        counts.append(graphs.num_captures)
    assert counts == [0, 1, 1, 1]
    assert len(graphs.recorded) == 1


def test_without_room_functions_run_as_they_are(recorder) -> None:
    graphs = recorder(CPU, limit=1)
    for _ in range(3):
        for key in ("a", "b"):
            out, _none = graphs.run(key, double, (torch.ones(1),))
            assert out is not None
            assert out.item() == 2
    assert graphs.num_captures == 1
    graphs = recorder(CPU)
    graphs.room = False
    for _ in range(3):
        graphs.run("a", double, (torch.ones(1),))
    assert graphs.num_captures == 0


def test_what_cannot_be_captured_runs_as_it_is_and_says_why(recorder) -> None:
    class Refusing(recorder):
        def _record(self, function: Any, inputs: Any) -> Any:
            self.recorded.append(0)
            raise RuntimeError("operation not permitted when stream is capturing\nmore lines")

    graphs = Refusing(CPU)
    for i in range(4):
        out, _none = graphs.run("a", double, (torch.tensor([float(i)]),))
        assert out is not None
        assert out.item() == 2 * i
    assert graphs.recorded == [0]  # it is not tried again
    assert graphs.trouble == "operation not permitted when stream is capturing"


def test_plain_runs_every_time() -> None:
    seen = []
    for i in range(3):
        Plain(CPU).run("k", lambda x: (seen.append(float(x)),) and (x,), (torch.tensor(float(i)),))
    assert seen == [0, 1, 2]


def test_what_is_let_go_is_captured_anew(recorder) -> None:
    graphs = recorder(CPU)
    counts = []
    for i in range(6):
        if i == 3:
            graphs.close()
        out, _none = graphs.run("a", double, (torch.tensor([float(i)]),))
        assert out is not None
        assert out.item() == 2 * i
        counts.append(graphs.num_captures)
    assert counts == [0, 1, 1, 0, 1, 1]


class Graph:
    """Stands in for CUDA's; one that is destroyed takes the stream's workspace from all others."""

    there = 0

    def __init__(self) -> None:
        Graph.there += 1

    def __del__(self) -> None:
        Graph.there -= 1

    def capture_begin(self, **_: Any) -> None:
        pass

    def capture_end(self) -> None:
        pass

    def replay(self) -> None:
        pass


def test_no_graph_is_destroyed_before_the_others(monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "Stream", lambda _: "aside")
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: "own")
    monkeypatch.setattr(torch.cuda, "default_stream", lambda _: "default")
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", object)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda _: None)
    monkeypatch.setattr(Graphs, "_has_room", lambda _: True)
    graphs = Graphs(CPU)

    def refuse(x: Tensor) -> tuple[Tensor]:
        refuse.calls += 1
        if refuse.calls == 2:
            raise RuntimeError("operation not permitted when stream is capturing")
        return (x,)

    refuse.calls = 0
    for _ in range(3):
        graphs.run("double", double, (torch.ones(1),))
        graphs.run("refuse", refuse, (torch.ones(1),))
    assert graphs.num_captures == 1
    assert Graph.there == 3  # what was captured, what failed, and what mended it
    graphs.close()
    assert Graph.there == 0
