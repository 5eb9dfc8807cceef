"""Write a RunConfig as TOML, and list the differences of two."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tomli_w

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from plait.config.sections import RunConfig


def to_toml(config: RunConfig) -> str:
    """Return the resolved recipe as TOML: every setting, including defaults."""
    return tomli_w.dumps(_without_none(config.model_dump(mode="json")))


def differences(
    old: RunConfig,
    new: RunConfig,
    is_same: Callable[[str, Any, Any], bool] = lambda *_: False,
) -> list[str]:
    """List `key: old -> new` for every setting in which two recipes differ.

    `is_same` may say of a key and two values, both set, that they mean the same.
    """
    a, b = list_settings(old), list_settings(new)

    def show(flat: Mapping[str, Any], key: str) -> str:
        return repr(flat[key]) if key in flat else "unset"

    return [
        f"{key}: {show(a, key)} -> {show(b, key)}"
        for key in sorted(a.keys() | b.keys())
        if a.get(key) != b.get(key) and not (key in a and key in b and is_same(key, a[key], b[key]))
    ]


def list_settings(config: RunConfig) -> dict[str, Any]:
    """Return all settings that are not None, by dotted key."""
    return flatten(_without_none(config.model_dump(mode="json")))


def flatten(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the values of a table by dotted key."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, dict):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_none(v) for k, v in value.items() if v is not None}
    if isinstance(value, list):
        return [_without_none(v) for v in value]
    return value
