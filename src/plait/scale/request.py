"""The `--jobs` option: how many runs at once, on this machine or on a Ray cluster."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from plait.errors import UsageError

EngineName = Literal["local", "ray"]


@dataclass(frozen=True, slots=True)
class Engine:
    """Where runs are trained: in processes of this machine, or on a Ray cluster."""

    name: EngineName = "local"
    address: str | None = None
    """Of the Ray cluster, HOST:PORT or auto; a cluster is started on this machine if None."""
    cpus: float | None = None
    """CPUs per run on Ray; 1 if None."""
    gpus: float | None = None
    """GPUs per run on Ray, for example 0.5. If None: 1 where the cluster has GPUs and the recipe
    does not say `device = "cpu"`."""

    def __post_init__(self) -> None:
        if self.name != "ray" and (self.address, self.cpus, self.gpus) != (None, None, None):
            raise UsageError("address, cpus and gpus are settings of a Ray cluster")
        if self.cpus is not None and self.cpus <= 0:
            raise UsageError(f"cpus={self.cpus:g} should be above 0")
        if self.gpus is not None and (self.gpus < 0 or (self.gpus > 1 and self.gpus % 1)):
            raise UsageError(
                f"gpus={self.gpus:g} should be a part of one GPU, such as 0.5, or a whole number"
            )
        if self.address is not None and self.address.startswith(("//", "ray://")):
            raise UsageError(
                "this is the address of a Ray client; start plait on a node of the "
                "cluster, with ray:auto or ray:HOST:PORT"
            )

    @property
    def is_ray(self) -> bool:
        """Whether runs are trained on Ray."""
        return self.name == "ray"


@dataclass(frozen=True, slots=True)
class Jobs:
    """How many runs are trained at once, and where."""

    engine: Engine = field(default_factory=Engine)
    at_once: int | None = None
    """At most; if None, one on this machine, and as many as fit on a Ray cluster."""
    workers: int = 1
    """Processes that train each run together, on Ray."""

    @classmethod
    def read(cls, text: str | None) -> Jobs:
        """Read the option: `4`, `ray`, `ray:HOST:PORT` or `ray:auto,runs=4,gpus=0.5`.

        The settings of Ray are runs (at once), workers (per run), cpus and gpus (per worker).
        """
        if text is None:
            return cls()
        place, *settings = text.split(",")
        name, colon, address = place.partition(":")
        if name.isdecimal() and int(name) and not (colon or settings):
            return cls(at_once=int(name))
        if name != "ray" or (colon and not address):
            raise UsageError(f"--jobs {text} should be a number of processes, ray or ray:HOST:PORT")
        found: dict[str, float] = {}
        for setting in settings:
            key, _, value = setting.partition("=")
            try:
                found[key] = float(value)
            except ValueError:
                found.clear()
            if key not in ("runs", "workers", "cpus", "gpus") or not found:
                raise UsageError(
                    f"--jobs {text}: {setting!r} should be runs=N, workers=N, cpus=N or gpus=N"
                )
        for key in ("runs", "workers"):
            if found.get(key, 1) < 1 or found.get(key, 1) % 1:
                raise UsageError(f"--jobs {text}: {key} should be a whole number of 1 or more")
        engine = Engine("ray", address or None, found.get("cpus"), found.get("gpus"))
        at_once, workers = found.get("runs"), int(found.get("workers", 1))
        if workers > 1 and at_once is not None and at_once > 1:
            raise UsageError(
                f"--jobs {text}: with workers={workers} the runs are trained one after the other; "
                "leave out runs or workers"
            )
        return cls(engine, None if at_once is None else int(at_once), workers)

    @property
    def is_several(self) -> bool:
        """Whether several runs are trained at once."""
        return self.engine.is_ray or (self.at_once or 1) > 1
