"""Which engine is asked for, and how much of it each run may have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from plait.errors import UsageError

EngineName = Literal["local", "ray"]


@dataclass(frozen=True, slots=True)
class Engine:
    """Who works: this machine, or Ray."""

    name: EngineName = "local"
    address: str | None = None
    """Of a Ray cluster; one is started here unless given."""
    cpus: float | None = None
    """Of each run: one unless given."""
    gpus: float | None = None
    """Of each run, such as a half. Unless given a whole one, where the cluster has any and the
    recipe does not say `device = "cpu"`."""

    def __post_init__(self) -> None:
        given = {
            "--address": self.address,
            "--cpus-per-run": self.cpus,
            "--gpus-per-run": self.gpus,
        }
        if self.name != "ray":
            for option, value in given.items():
                if value is not None:
                    raise UsageError(f"{option} is for Ray: give --engine ray as well")
        if self.cpus is not None and self.cpus <= 0:
            raise UsageError(f"--cpus-per-run {self.cpus:g} should be above 0")
        if self.gpus is not None and (self.gpus < 0 or (self.gpus > 1 and self.gpus % 1)):
            raise UsageError(
                f"--gpus-per-run {self.gpus:g} should be a part of one GPU, such as 0.5, or whole"
            )
        if self.address is not None and self.address.startswith("ray://"):
            raise UsageError(
                f"--address {self.address} is for Ray's client; start plait on a node of the "
                "cluster, with --address auto or HOST:PORT"
            )

    @property
    def is_ray(self) -> bool:
        """Whether Ray works."""
        return self.name == "ray"

    def words(self) -> list[str]:
        """Write it as options of a command."""
        if not self.is_ray:
            return []
        words = ["--engine", "ray"]
        words += ["--address", self.address] if self.address else []
        words += ["--cpus-per-run", f"{self.cpus:g}"] if self.cpus is not None else []
        words += ["--gpus-per-run", f"{self.gpus:g}"] if self.gpus is not None else []
        return words
