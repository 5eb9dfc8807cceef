"""The manifest of a folder of predictions: its settings, and its finished parts.

_manifest.jsonl  a line of settings, a line for each finished part, a line at the end
part-*           the predictions, a file for each part

A part's line is appended after its file is complete. A part without a line is predicted again,
into the same file.
"""

from __future__ import annotations

import json
import os
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, Any

from plait.data.locks import lock
from plait.data.storage import disk_full_told, remove_leftovers
from plait.errors import Interrupted, PlaitError, RunError
from plait.inference.answers.journal import refuse_others
from plait.inference.folders import is_taken

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

NAME = "_manifest.jsonl"
"""Arrow and other readers of folders ignore names that begin with an underscore."""


class Manifest:
    """The finished parts of a folder."""

    def __init__(self, out: Path, settings: Mapping[str, Any]):
        self.out = out
        self.settings = json.loads(json.dumps(settings))  # as they will be read back
        self.parts: dict[tuple[int, int], dict[str, Any]] = {}
        """Entries of finished parts, by file and first row."""
        self.is_finished = False
        self._file: IO[bytes] | None = None

    @property
    def num_rows(self) -> int:
        """Number of predicted rows."""
        return sum(note["rows"] for note in self.parts.values())

    @contextmanager
    def opened(self, *, resume: bool) -> Iterator[Manifest]:
        """Start or continue the folder, and lock it for other processes."""
        out, place = self.out, self.out / NAME
        if not resume and is_taken(out):
            begun = "continue with --resume, or " * place.exists()
            raise RunError(f"{out} exists already and is not overwritten; {begun}choose another")
        if resume and not place.is_file():
            raise RunError(f"there is no {place} to continue; leave out --resume to start over")
        out.mkdir(parents=True, exist_ok=True)
        with disk_full_told(place), place.open("r+b" if resume else "xb") as file:
            if not lock(file):
                raise RunError(f"another process is answering into {out}")
            self._file = file
            if resume:
                self._read(file)
            else:
                self._write({"settings": self.settings})
            remove_leftovers(out)
            try:
                yield self
            except Interrupted:
                raise
            except PlaitError:
                self._forget()
                raise

    def done_starts(self, file: int) -> frozenset[int]:
        """Return the first rows of a file's finished parts."""
        return frozenset(start for number, start in self.parts if number == file)

    def is_done(self, file: int) -> bool:
        """Return whether all parts of a file are finished."""
        notes = [note for (number, _), note in self.parts.items() if number == file]
        ends = [note["start"] + note["rows"] for note in notes if note["is_last"]]
        return bool(ends) and sum(note["rows"] for note in notes) == ends[0]

    def add(self, note: dict[str, Any]) -> None:
        """Add the entry of a finished part."""
        self.parts[note["file"], note["start"]] = note
        self._write(note)

    def finish(self) -> None:
        """Add the line that says that all parts are finished."""
        if not self.is_finished:
            self._write({"finished": {"rows": self.num_rows, "parts": len(self.parts)}})
        self.is_finished = True

    def _forget(self) -> None:
        """Remove a folder without predictions, so that the command can be repeated."""
        if not self.parts and [path.name for path in self.out.iterdir()] == [NAME]:
            with suppress(OSError):  # some systems do not remove open files
                (self.out / NAME).unlink()
                self.out.rmdir()

    def _write(self, line: Mapping[str, Any]) -> None:
        assert self._file is not None
        self._file.write(f"{json.dumps(line)}\n".encode())
        self._file.flush()
        os.fsync(self._file.fileno())

    def _read(self, file: IO[bytes]) -> None:
        """Read the finished parts, and check that the settings are the same."""
        place = self.out / NAME
        whole, _, torn = file.read().rpartition(b"\n")
        try:
            first, *notes = [json.loads(line) for line in whole.splitlines()]
            before = dict(first["settings"])
            self.is_finished = any("finished" in note for note in notes)
            for note in notes:
                if "part" in note:
                    self.parts[note["file"], note["start"]] = note
        except (ValueError, KeyError, TypeError) as error:
            raise RunError(f"{place} is damaged: remove {self.out} to start over") from error
        advice = f"continue with the same settings, or remove {self.out} to start over"
        refuse_others(before, self.settings, str(self.out), advice)
        for note in self.parts.values():
            if not (self.out / note["part"]).is_file():
                raise RunError(
                    f"{self.out / note['part']} is missing; put it back, or remove {self.out} to "
                    "start over"
                )
        if torn:  # the process was killed while it wrote a line
            file.seek(-len(torn), os.SEEK_END)
            file.truncate()
        file.seek(0, os.SEEK_END)
