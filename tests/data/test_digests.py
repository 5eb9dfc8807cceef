"""Contents are hashed; large files once, unless they may have changed."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

import pytest

from plait.data import digests
from plait.data.digests import file_digest


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that are read, where those of 8 bytes are large ones."""
    read, found = digests._read, []

    def watched(path: Path, start: int) -> str:
        found.append(path)
        return read(path, start)

    monkeypatch.setattr(digests, "_read", watched)
    monkeypatch.setattr(digests, "LARGE", 8)
    monkeypatch.setattr(digests, "SETTLED_S", -1.0)
    return found


def test_large_files_are_read_once(tmp_path: Path, reads: list[Path]) -> None:
    large, small = tmp_path / "large", tmp_path / "small"
    large.write_bytes(b"0123456789")
    small.write_bytes(b"0")
    found = [(file_digest(large), file_digest(small)) for _ in range(2)]
    assert found[0] == found[1]
    assert reads == [large, small, small]
    assert file_digest(large, 1) != found[0][0]


def test_a_changed_file_is_read_again(tmp_path: Path, reads: list[Path]) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"0123456789")
    before, stat = file_digest(path), path.stat()
    time.sleep(0.02)  # a tick of the file system's clock
    path.write_bytes(b"9876543210")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # same size, same age
    assert file_digest(path) != before
    other = tmp_path / "b"
    other.write_bytes(b"another file")
    other.replace(path)
    assert file_digest(path) == hashlib.blake2b(b"another file", digest_size=16).hexdigest()
    assert len(reads) == 3
