"""Connect to a Ray cluster: a temporary one on this machine, or one at an address."""

from __future__ import annotations

import importlib.util
import logging
import os
import secrets
import shutil
import socket
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plait.errors import UsageError, first_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from plait.scale.request import Engine

STORE_BYTES = 512 << 20
"""Size of the object store of a Ray that plait starts; more data goes to disk."""

PATIENCE_S = 5.0
"""Seconds to wait for a connection to an address."""

MISSING = "--jobs ray needs Ray (pip install 'plait[ray]')"

QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DATA_DISABLE_PROGRESS_BARS": "1"}

AUTH_MODE = "RAY_AUTH_MODE"

LOOPBACK = {
    # The switch's name is of those systems; off, Ray takes this machine's loopback for its
    # address, and nothing listens beyond it.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_enable_metrics_collection": "0",
}


@dataclass(frozen=True, slots=True)
class Share:
    """CPUs and GPUs of each run, or of each worker that predicts."""

    cpus: float
    gpus: float

    def options(self) -> dict[str, float]:
        """Return them as options of a Ray task."""
        return {"num_cpus": self.cpus, "num_gpus": self.gpus}


@dataclass(frozen=True, slots=True)
class Cluster:
    """Ray, connected."""

    ray: Any
    """The module."""
    nodes: tuple[dict[str, float], ...]
    """The resources of each node."""

    def choose_share(self, engine: Engine, *, gpu: bool = True) -> Share:
        """Return the requested resources of a run; by default 1 CPU, and 1 GPU if it uses one.

        Raises UsageError if no node has them.
        """
        has_gpu = gpu and any(node.get("GPU", 0) for node in self.nodes)
        gpus = engine.gpus if engine.gpus is not None else float(has_gpu)
        share = Share(engine.cpus if engine.cpus is not None else 1.0, gpus)
        if not self.count_places(share):
            raise UsageError(
                f"no node of the Ray cluster has {share.cpus:g} CPUs and {share.gpus:g} GPUs for "
                "one run; ask for less, for example with --jobs ray,cpus=1,gpus=0.5"
            )
        return share

    def count_places(self, share: Share) -> int:
        """Return how many runs fit on the nodes at once."""

        def fit(node: dict[str, float]) -> int:
            places = node.get("CPU", 0) / share.cpus
            if share.gpus:
                # A share below 1 is of a single GPU: 3 runs with 0.4 GPUs do not fit on 2 GPUs.
                on_each = 1 / share.gpus if share.gpus <= 1 else node.get("GPU", 0) / share.gpus
                gpus = node.get("GPU", 0) if share.gpus <= 1 else 1
                places = min(places, gpus * int(on_each + 1e-6))
            return int(places + 1e-6)

        return sum(map(fit, self.nodes))


def prepare() -> None:
    """Set the environment variables with which a local Ray is closed to other users."""
    os.environ.update(LOOPBACK)
    if AUTH_MODE not in os.environ:  # other users of this machine are on loopback, too
        os.environ.update({AUTH_MODE: "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)})


def import_ray() -> Any:
    """Import Ray; raise UsageError with the package to install if it is missing."""
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise UsageError(f"{MISSING}: {error}") from error


def check_engine(engine: Engine) -> None:
    """Raise UsageError if the engine is not available; this does not import Ray."""
    if not engine.is_ray:
        return
    if importlib.util.find_spec("ray") is None:
        raise UsageError(MISSING)
    if engine.address is not None:
        _knock(engine.address)


@contextmanager
def connected(engine: Engine) -> Iterator[Cluster]:
    """Connect to a cluster, or start one on this machine; a context manager.

    An existing connection of this process is used and stays open.
    """
    os.environ.update(QUIET)
    if engine.address is None and "ray" not in sys.modules:  # it reads them when it is imported
        prepare()
    ray = import_ray()
    if ray.is_initialized():
        yield _look(ray)
        return
    folder = None
    try:
        if engine.address is None:
            # Ray puts its sockets there, and their paths must be short.
            folder = tempfile.mkdtemp(prefix="plait-", dir="/tmp" if os.name == "posix" else None)
            _start(ray, folder)
        else:
            _join(ray, engine.address)
        yield _look(ray)
    finally:
        ray.shutdown()
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def _start(ray: Any, folder: str) -> None:
    try:
        ray.init(
            address="local",
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            object_store_memory=STORE_BYTES,
            _node_ip_address="127.0.0.1",
            _temp_dir=folder,
        )
    except Exception as error:
        raise UsageError(f"Ray could not be started: {first_line(error)}") from error


def _join(ray: Any, address: str) -> None:
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:
        advice = "start a cluster with `ray start --head`, and plait on one of its nodes"
        if isinstance(error.__cause__, ray.exceptions.AuthenticationError):
            advice = (
                f"the cluster requires a token: set {AUTH_MODE}=token, and RAY_AUTH_TOKEN or "
                "RAY_AUTH_TOKEN_PATH as on its nodes"
            )
        raise UsageError(
            f"ray:{address}: cannot join a Ray cluster there: {first_line(error)}; {advice}"
        ) from error


def _knock(address: str) -> None:
    """Raise UsageError if no server listens at an address; Ray would retry for minutes."""
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise UsageError(f"ray:{address} should be ray:HOST:PORT, or ray:auto for this node's Ray")
    try:
        socket.create_connection((host.strip("[]"), int(port)), PATIENCE_S).close()
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(
            f"ray:{address}: cannot connect ({reason}); start Ray on that node with "
            "`ray start --head`"
        ) from error


def _look(ray: Any) -> Cluster:
    nodes = tuple(dict(node["Resources"]) for node in ray.nodes() if node["Alive"])
    return Cluster(ray, nodes)


def describe_host() -> str:
    """Return the name of this machine for messages."""
    return socket.gethostname()


def find_missing(paths: tuple[Path, ...]) -> str | None:
    """Return a sentence about the first path that this machine does not have, or None."""
    for path in paths:
        if not path.exists():
            return (
                f"node {describe_host()} has no {path}, which the job needs; put it on a file "
                "system that all nodes share, under the same path"
            )
    return None
