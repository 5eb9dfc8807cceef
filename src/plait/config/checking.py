"""Validate tables; report the first error in one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, get_origin

from pydantic import BaseModel, ValidationError

from plait.errors import RecipeError, nearest, suggest

M = TypeVar("M", bound=BaseModel)


def validate(model: type[M], table: Mapping[str, Any], origin: str) -> M:
    """Build a section from a table; `origin` is its place, for error messages."""
    try:
        # Strict, so that "3" is not a number and true is not 1.
        return model.model_validate(_with_tuples(table), strict=True)
    except ValidationError as error:
        raise RecipeError(_explain(error, model, table, origin)) from error


def _with_tuples(value: Any) -> Any:
    """Return a table with lists replaced by tuples, as strict validation needs."""
    if isinstance(value, Mapping):
        return {k: _with_tuples(v) for k, v in value.items()}
    return tuple(map(_with_tuples, value)) if isinstance(value, list | tuple) else value


# What pydantic puts among the keys for a validator or one side of a union.
_NOT_KEYS = ("function-", "literal[", "constrained-")

_IN_TOML = {
    "model_type": "should be a table",
    "dict_type": "should be a table",
    "tuple_type": "should be a list",
    # A recipe's name, which becomes that of a folder.
    "string_pattern_mismatch": "should have letters from A to Z, digits and . _ - / alone, "
    "and begin with a letter or digit",
}


def _explain(
    error: ValidationError, model: type[BaseModel], table: Mapping[str, Any], origin: str
) -> str:
    """Return the first error in one sentence, with the most similar known key."""
    details = error.errors()
    # Unknown keys first: they often cause the other errors.
    detail = next((d for d in details if d["type"] == "extra_forbidden"), details[0])
    loc = [str(part) for part in detail["loc"] if not str(part).startswith(_NOT_KEYS)]
    key = ".".join(loc)
    if detail["type"] == "extra_forbidden":
        elsewhere = _places_of(loc[-1], model)
        near = suggest(loc[-1], _keys_at(model, loc[:-1]))
        meant = f"; did you mean {' or '.join(elsewhere)}?" if elsewhere else near
        return f"{origin}: {key} is not a setting{meant}"
    if detail["type"] == "missing":
        return f"{origin}: {key} must be set{_other_name(loc, table)}"
    if loc[-1:] == ["[key]"]:
        names = "a name here has letters from A to Z, digits, '-' and '_' alone"
        return f"{origin}: {'.'.join(loc[:-2])} has {detail['input']!r}, and {names}"
    message = _IN_TOML.get(detail["type"]) or _say_plainly(detail["msg"])
    shown = "" if isinstance(detail["input"], dict | BaseModel) else f" = {detail['input']!r}"
    return f"{origin}: {key}{shown}: {message}" if key else f"{origin}: {message}"


def _say_plainly(message: str) -> str:
    """Return a message of pydantic without details for programmers."""
    return message.removeprefix("Value error, ").replace("Input should", "should")


def _other_name(path: list[str], table: Mapping[str, Any]) -> str:
    """Return the name, such as a task's, that a misspelt name in an override was meant for.

    A misspelt name creates a new table, which lacks the required keys.
    """
    names = table.get(path[0])
    if len(path) < 3 or not isinstance(names, Mapping):
        return ""
    near = nearest(path[1], [name for name in names if name != path[1]])
    return f"; or did you mean {path[0]}.{near}?" if near else ""


def _keys_at(model: type[BaseModel], path: list[str]) -> list[str]:
    """Return the keys a table of the recipe may have."""
    here, steps = model, iter(path)
    for step in steps:
        field = here.model_fields.get(step)
        if field is None:  # a place in a list
            continue
        here = _model_in(field.annotation) or here
        if get_origin(field.annotation) is dict:
            next(steps, None)  # a name the user chose, such as a task's
    return list(here.model_fields)


def _places_of(key: str, model: type[BaseModel]) -> list[str]:
    """Return the other places in the recipe that have a key of this name."""
    places = [key] if key in model.model_fields else []
    seen = set()
    for name, field in model.model_fields.items():
        section = _model_in(field.annotation)
        if section is not None and section not in seen and key in section.model_fields:
            seen.add(section)  # tables of one kind: the first is the usual place
            places.append(f"{name}.{'NAME.' if get_origin(field.annotation) is dict else ''}{key}")
    return places


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """Find the section type inside dict[str, X], tuple[X, ...] or X | None."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for inner in getattr(annotation, "__args__", ()):
        if found := _model_in(inner):
            return found
    return None
