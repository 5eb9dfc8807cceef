"""scripts/pin.py reports differences, and its probe covers every registered part."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

SCRIPTS = Path(__file__).parent.parent / "scripts"


def load_script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_differences_and_missing_names_are_reported():
    old = {"a: weights": "1", "b: scores": "x\ny", "c: gone": "2", "d: broken": "ERROR one"}
    new = {"a: weights": "1", "b: scores": "x\nz", "e: more": "3", "d: broken": "ERROR one"}

    lines, counts = load_script("pin").compare(old, new)

    assert counts == {
        "equal": 1,
        "different": 1,
        "only in OLD": 1,
        "only in NEW": 1,
        "failing": 1,
    }
    assert lines == [
        "different: b: scores",
        "    -y",
        "    +z",
        "only in OLD: c: gone",
        "failing: d: broken",
        "ERROR one",
        "only in NEW: e: more",
    ]


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ({"a": "1"}, {"a": "1", "b": "2"}, 0),
        ({"a": "1", "b": "2"}, {"a": "1"}, 1),
        ({"a": "1"}, {"a": "2"}, 1),
        ({"a": "ERROR"}, {"a": "ERROR"}, 1),
        ({}, {}, 1),
    ],
)
def test_the_exit_code(old, new, code, monkeypatch, capsys):
    pin = load_script("pin")
    monkeypatch.setattr(
        pin, "collect_facts", lambda commit, pattern: {"OLD": old, "NEW": new}[commit]
    )
    monkeypatch.setattr("sys.argv", ["pin.py", "OLD", "NEW"])

    assert pin.main() == code
    assert capsys.readouterr().out


def test_every_registered_part_is_pinned():
    probe = load_script("pin_probe")
    families = probe.find_parts().items()
    registered = {f"{family}/{name}" for family, parts in families for name in parts}

    cases = {name.partition("[")[0] for name in probe.vary_parts()}

    assert cases == registered - probe.NOT_PINNED
    assert probe.TABLES["parts"].keys() <= registered
