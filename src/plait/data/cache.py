"""Arrays become a folder of .npy files that later starts map instead of computing.

A folder is written under a temporary name, synced and renamed, so whoever finds it finds it
whole. Even so the sizes and hashes of its files are checked against its `meta.json` before use:
what does not match is thrown away and made anew. Of several processes that want one entry at once,
one makes it and the others wait.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import time
import uuid
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from plait.data.digests import file_digest, new_digest
from plait.data.locks import is_taken, turn
from plait.errors import DiskFullError, ResourceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import numpy.typing as npt

    from plait.data.locks import Tell

    Arrays = dict[str, npt.NDArray[Any]]

FORMAT = 1
"""Rises with every change of what is stored, so that older entries are left alone."""

_HEADER = 128
"""Bytes of the .npy header of any flat array."""

_STALE_S = 24 * 3600
"""Age in seconds at which another process's unfinished folder or lock is taken for abandoned."""


class Writer:
    """Appends to any number of flat arrays, each in its own .npy file."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._files: dict[str, IO[bytes]] = {}
        self._arrays: dict[str, tuple[np.dtype[Any], int]] = {}
        self._digests: dict[str, hashlib.blake2b] = {}

    def append(self, name: str, values: npt.NDArray[Any]) -> None:
        """Add values to the end of an array."""
        if name not in self._files:
            self._files[name] = (self.folder / f"{name}.npy").open("wb")
            self._files[name].write(b" " * _HEADER)
            self._arrays[name] = (values.dtype, 0)
            self._digests[name] = new_digest()
        dtype, length = self._arrays[name]
        assert values.dtype == dtype
        # not tofile(), whose complaint about a full disk has no errno
        data = np.ascontiguousarray(values).data
        self._files[name].write(data)
        self._digests[name].update(data)
        self._arrays[name] = (dtype, length + len(values))

    def finish(self, meta: dict[str, Any]) -> None:
        """Write the headers, then `meta` with the arrays' sizes, all of it through to disk."""
        for name, file in self._files.items():
            dtype, length = self._arrays[name]
            file.seek(0)
            np.lib.format.write_array_header_1_0(
                file, {"descr": dtype.str, "fortran_order": False, "shape": (length,)}
            )
            assert file.tell() == _HEADER
            _sync(file)
        arrays = {name: [dtype.str, length] for name, (dtype, length) in self._arrays.items()}
        digests = {name: digest.hexdigest() for name, digest in self._digests.items()}
        whole = meta | {"format": FORMAT, "arrays": arrays, "digests": digests}
        with (self.folder / "meta.json").open("wb") as file:
            file.write(json.dumps(whole).encode())
            _sync(file)

    def close(self) -> None:
        """Close every file."""
        for file in self._files.values():
            file.close()


def load_or_build(
    entry: Path, build: Callable[[Writer, Tell], dict[str, Any]], tell: Tell | None = None
) -> tuple[Arrays, dict[str, Any]]:
    """Return an entry's arrays and meta; `build` writes the arrays first if need be.

    If another process is at it already, its work is waited for. `tell` hears how far either is.
    """
    found = _load(entry)
    if found is None:
        with _explained(entry.parent):
            entry.parent.mkdir(parents=True, exist_ok=True)
            _remove_stale(entry.parent)
            with turn(_lock_of(entry), tell) as own:
                found = _load(entry)
                if found is None:
                    _build(entry, lambda writer: build(writer, own))
                    found = _load(entry)
    if found is None:
        raise ResourceError(
            f"the cache entry {entry} was damaged while it was written; try again, "
            "or set PLAIT_CACHE to another disk"
        )
    return found


def is_underway(entry: Path) -> bool:
    """Say whether another process is making an entry just now."""
    return is_taken(_lock_of(entry))


def _lock_of(entry: Path) -> Path:
    return entry.parent / f".lock-{entry.name}"


def _load(entry: Path) -> tuple[Arrays, dict[str, Any]] | None:
    """Map an entry, or return None if it is not there or not whole."""
    try:
        meta = json.loads((entry / "meta.json").read_bytes())
        if meta["format"] != FORMAT:
            return None
        arrays = {}
        for name, (dtype, length) in meta["arrays"].items():
            path = entry / f"{name}.npy"
            if path.stat().st_size != _HEADER + length * np.dtype(dtype).itemsize:
                return None
            # copy on write: torch wants to be allowed to write, the file stays as it is
            array = np.load(path, mmap_mode="c" if length else None)
            if array.dtype.str != dtype or array.shape != (length,):
                return None
            # Entries of earlier versions have none.
            digest = meta.get("digests", {}).get(name)
            if digest is not None and file_digest(path, _HEADER) != digest:
                return None
            arrays[name] = np.asarray(array)
    except (OSError, EOFError, ValueError, KeyError, TypeError):
        return None
    return arrays, meta


def _build(entry: Path, build: Callable[[Writer], dict[str, Any]]) -> None:
    # Not tempfile's: those folders are their owner's alone, and others may share the cache.
    folder = entry.parent / f".new-{uuid.uuid4().hex}"
    folder.mkdir()
    writer = Writer(folder)
    try:
        writer.finish(build(writer))
        writer.close()
        sync_folder(folder)
        if entry.exists() and _load(entry) is None:  # damaged: out of the way
            shutil.rmtree(entry, ignore_errors=True)
        try:
            folder.rename(entry)
        except OSError:
            if _load(entry) is None:
                raise
            return  # another process was first; its work is as good as ours
        sync_folder(entry.parent)
    finally:
        writer.close()
        shutil.rmtree(folder, ignore_errors=True)


def _sync(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Put a folder's own entries on disk, so that a rename in it lasts."""
    if os.name == "posix":  # elsewhere a folder cannot be opened
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _remove_stale(parent: Path) -> None:
    for left in (*parent.glob(".new-*"), *parent.glob(".lock-*")):
        try:
            if time.time() - left.stat().st_mtime > _STALE_S:
                left.unlink() if left.is_file() else shutil.rmtree(left, ignore_errors=True)
        except OSError:
            continue  # its owner was quicker


@contextmanager
def _explained(parent: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFullError(
                f"no room left for the cache in {parent}; free some, "
                "or set PLAIT_CACHE to a folder on another disk"
            ) from error
        raise ResourceError(
            f"cannot write the cache in {parent}: {error}; "
            "set PLAIT_CACHE to a folder you may write to"
        ) from error
