"""How much a server takes in, and how long it may take."""

from __future__ import annotations

from dataclasses import dataclass, fields

from plait.errors import UsageError


@dataclass(frozen=True, slots=True)
class Limits:
    """What a request may cost, and all requests together."""

    head_bytes: int = 65_536
    """Of a request line with its headers."""
    head_seconds: float = 10.0
    """For a client to send them, from when it connects or begins."""
    body_bytes: int = 1_000_000
    inputs: int = 256
    """Inputs of one request."""
    text_chars: int = 20_000
    """Characters of one text. What an encoder does not read of it is tokenised all the same."""
    requests: int = 1024
    """Requests under way at once, so that bodies cannot fill the memory."""
    queue: int = 1024
    """Rows accepted and not yet answered; a row is one input in one pass of an encoder."""
    seconds: float = 30.0
    """From a request's acceptance to its answer; a worker that takes as long is replaced."""
    body_seconds: float = 10.0
    """For a client to send its request's body."""
    batch_size: int = 32
    """Rows of a parcel."""
    wait_ms: float = 5.0
    """How long a row may wait for others to be answered together with."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value < 0 or (value == 0 and field.name != "wait_ms"):
                raise UsageError(f"the limit {field.name} is {value}; it is a number above 0")
        if self.inputs > self.queue:
            raise UsageError(
                f"a queue of {self.queue} rows never has room for a request of {self.inputs} "
                "inputs; allow fewer inputs or a longer queue"
            )
