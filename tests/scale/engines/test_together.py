"""Ray trains one run: what went wrong before any worker could say so."""

from __future__ import annotations

from types import SimpleNamespace

from plait.scale.together import _watch


class Board:
    """An empty one, as nobody came to write on it; its answers are there at once."""

    take = SimpleNamespace(remote=list)
    read = SimpleNamespace(remote=lambda: (None, None))


class RayError(Exception):
    pass


def test_why_no_worker_could_be_started_is_kept():
    def fit():
        raise TypeError("a wrong call of ours")

    ray = SimpleNamespace(get=lambda found: found, exceptions=SimpleNamespace(RayError=RayError))
    ended, why = _watch(ray, Board, SimpleNamespace(fit=fit), [])
    assert ended == (None, None)
    assert str(why) == "a wrong call of ours"
