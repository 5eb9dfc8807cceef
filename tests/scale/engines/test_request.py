"""Which engine is asked for, and what is refused before it is waited for."""

from __future__ import annotations

import importlib.util

import pytest

from plait.errors import UsageError
from plait.scale import Engine
from plait.scale.cluster import Cluster, Share, check_engine, connected


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"address": "head:6379"}, "are settings of a Ray cluster"),
        ({"name": "ray", "cpus": 0.0}, "cpus=0 should be above 0"),
        ({"name": "ray", "gpus": 1.5}, "gpus=1.5 should be a part of one GPU"),
        ({"name": "ray", "gpus": -1.0}, "gpus=-1 should be a part of one GPU"),
        ({"name": "ray", "address": "ray://head:10001"}, "ray:auto or ray:HOST:PORT"),
    ],
)
def test_what_makes_no_sense_is_refused(settings, said):
    with pytest.raises(UsageError, match=said):
        Engine(**settings)


@pytest.mark.parametrize(
    ("nodes", "share", "places"),
    [
        ([{"CPU": 4.0}], Share(1, 0), 4),
        ([{"CPU": 4.0}], Share(0.5, 0), 8),
        ([{"CPU": 4.0}, {"CPU": 3.0}], Share(2, 0), 3),
        ([{"CPU": 16.0, "GPU": 2.0}], Share(1, 0.5), 4),
        ([{"CPU": 16.0, "GPU": 2.0}], Share(1, 0.4), 4),  # two on each: a run is on one GPU
        ([{"CPU": 16.0, "GPU": 4.0}], Share(1, 2), 2),
        ([{"CPU": 3.0, "GPU": 8.0}], Share(1, 1), 3),
        ([{"CPU": 8.0}, {"CPU": 1.0, "GPU": 1.0}], Share(1, 1), 1),
        ([{"CPU": 1.0}], Share(2, 0), 0),
    ],
)
def test_places_are_counted_node_by_node(nodes, share, places):
    assert Cluster(None, tuple(nodes)).count_places(share) == places


def test_runs_have_a_gpu_where_there_are_any():
    with_gpu = Cluster(None, ({"CPU": 8.0, "GPU": 1.0},))
    assert with_gpu.choose_share(Engine("ray")) == Share(1, 1)
    assert with_gpu.choose_share(Engine("ray", gpus=0.25)) == Share(1, 0.25)
    assert Cluster(None, ({"CPU": 8.0},)).choose_share(Engine("ray")) == Share(1, 0)


def test_more_than_any_node_has_is_refused_not_waited_for():
    cluster = Cluster(None, ({"CPU": 4.0}, {"CPU": 4.0}))
    with pytest.raises(UsageError, match="no node of the Ray cluster has 5 CPUs and 0 GPUs"):
        cluster.choose_share(Engine("ray", cpus=5))


def test_without_ray_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(UsageError, match=r"pip install 'plait\[ray\]'"):
        check_engine(Engine("ray"))
    with pytest.raises(UsageError, match=r"pip install 'plait\[ray\]'"), connected(Engine("ray")):
        pass


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("127.0.0.1:1", "cannot connect"),
        ("nowhere.invalid:6379", "cannot connect"),
        ("head", "should be ray:HOST:PORT"),
        ("head:port", "should be ray:HOST:PORT"),
    ],
)
def test_an_address_where_nobody_is_is_refused_at_once(address, said):
    if importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed (pip install 'plait[ray]')")
    with pytest.raises(UsageError, match=said):
        check_engine(Engine("ray", address))
