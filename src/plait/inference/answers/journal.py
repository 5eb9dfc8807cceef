"""Write a file of predictions so that a later process can continue it.

OUT.part                the rows written so far
OUT.part.json           the settings, and how many rows and bytes are finished

Bytes after the finished ones, left by a killed process, are cut off. The finished file is equal to
that of an uninterrupted process.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from contextlib import ExitStack, contextmanager
from typing import IO, TYPE_CHECKING, Any

from plait.data.locks import lock
from plait.data.storage import disk_full_told, write_text
from plait.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from plait.inference.answers.formats import Growing

SAVE_SECONDS = 1.0
"""Seconds between two updates of OUT.part.json; each one waits for the disk."""


class Journal:
    """Files that are written together, and their progress."""

    def __init__(self, formats: Mapping[Path, Growing], settings: Mapping[str, Any]):
        self.formats = formats
        self.settings = json.loads(json.dumps(settings))  # as they will be read back
        self.rows = 0
        """Number of rows written."""
        self.saved_rows = 0
        """Number of rows that a later process would not repeat."""
        self.counts: Counter[str] = Counter()
        """Counts over the written rows, by name."""
        self.is_written = False
        """Whether all rows are written."""
        self._files: dict[Path, IO[bytes]] = {}
        self._saved = time.monotonic()

    @property
    def place(self) -> Path:
        """Path of OUT.part.json."""
        return journal_place(next(iter(self.formats)))

    @contextmanager
    def opened(self, *, resume: bool) -> Iterator[Journal]:
        """Start or continue the files, and lock them for other processes."""
        sizes = self._read() if resume and self.place.exists() else None
        if not resume:
            refuse_leftovers(next(iter(self.formats)))
        with ExitStack() as closing, disk_full_told(self.place):
            for i, path in enumerate(self.formats):
                part = _part(path)
                if self.is_written and not part.exists():  # it is already renamed
                    continue
                if sizes is not None and not part.exists():
                    raise RunError(f"{part} is missing: remove {self.place.name} to start over")
                part.touch()  # opening to write would empty what another process has written
                file = closing.enter_context(part.open("r+b"))
                if not lock(file):
                    raise RunError(f"another process is writing {part}")
                self._files[path] = file
                if sizes is None:
                    file.truncate()
                else:
                    if file.seek(0, os.SEEK_END) < sizes[i]:  # which truncating would pad
                        raise RunError(
                            f"{part} is damaged (too short): remove it and {self.place.name} to "
                            "start over"
                        )
                    file.truncate(sizes[i])
                    file.seek(0, os.SEEK_END)
            if sizes is None:
                for path, begun in self._files.items():
                    begun.write(self.formats[path].head())
                self.save()
            yield self

    def write(self, pieces: Mapping[Path, bytes], num_rows: int, counts: Mapping[str, int]) -> None:
        """Append the bytes of some rows, and add their counts."""
        for path, piece in pieces.items():
            self._files[path].write(piece)
        self.rows += num_rows
        self.counts.update(counts)
        if time.monotonic() - self._saved > SAVE_SECONDS:
            self.save()

    def save(self) -> None:
        """Save the progress, after all bytes are on disk."""
        sizes = []
        for file in self._files.values():
            file.flush()
            os.fsync(file.fileno())
            sizes.append(file.tell())
        state = {
            "settings": self.settings,
            "rows": self.rows,
            "sizes": sizes,
            "counts": self.counts,
            "is_written": self.is_written,
        }
        write_text(self.place, json.dumps(state, indent=1))
        self._saved, self.saved_rows = time.monotonic(), self.rows

    def finish(self) -> None:
        """Rename the files to their final names."""
        if not self.is_written:
            self.is_written = True
            self.save()
        for path, format_ in self.formats.items():
            if path in self._files:
                self._files[path].close()
                format_.finish(_part(path), path)
        self.place.unlink()

    def _read(self) -> list[int]:
        """Read the progress and each file's size, and check that the settings are the same."""
        place = self.place
        try:
            state = json.loads(place.read_text(encoding="utf-8"))
            before, sizes = dict(state["settings"]), [int(size) for size in state["sizes"]]
            self.rows = self.saved_rows = int(state["rows"])
            self.counts, self.is_written = Counter(state["counts"]), bool(state["is_written"])
        except (ValueError, KeyError, TypeError) as error:
            raise RunError(f"{place} is damaged: remove it to start over") from error
        begun = str(_part(next(iter(self.formats))))
        advice = f"continue with the same settings, or remove {place.name} and it to start over"
        refuse_others(before, self.settings, begun, advice)
        return sizes


def journal_place(out: Path) -> Path:
    """Return the path of a file's OUT.part.json."""
    return out.with_name(f"{out.name}.part.json")


def refuse_others(
    before: Mapping[str, Any], now: Mapping[str, Any], begun: str, advice: str
) -> None:
    """Raise RunError if the settings differ from those of the interrupted call."""
    for key in [*now, *before]:
        if before.get(key) != now.get(key):
            what = f"{'other' if key.endswith('s') else 'another'} {key}"
            difference = _tell_difference(key, before.get(key), now.get(key))
            raise RunError(f"{begun} was started with {what} ({difference}); {advice}")


def _tell_difference(key: str, before: Any, now: Any) -> str:
    """Return a readable difference between two values of a setting; hashes are not shown."""
    if key == "model":
        return "its weights, recipe, calibration, precision or device differ"
    if isinstance(before, dict) and isinstance(now, dict):
        if key == "tasks" and before.keys() != now.keys():
            return f"{', '.join(before)}, now {', '.join(now)}"
        part = next(part for part in [*now, *before] if before.get(part) != now.get(part))
        if part == "sha256":
            return f"{now['name']} has changed since"
        return f"{part}: {_brief(before.get(part))}, now {_brief(now.get(part))}"
    return f"{_brief(before)}, now {_brief(now)}"


def refuse_leftovers(out: Path) -> None:
    """Raise an error if there is an interrupted file that can be continued."""
    place = journal_place(out)
    if place.exists():
        raise RunError(
            f"{_part(out)} is from an interrupted prediction; continue with --resume, or remove it "
            f"and {place.name} to start over"
        )


def _part(path: Path) -> Path:
    return path.with_name(f"{path.name}.part")


def _brief(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
