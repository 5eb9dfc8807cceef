"""Who may ask: API keys out of a file or the environment, and where a server may be open."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
from typing import TYPE_CHECKING

from plait.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

VARIABLE = "PLAIT_KEYS"
SHORTEST = 16
"""Characters of a key; shorter ones can be guessed."""


class Keys:
    """The keys that are let in; all are, where there are none."""

    def __init__(self, keys: list[str]):
        # Hashes are of one length, so that comparing them tells nothing of a key's.
        self._hashes = [_hash(key) for key in keys]

    @classmethod
    def read(cls, path: Path | None) -> Keys:
        """Read a file with a key a line, and PLAIT_KEYS with commas between."""
        found = [key.strip() for key in os.environ.get(VARIABLE, "").split(",")]
        source = VARIABLE
        if path is not None:
            source = f"{path} and {VARIABLE}" if any(found) else str(path)
            try:
                lines = path.read_text(encoding="utf-8").splitlines()
            except FileNotFoundError as error:
                raise UsageError(f"there is no key file {path}; it holds one key a line") from error
            except UnicodeDecodeError as error:
                raise UsageError(f"{path} is not a text file; it holds one key a line") from error
            found += [line.strip() for line in lines if not line.lstrip().startswith("#")]
        keys = [key for key in found if key]
        if path is not None and not keys:
            raise UsageError(f"{path} holds no key; write one a line")
        for number, key in enumerate(keys, 1):
            if len(key) < SHORTEST or not key.isascii() or not key.isprintable():
                raise UsageError(
                    f"key {number} of {source} is not {SHORTEST} or more plain characters; make "
                    "one with `openssl rand -hex 24`"
                )
        return cls(keys)

    def __bool__(self) -> bool:
        """Whether a key is asked for."""
        return bool(self._hashes)

    def admit(self, given: str | None) -> bool:
        """Say whether a key is one of them, in a time that does not depend on which."""
        if given is None:
            return not self._hashes
        hashed = _hash(given)
        # All are compared, without a stop at the right one.
        return not self._hashes or any([hmac.compare_digest(hashed, own) for own in self._hashes])  # noqa: C419


def _hash(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", errors="surrogatepass")).digest()


def is_loopback(host: str) -> bool:
    """Say whether only this machine reaches an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def refuse_open(host: str, keys: Keys, *, is_open: bool) -> None:
    """Refuse an address that others reach, unless there are keys or it was said twice."""
    if keys or is_open or is_loopback(host):
        return
    raise UsageError(
        f"--host {host} lets other machines in, and no key is asked of them; give keys with "
        f"--key-file or {VARIABLE}, or say --open as well to let in everybody"
    )
