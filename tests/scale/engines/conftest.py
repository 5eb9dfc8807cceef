"""A Ray of this machine, started once for all tests that want one."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest

from plait.scale import Engine
from plait.scale.cluster import Cluster, connected, prepare

prepare()  # a test elsewhere may be the first to import Ray, and only to be refused


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Ray on loopback; tests that connect meanwhile use it, and leave it."""
    if importlib.util.find_spec("ray") is None:  # not importorskip: Ray is imported when asked for
        pytest.skip("Ray is not installed (pip install 'plait[ray]')")
    with connected(Engine("ray")) as found:
        yield found
