"""Every member of a family, with every choice of its settings, as cases for the contracts.

A test that asks for `loss_table`, `schedule_table`, `aggregator_table`, `regularizer_table`,
`weighting_table`, `stage_kind_table` or `head_table` runs once per case; `capped_table` or
`drawn_table` once per schedule that has a cap or draws its tasks; one that asks for `loss_case`
or `refused_case` once per loss and task it is, or is not, for. A part that registers itself is
tested from then on; one with settings that must be set, or worth testing at other values, names
them below.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

from plait.methods.losses import LOSSES
from plait.methods.schedules import SCHEDULES, Sampled
from plait.registry import FAMILIES
from plait.tasks import TaskSpec

if TYPE_CHECKING:
    import pytest

# (family, part) -> tables of settings, each a case of its own besides the defaults.
WORTH_TRYING: dict[tuple[str, str], list[dict[str, Any]]] = {
    ("loss", "cross-entropy"): [
        {"smoothing": 0.2},
        {"weights": "balanced", "smoothing": 0.1},
        {"weights": "sqrt"},
    ],
    ("loss", "bce"): [{"weights": "balanced"}, {"weights": {"yes": 3.0}}],
    ("loss", "label-bce"): [{"weights": "balanced"}, {"weights": "sqrt"}, {"weights": {"2": 4.0}}],
    ("schedule", "fixed"): [{"steps": 7}, {"probabilities": {"a": 3.0, "b": 1.0}}],
    ("schedule", "sequential"): [{"order": ["b", "a"]}, {"cap": 2}],
    ("schedule", "round-robin"): [{"order": ["b", "a"]}, {"cap": 2}],
    ("schedule", "by-epoch"): [{"order": ["b", "a", "a"]}, {"cap": 2}],
    ("schedule", "simultaneous"): [{"leader": "a"}, {"leader": "b", "restart": ["a"]}],
    ("schedule", "proportional"): [{"steps": 7}],
    ("schedule", "square-root"): [{"steps": 7}],
    ("schedule", "annealed"): [{"steps": 7}],
    ("schedule", "temperature"): [{"temperature": 1.0, "steps": 7}, {"temperature": 3.0}],
    ("regularizer", "smart"): [{"inner_steps": 2}, {"weight": {"mood": 2.0}}],
    ("regularizer", "smart-unit"): [{"inner_steps": 2}, {"weight": {"mood": 2.0}}],
    ("regularizer", "bregman"): [{"weight": {"mood": 2.0}}],
    ("adapter", "lora"): [
        {"targets": ["query", "key", "value", "output"], "rank": 2},
        {"targets": ["output"], "alpha": 4.0, "dropout": 0.2},
    ],
    ("adapter", "pal"): [{"size": 6, "heads": 3, "dropout": 0.0}],
    ("adapter", "top"): [{"layers": 2, "inner": 10, "heads": 4, "dropout": 0.0}],
    ("augmentation", "gender-swap"): [{"share": 0.5}, {"pairs": [["he", "they"], ["a", "the"]]}],
    ("augmentation", "other-order"): [{"share": 0.5}],
    ("augmentation", "closure"): [{"per_group": 1}, {"most": 2, "negatives": True, "largest": 9}],
    ("aggregator", "gradvac"): [{"beta": 0.5}],
    ("aggregator", "cagrad"): [{"c": 0.0}, {"c": 0.9}],
    ("aggregator", "nash-mtl"): [{"max_norm": 0.0}, {"every": 3}],
    ("weighting", "uncertainty"): [{"lr": 0.1}],
    ("weighting", "dwa"): [{"temperature": 0.5}],
    ("weighting", "famo"): [{"gamma": 0.0}],
    ("stage-kind", "simcse"): [{"max_length": 8, "temperature": 0.1}, {"texts": ["pairs"]}],
    ("stage-kind", "simcse-pairs"): [{"threshold": 0.5}, {"texts": ["pairs"]}],
    ("stage-kind", "distill"): [
        {"teacher": "x"},
        {"teacher": "x", "temperature": 4.0, "weight": 1.0},
    ],
    ("stage-kind", "mlm"): [{"rate": 0.3, "max_length": 10}, {"texts": ["pairs"]}],
    ("stage-kind", "fomaml"): [{"inner_steps": 0}],
    ("head", "linear"): [{"features": ["u", "v", "|u-v|", "u*v", "cos"]}],
    ("head", "mlp"): [{"features": ["|u-v|", "cos"], "hidden": 5}],
}

SPECS = [
    TaskSpec(kind="classes", labels=2, text=("text",)),
    TaskSpec(kind="classes", labels=5, text=("text",)),
    TaskSpec(kind="binary", text=("a", "b")),
    TaskSpec(kind="labels", labels=4, text=("text",)),
    TaskSpec(kind="score", range=(0.0, 5.0), text=("a", "b"), inputs="apart"),
    TaskSpec(kind="score", range=(2.0, 3.0), text=("a", "b"), inputs="apart"),
]


def tables_of(family: str) -> list[dict[str, Any]]:
    """Return each part's cases: its defaults, each choice of a setting, what is worth trying."""
    tables = []
    for name in FAMILIES[family]:
        settings = FAMILIES[family].settings(name)
        given = WORTH_TRYING.get((family, name), [])
        needed = [s.name for s in settings if s.default is inspect.Parameter.empty]
        if needed and not given:
            raise AssertionError(f"name settings of {family} {name!r} in WORTH_TRYING")
        least = {"name": name, **{key: given[0][key] for key in needed}}
        tables += [] if needed else [least]
        for setting in settings:
            kind = setting.annotation
            choices = get_args(kind) if get_origin(kind) is Literal else ()
            choices = (True, False) if kind is bool else choices
            others = [choice for choice in choices if choice != setting.default]
            tables += [{**least, setting.name: choice} for choice in others]
        tables += [{"name": name, **table} for table in given]
    return tables


def _show(table: dict[str, Any]) -> str:
    rest = "-".join(f"{key}={value}" for key, value in table.items() if key != "name")
    return f"{table['name']}-{rest}" if rest else table["name"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give the tests their cases."""
    for family in FAMILIES:
        fixture = f"{family.replace('-', '_')}_table"
        if fixture in metafunc.fixturenames:
            metafunc.parametrize(fixture, tables_of(family), ids=_show)
    if "capped_table" in metafunc.fixturenames:
        capped = [table for table in tables_of("schedule") if "cap" in table]
        metafunc.parametrize("capped_table", capped, ids=_show)
    if "drawn_table" in metafunc.fixturenames:
        drawn = [t for t in tables_of("schedule") if issubclass(SCHEDULES[t["name"]], Sampled)]
        metafunc.parametrize("drawn_table", drawn, ids=_show)
    for name, allowed in (("loss_case", True), ("refused_case", False)):
        if name in metafunc.fixturenames:
            cases = [
                (table, spec)
                for table in tables_of("loss")
                for spec in SPECS
                if LOSSES[table["name"]].suits(spec.kind) == allowed
            ]
            ids = [f"{_show(table)}-{spec.kind}" for table, spec in cases]
            metafunc.parametrize(name, cases, ids=ids)
