"""A folder of answers under way: what it was begun with, and which parts are done.

_manifest.jsonl  a line of settings, one for each part that is done, one once all are
part-*           the answers, a file for each part

Lines are only ever added, after the part they speak of has its name. A part without a line is
answered again, into the same file.
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
"""Readers of folders, Arrow's and others, pass over names that begin like this."""


class Manifest:
    """What is done of a folder."""

    def __init__(self, out: Path, settings: Mapping[str, Any]):
        self.out = out
        self.settings = json.loads(json.dumps(settings))  # as they will be read back
        self.parts: dict[tuple[int, int], dict[str, Any]] = {}
        """Notes of what is done, by file and first row."""
        self.is_finished = False
        self._file: IO[bytes] | None = None

    @property
    def num_rows(self) -> int:
        """Rows that are answered."""
        return sum(note["rows"] for note in self.parts.values())

    @contextmanager
    def opened(self, *, resume: bool) -> Iterator[Manifest]:
        """Begin the folder, or go on with the one that is there, and keep others out of it."""
        out, place = self.out, self.out / NAME
        if not resume and is_taken(out):
            begun = "go on there with --resume, or " * place.exists()
            raise RunError(f"{out} exists already and is not overwritten; {begun}name another")
        if resume and not place.is_file():
            raise RunError(f"there is no {place} to go on with; leave out --resume to start one")
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
        """Return the first rows of a file's parts that are done."""
        return frozenset(start for number, start in self.parts if number == file)

    def is_done(self, file: int) -> bool:
        """Say whether all parts of a file are done."""
        notes = [note for (number, _), note in self.parts.items() if number == file]
        ends = [note["start"] + note["rows"] for note in notes if note["is_last"]]
        return bool(ends) and sum(note["rows"] for note in notes) == ends[0]

    def add(self, note: dict[str, Any]) -> None:
        """Note a part that is done."""
        self.parts[note["file"], note["start"]] = note
        self._write(note)

    def finish(self) -> None:
        """Note that all is done."""
        if not self.is_finished:
            self._write({"finished": {"rows": self.num_rows, "parts": len(self.parts)}})
        self.is_finished = True

    def _forget(self) -> None:
        """Remove a folder in which nothing is answered: what was wrong is mended and begun anew."""
        if not self.parts and [path.name for path in self.out.iterdir()] == [NAME]:
            with suppress(OSError):  # some systems keep what is open
                (self.out / NAME).unlink()
                self.out.rmdir()

    def _write(self, line: Mapping[str, Any]) -> None:
        assert self._file is not None
        self._file.write(f"{json.dumps(line)}\n".encode())
        self._file.flush()
        os.fsync(self._file.fileno())

    def _read(self, file: IO[bytes]) -> None:
        """Read what is done, and check that it is the same that goes on."""
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
        advice = f"go on with the same, or remove {self.out} to start over"
        refuse_others(before, self.settings, str(self.out), advice)
        for note in self.parts.values():
            if not (self.out / note["part"]).is_file():
                raise RunError(
                    f"{self.out / note['part']} is noted to be done and is not there; put it "
                    f"back, or remove {self.out} to start over"
                )
        if torn:  # of a process killed in the middle of a line
            file.seek(-len(torn), os.SEEK_END)
            file.truncate()
        file.seek(0, os.SEEK_END)
