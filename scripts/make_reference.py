"""Write docs/reference/ out of the sources: commands, recipe keys, parts, errors, Python.

    python scripts/make_reference.py [FOLDER]

What is written follows from the sources alone, not from the terminal, so a test can compare.
"""

from __future__ import annotations

import ast
import inspect
import json
import sys
import textwrap
import types
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import typer
from pydantic import BaseModel

import plait
from plait import config, errors
from plait.cli import app
from plait.cli.list import load_families
from plait.registry import FAMILIES, Registry, Setting

FOLDER = Path(__file__).parents[1] / "docs" / "reference"
WIDTH = 80

# Family -> where its registry and its contract are.
CONTRACTS = {
    "task-kind": ("plait.tasks", "TASK_KINDS", "Kind"),
    "schedule": ("plait.methods.schedules", "SCHEDULES", "Schedule"),
    "loss": ("plait.methods.losses", "LOSSES", "Loss"),
    "head": ("plait.model.heads", "HEADS", "Head"),
    "aggregator": ("plait.methods.aggregators", "AGGREGATORS", "Aggregator"),
    "weighting": ("plait.methods.weighting", "WEIGHTINGS", "Weighting"),
    "regularizer": ("plait.methods.regularizers", "REGULARIZERS", "Regularizer"),
    "adapter": ("plait.model.adapters", "ADAPTERS", "Adapter"),
    "architecture": ("plait.model.encoder", "ARCHITECTURES", "Architecture"),
    "augmentation": ("plait.data.augmentations", "AUGMENTATIONS", "Augmentation"),
    "stage-kind": ("plait.training.stages", "STAGE_KINDS", "StageKind"),
    "listener": ("plait.training.listeners", "LISTENERS", "Listener"),
}

# Tables of a recipe in the order of the page, with the class that reads them.
SECTIONS: list[tuple[str, type[BaseModel]]] = [
    ("The top of the file", config.RunConfig),
    ("[data]", config.DataConfig),
    ("[encoder]", config.EncoderConfig),
    ("[tasks.NAME]", config.TaskConfig),
    ("A data file", config.FileConfig),
    ("[texts.NAME]", config.TextsConfig),
    ("start", config.StartConfig),
    ("[train] and [stage.NAME]", config.StageConfig),
    ("early_stopping", config.EarlyStopping),
    ("[search]", config.SearchConfig),
    ("A range of [search.space]", config.RangeConfig),
    ("[ensemble]", config.MembersConfig),
]

# What the public functions give back, besides the public names themselves.
RETURNED = [
    ("plait.training.run", "Outcome"),
    ("plait.inference.answers.stream", "FileAnswers"),
    ("plait.inference.thresholds", "Threshold"),
    ("plait.inference.scoring", "Scores"),
    ("plait.tasks", "TaskScores"),
]


def main() -> None:
    """Write every page."""
    folder = Path(sys.argv[1]) if sys.argv[1:] else FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8", newline="\n")
        print(folder / name)


def pages() -> dict[str, str]:
    """Return every page by its file's name."""
    load_families()
    made = {
        "cli.md": commands(),
        "recipe.md": recipe_keys(),
        "parts.md": parts(),
        "errors.md": error_tree(),
        "python.md": python_names(),
    }
    note = "<!-- Made by `make docs` (scripts/make_reference.py); do not edit. -->"
    return {name: f"{note}\n\n{text.strip()}\n" for name, text in made.items()}


# --- commands ----------------------------------------------------------------------------


def commands() -> str:
    """Return the help of plait and of each command."""
    root = typer.main.get_command(app)
    lines = [
        "# Commands",
        "",
        "What `plait --help` and `plait COMMAND --help` say. Exit codes are on the page of",
        "[errors](errors.md).",
    ]
    top = root.context_class(root, info_name="plait", terminal_width=WIDTH)
    lines += _command("plait", root.get_help(top))
    for name, command in root.commands.items():
        below = command.context_class(
            command, info_name=name, parent=top, terminal_width=WIDTH, max_content_width=WIDTH
        )
        lines += _command(f"plait {name}", command.get_help(below))
    return "\n".join(lines)


def _command(title: str, text: str) -> list[str]:
    shown = [line.rstrip() for line in text.strip().splitlines()]
    return ["", f"## {title}", "", "```text", *shown, "```"]


# --- recipe ------------------------------------------------------------------------------


def recipe_keys() -> str:
    """Return a table of keys for every table of a recipe."""
    lines = [
        "# Recipe keys",
        "",
        "Every key a recipe may have. A key that is not here fails, with the nearest one named.",
        "[Recipes](../concepts/recipe.md) says how recipes extend one another and are overridden.",
        'A *part* is a name, `schedule = "round-robin"`, or a table of its name and settings,',
        '`schedule = { name = "round-robin", together = true }`; [parts](parts.md) lists them.',
    ]
    for title, section in SECTIONS:
        documented = _attribute_docs(section)
        hints = get_type_hints(section, include_extras=True)
        about = inspect.cleandoc(section.__doc__ or "")
        lines += ["", f"## {title}", "", about, ""]
        lines += ["| key | type | default | meaning |", "|---|---|---|---|"]
        for key, field in section.model_fields.items():
            kind = ", ".join([_show_type(hints[key]), *_bounds(field.metadata)])
            default = "must be set" if field.is_required() else _show_default(field.default)
            lines.append(_row(f"`{key}`", kind, default, documented[key]))
    lines += ["", "`extends` stands at the top of the file as well: one recipe, or a list of them,"]
    lines += ["that this one is laid over."]
    return "\n".join(lines)


def _attribute_docs(owner: type) -> dict[str, str]:
    """Return the strings that stand below a class's attributes, those of its bases included."""
    found: dict[str, str] = {}
    for cls in reversed(owner.__mro__):
        if not cls.__module__.startswith("plait"):
            continue
        body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0].body
        for node, below in pairwise(body):
            if (
                isinstance(node, ast.AnnAssign)
                and isinstance(node.target, ast.Name)
                and isinstance(below, ast.Expr)
                and isinstance(below.value, ast.Constant)
            ):
                found[node.target.id] = " ".join(str(below.value.value).split())
    return found


def _show_type(hint: Any) -> str:
    """Write a type in words."""
    if hint == config.Part:
        return "part"
    if hint == config.Files:
        return "[data file](#a-data-file), or a list of them"
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        inner = next((m for m in args[1:] if hasattr(m, "metadata")), None)
        return ", ".join([_show_type(args[0]), *_bounds(inner.metadata if inner else [])])
    if origin is Literal:
        return " or ".join(f"`{json.dumps(value)}`" for value in args)
    if origin in (Union, types.UnionType):
        return ", or ".join(_show_type(arg) for arg in args if arg is not type(None))
    if origin is tuple and args[1:] == (Ellipsis,):
        inner = _show_type(args[0])
        return f"list of {inner if inner.startswith('`') else _plural(inner)}"
    if origin is tuple:
        return f"list of {len(args)} {_plural(_show_type(args[0]))}"
    if origin is dict and args[1] == config.Values:
        return "table of values, or of lists of them"
    if origin is dict:
        return f"table of {_plural(_show_type(args[1]))}"
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        title = next(title for title, section in SECTIONS if section is hint)
        return f"[table](#{_anchor(title)})"
    return {str: "text", int: "whole number", float: "number", bool: "true or false"}.get(
        hint, "table" if origin is dict else "anything"
    )


def _plural(word: str) -> str:
    if word == "anything":
        return "settings"
    for one, many in (("[table]", "[tables]"), ("table of ", "tables of ")):
        if word.startswith(one):
            return word.replace(one, many, 1)
    head, comma, rest = word.partition(",")
    return f"{head}s{comma}{rest}"


def _bounds(metadata: list[Any]) -> list[str]:
    """Write a field's limits in words."""
    words = {"ge": "{} or more", "gt": "above {}", "le": "at most {}", "lt": "below {}"}
    shown = []
    for limit in metadata:
        for name, text in words.items():
            value = getattr(limit, name, None)
            if value is not None:
                shown.append(text.format(value))
    return shown


def _show_default(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, BaseModel):
        return "its defaults"
    return f"`{_toml(value)}`"


def _toml(value: Any) -> str:
    """Write a value as TOML has it."""
    if isinstance(value, dict):
        inside = ", ".join(f"{key} = {_toml(item)}" for key, item in value.items())
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value, ensure_ascii=False)


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _anchor(title: str) -> str:
    kept = "".join(c for c in title.lower() if c.isalnum() or c in " -_")
    return kept.strip().replace(" ", "-")


# --- parts -------------------------------------------------------------------------------


def parts() -> str:
    """Return every family: its contract, then its members with their settings."""
    lines = [
        "# Parts",
        "",
        "What a recipe can name, by family. `plait list` shows the same on the command line.",
        "[A part of your own](../how-to/own-part.md) registers itself in the same way.",
    ]
    missing = FAMILIES.keys() - CONTRACTS.keys()
    assert not missing, f"say in CONTRACTS where these families are: {sorted(missing)}"
    for family, (module, name, contract) in CONTRACTS.items():
        registry = FAMILIES[family]
        base = getattr(import_module(module), contract)
        lines += ["", f"## {family}", "", f"*{registry.about}*", ""]
        lines += ["```python", f"from {module} import {name}, {contract}", "```", ""]
        lines += [inspect.cleandoc(base.__doc__), ""]
        lines += _members(base)
        lines += _registered(registry)
    return "\n".join(lines)


def _registered(registry: Registry[Any]) -> list[str]:
    lines = []
    for name in registry:
        lines += ["", f"### {registry.family} {name}", "", inspect.cleandoc(registry[name].__doc__)]
        settings = registry.settings(name)
        if settings:
            lines += ["", "| setting | type | default |", "|---|---|---|"]
            lines += [_row(f"`{s.name}`", _show_type(s.annotation), _given(s)) for s in settings]
    return lines or ["", "None yet: the family is there for yours."]


def _given(setting: Setting) -> str:
    if setting.default is inspect.Parameter.empty:
        return "must be set"
    return _show_default(setting.default)


# --- errors ------------------------------------------------------------------------------


def error_tree() -> str:
    """Return the tree of errors with what each means."""
    intro, _, tree = inspect.cleandoc(errors.__doc__ or "").partition("\n\n")
    lines = ["# Errors", "", intro, "", "```text", tree, "```", ""]
    lines += [
        "On the command line an error is one sentence on standard error, `plait: ...`, without a",
        "traceback, and the exit code says what kind it was. From Python it is an exception; all",
        "of them are a `plait.PlaitError`.",
        "",
        "| error | is a | exit code | meaning |",
        "|---|---|---|---|",
    ]
    for cls in vars(errors).values():
        if isinstance(cls, type) and issubclass(cls, errors.PlaitError):
            parent = cls.__mro__[1].__name__
            about = inspect.cleandoc(cls.__doc__ or "")
            lines.append(_row(f"`{cls.__name__}`", f"`{parent}`", str(cls.exit_code), about))
    return "\n".join(lines)


# --- Python ------------------------------------------------------------------------------


def python_names() -> str:
    """Return the public names, and what they give back."""
    lines = [
        "# Python",
        "",
        "Everything `import plait` offers. Importing plait is quick; torch is imported when a name",
        "that needs it is first used.",
        "",
        "```python",
        inspect.cleandoc(plait.__doc__ or "").partition("\n\n")[2],
        "```",
    ]
    for name in sorted(plait.__all__, key=str.lower):
        if not name.startswith("__"):
            lines += _documented(f"plait.{name}", getattr(plait, name))
    lines += ["", "## What comes back", ""]
    lines += ["These have no public name of their own; functions above return them."]
    for module, name in RETURNED:
        lines += _documented(name, getattr(import_module(module), name), level="###")
    lines += ["", "A recipe that was read is a `RunConfig`; its attributes are the"]
    lines += ["[recipe's keys](recipe.md)."]
    return "\n".join(lines)


def _documented(title: str, thing: Any, level: str = "##") -> list[str]:
    about = inspect.cleandoc(thing.__doc__ or "")
    if inspect.isfunction(thing):
        return ["", f"{level} {title}", "", *_signature(thing), "", about]
    return ["", f"{level} {title}", "", about, "", *_members(thing)]


def _members(owner: type) -> list[str]:
    """List a class's attributes, then its methods, as their sources have them."""
    documented = _attribute_docs(owner)
    fields: dict[str, str] = {}
    methods: dict[str, str] = {}
    for cls in reversed(owner.__mro__):
        if not cls.__module__.startswith("plait"):
            continue
        for name, written in inspect.get_annotations(cls).items():
            about = f": {documented[name]}" if name in documented else ""
            if not name.startswith("_"):
                fields[name] = f"- `{name}: {_plain(written)}`{about}"
        for name, member in vars(cls).items():
            plain = getattr(member, "__func__", member)  # a classmethod's own function
            if name.startswith("_") and name != "__call__":
                continue
            if isinstance(plain, property) and plain.fget and plain.fget.__doc__:
                methods[name] = f"- `{name}`: {_one_line(plain.fget.__doc__)}"
            elif inspect.isfunction(plain) and plain.__doc__:
                methods[name] = f"- `{_call(name, plain)}`: {_one_line(plain.__doc__)}"
    return [*fields.values(), *methods.values()]


def _plain(annotation: str) -> str:
    """Leave out that an attribute is the class's: its reader sets it all the same."""
    if annotation.startswith("ClassVar["):
        return annotation.removeprefix("ClassVar[").removesuffix("]")
    return annotation


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _signature(function: Any) -> list[str]:
    """Show a function's head as its source has it."""
    source = textwrap.dedent(inspect.getsource(function))
    body = ast.parse(source).body[0].body[0]
    head = source.splitlines()[: body.lineno - 1]
    # not as Python: a formatter of Markdown would lay it out in another way
    return ["```text", *head[:-1], head[-1].removesuffix(":"), "```"]


def _call(name: str, function: Any) -> str:
    """Write a function's head as its source has it, without self."""
    node = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    assert isinstance(node, ast.FunctionDef)
    if node.args.args and node.args.args[0].arg in ("self", "cls"):
        del node.args.args[0]
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"{name}({ast.unparse(node.args)}){returns}"


if __name__ == "__main__":
    main()
