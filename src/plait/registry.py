"""Families of parts: register one under a name, build it from a recipe's table, list them all.

A part's settings are the keyword-only parameters of its constructor; what comes before
them is context that the builder supplies. So a new technique is one class in one file:

    @SCHEDULES.register("round-robin")
    @dataclass(kw_only=True)
    class RoundRobin: ...

Built-in parts and a user's own register through the same door.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
import typing
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from zlib import crc32

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import to_json

from plait.errors import RecipeError, suggest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

T = TypeVar("T")

FAMILIES: dict[str, Registry[Any]] = {}


@dataclass(frozen=True, slots=True)
class Setting:
    """One keyword-only parameter of a part."""

    name: str
    annotation: Any
    default: Any
    """`inspect.Parameter.empty` when the recipe must give it."""

    def show(self) -> str:
        """Write it as `name: type = default`."""
        kind = self.annotation
        shown = kind.__name__ if isinstance(kind, type) and not typing.get_args(kind) else str(kind)
        shown = shown.replace("typing.", "")
        if self.default is inspect.Parameter.empty:
            return f"{self.name}: {shown} (must be set)"
        return f"{self.name}: {shown} = {self.default!r}"


class Registry(Generic[T]):
    """The parts of one family, by name."""

    def __init__(self, family: str, about: str):
        self.family, self.about = family, about
        self._parts: dict[str, type[T]] = {}
        FAMILIES[family] = self

    def register(self, name: str) -> Callable[[type[T]], type[T]]:
        """Make a class known under `name` (class decorator)."""

        def keep(part: type[T]) -> type[T]:
            known = self._parts.get(name)
            if known is not None and not _gives_way(known, part):
                raise RecipeError(
                    f"{self.family} {name!r} is registered twice: by {_find_home(known)} and "
                    f"{_find_home(part)}"
                )
            # A dataclass without a docstring is given its signature for one.
            doc = (part.__doc__ or "").strip()
            if not doc or doc.startswith(f"{part.__name__}("):
                raise RecipeError(f"{self.family} {name!r} has no docstring to list it by")
            self._parts[name] = part
            return part

        return keep

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._parts))

    def __getitem__(self, name: str) -> type[T]:
        if name not in self._parts:
            raise RecipeError(f"there is no {self.family} {name!r}{suggest(name, self._parts)}")
        return self._parts[name]

    def settings(self, name: str) -> list[Setting]:
        """Return what a recipe may set on a part, in order."""
        part = self[name]
        keywords = [
            p
            for p in inspect.signature(part).parameters.values()
            if p.kind is inspect.Parameter.KEYWORD_ONLY
        ]
        # Only the settings' types are looked up: those of the context before them may be
        # imported for the type checker alone.
        asked = {p.name: p.annotation for p in keywords if p.annotation is not p.empty}
        # An inherited setting is written in the words of its base's module.
        scope: dict[str, Any] = {}
        for base in reversed(part.__mro__):
            scope |= vars(sys.modules[base.__module__]) if base.__module__ in sys.modules else {}
        scope |= getattr(part.__init__, "__globals__", {})
        try:
            hints = typing.get_type_hints(SimpleNamespace(__annotations__=asked), scope)
        except NameError as error:
            raise RecipeError(
                f"{self.family} {name!r}: the type of a setting cannot be looked up: {error}"
            ) from error
        return [Setting(p.name, hints.get(p.name, Any), p.default) for p in keywords]

    def describe(self, name: str) -> str:
        """Return the first line of a part's docstring."""
        return inspect.cleandoc(self[name].__doc__ or "").splitlines()[0]

    def validate(
        self, table: str | Mapping[str, Any], where: str
    ) -> tuple[type[T], dict[str, Any]]:
        """Turn a name or a table with `name` into a part's class and its checked settings.

        `where` is the recipe key it came from, for the error.
        """
        table = {"name": table} if isinstance(table, str) else dict(table)
        name = table.pop("name", None)
        if not isinstance(name, str):
            raise RecipeError(f"{where} needs a name{suggest('', self._parts)}")
        if name not in self._parts:
            raise RecipeError(f"{where}: no {self.family} {name!r}{suggest(name, self._parts)}")
        known = {s.name: s for s in self.settings(name)}
        checked = {}
        for key, value in table.items():
            if key not in known:
                raise RecipeError(
                    f"{where}.{key} is not a setting of {self.family} {name!r}{suggest(key, known)}"
                )
            checked[key] = _check(known[key].annotation, value, f"{where}.{key}")
        for setting in known.values():
            if setting.default is inspect.Parameter.empty and setting.name not in checked:
                raise RecipeError(f"{where}.{setting.name} must be set for {self.family} {name!r}")
        return self[name], checked

    def bind(self, table: str | Mapping[str, Any], where: str) -> Part[T]:
        """Check a part's name and settings, and return what builds it."""
        return Part(*self.validate(table, where), where)

    def build(self, table: str | Mapping[str, Any], where: str, *context: Any) -> T:
        """Build a part from a recipe's name or table, after its context."""
        return self.bind(table, where).build(*context)


@dataclass(frozen=True, slots=True)
class Part(Generic[T]):
    """A part whose settings are checked. One with memory is built anew for each run."""

    cls: type[T]
    settings: Mapping[str, Any]
    where: str
    """Key of the recipe, for errors."""

    def build(self, *context: Any) -> T:
        """Build the part; a ValueError becomes a RecipeError that names the key."""
        try:
            return self.cls(*context, **self.settings)
        except ValueError as error:
            raise RecipeError(f"{self.where}: {error}") from error


def _check(annotation: Any, value: Any, where: str) -> Any:
    try:
        # Lists of TOML become tuples where a part asks for one, which strictness allows in
        # JSON; nothing else is bent.
        config = ConfigDict(strict=True, allow_inf_nan=False, arbitrary_types_allowed=True)
        return TypeAdapter(annotation, config=config).validate_json(to_json(value))
    except ValidationError as error:
        first = error.errors()[0]
        raise RecipeError(f"{where} = {value!r}: {first['msg']}") from error


# --- files of users ----------------------------------------------------------------------

_PLUGIN = "plait_plugin_"
"""How the modules of users' files are called, before what they are called themselves."""
_at_hand: set[str] = set()
"""Modules of the recipe whose files were run last."""


_allowed: ContextVar[frozenset[Path] | None] = ContextVar("allowed plugins", default=None)
"""The only plugins that may run; None for any."""


@contextmanager
def only_plugins(paths: Iterable[Path]) -> Iterator[None]:
    """Refuse every plugin but these inside, whatever a recipe names."""
    token = _allowed.set(frozenset(path.resolve() for path in paths))
    try:
        yield
    finally:
        _allowed.reset(token)


def load_plugins(paths: Iterable[str]) -> None:
    """Run the Python files in a recipe's `plugins`.

    Its parts replace parts of the same names from another recipe's plugins: runs of two versions
    of a file can be loaded one after the other.
    """
    _at_hand.clear()
    allowed = _allowed.get()
    for path in map(Path, paths):
        if allowed is not None and path.resolve() not in allowed:
            raise RecipeError(f"its plugin {path} is code; allow it with --plugins {path}")
        load_plugin(path)


def _gives_way(known: type, part: type) -> bool:
    """Say whether a part may take the name of one that is there: its own file's, run again.

    Or that of a file that the recipe at hand does not name.
    """
    home = known.__module__
    return home == part.__module__ or (home.startswith(_PLUGIN) and home not in _at_hand)


def _find_home(part: type) -> str:
    """Return the file that a user's part is from, or the module of one of plait's."""
    home = part.__module__
    return str(sys.modules[home].__file__) if home.startswith(_PLUGIN) else home


def load_plugin(path: Path) -> None:
    """Run a user's file so that the parts in it register themselves."""
    if not path.is_file():
        raise RecipeError(f"plugins names {path}, which is not a file")
    # By its place as well: two folders may have a file of this name.
    name = f"{_PLUGIN}{path.stem}_{crc32(str(path.resolve()).encode()):08x}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise RecipeError(f"plugins names {path}, which is not a Python file (.py)")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    _at_hand.add(name)
    try:
        spec.loader.exec_module(module)
    except RecipeError:
        raise
    except Exception as error:
        raise RecipeError(f"plugin {path} fails: {type(error).__name__}: {error}") from error
