"""A file of answers under way, which a later process can go on with.

OUT.part                what is written so far
OUT.part.json           what it was begun with, how many rows are done, how many bytes they take

Whatever a killed process left behind those bytes is cut off, so that the finished file is the
one that a process never stopped would have written.
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
"""Between two notes of how far it is: each waits for the disk."""


class Journal:
    """Files that grow together, and how far they are."""

    def __init__(self, formats: Mapping[Path, Growing], settings: Mapping[str, Any]):
        self.formats = formats
        self.settings = json.loads(json.dumps(settings))  # as they will be read back
        self.rows = 0
        """Rows that are done."""
        self.saved_rows = 0
        """Those that a later process would not do again."""
        self.counts: Counter[str] = Counter()
        """What was counted among them."""
        self.is_written = False
        """Whether all rows are."""
        self._files: dict[Path, IO[bytes]] = {}
        self._saved = time.monotonic()

    @property
    def place(self) -> Path:
        """Where it says how far it is."""
        return journal_place(next(iter(self.formats)))

    @contextmanager
    def opened(self, *, resume: bool) -> Iterator[Journal]:
        """Begin the files, or go on with those that are there, and keep others out of them."""
        sizes = self._read() if resume and self.place.exists() else None
        if not resume:
            refuse_leftovers(next(iter(self.formats)))
        with ExitStack() as closing, disk_full_told(self.place):
            for i, path in enumerate(self.formats):
                part = _part(path)
                if self.is_written and not part.exists():  # it has its name already
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
                            f"{part} is shorter than was noted: remove it and {self.place.name} "
                            "to start over"
                        )
                    file.truncate(sizes[i])
                    file.seek(0, os.SEEK_END)
            if sizes is None:
                for path, begun in self._files.items():
                    begun.write(self.formats[path].head())
                self.save()
            yield self

    def write(self, pieces: Mapping[Path, bytes], num_rows: int, counts: Mapping[str, int]) -> None:
        """Add the bytes of some more rows, and what was counted among them."""
        for path, piece in pieces.items():
            self._files[path].write(piece)
        self.rows += num_rows
        self.counts.update(counts)
        if time.monotonic() - self._saved > SAVE_SECONDS:
            self.save()

    def save(self) -> None:
        """Note how far it is, after all that is written is on disk."""
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
        """Give the files their names."""
        if not self.is_written:
            self.is_written = True
            self.save()
        for path, format_ in self.formats.items():
            if path in self._files:
                self._files[path].close()
                format_.finish(_part(path), path)
        self.place.unlink()

    def _read(self) -> list[int]:
        """Read how far it is and each file's size, and check that it is the same that goes on."""
        place = self.place
        try:
            state = json.loads(place.read_text(encoding="utf-8"))
            before, sizes = dict(state["settings"]), [int(size) for size in state["sizes"]]
            self.rows = self.saved_rows = int(state["rows"])
            self.counts, self.is_written = Counter(state["counts"]), bool(state["is_written"])
        except (ValueError, KeyError, TypeError) as error:
            raise RunError(f"{place} is damaged: remove it to start over") from error
        begun = str(_part(next(iter(self.formats))))
        advice = f"go on with the same, or remove {place.name} and it to start over"
        refuse_others(before, self.settings, begun, advice)
        return sizes


def journal_place(out: Path) -> Path:
    """Return where it is noted how far a file is."""
    return out.with_name(f"{out.name}.part.json")


def refuse_others(
    before: Mapping[str, Any], now: Mapping[str, Any], begun: str, advice: str
) -> None:
    """Refuse to go on with other settings than something was begun with."""
    for key in [*now, *before]:
        if before.get(key) != now.get(key):
            what = f"{'other' if key.endswith('s') else 'another'} {key}"
            difference = _tell_difference(key, before.get(key), now.get(key))
            raise RunError(f"{begun} was begun with {what} ({difference}); {advice}")


def _tell_difference(key: str, before: Any, now: Any) -> str:
    """Say what of a setting differs; digests would tell nobody anything."""
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
    """Refuse to begin a file that a stopped process can go on with."""
    place = journal_place(out)
    if place.exists():
        raise RunError(
            f"{_part(out)} is there from a prediction that was stopped; go on with --resume, "
            f"or remove it and {place.name} to start over"
        )


def _part(path: Path) -> Path:
    return path.with_name(f"{path.name}.part")


def _brief(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
