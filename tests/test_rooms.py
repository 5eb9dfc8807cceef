"""The order of the rooms: a module imports only from rooms before its own."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import plait

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PACKAGE = Path(plait.__file__).parent

ROOMS = [
    "errors",
    "types",
    "registry",
    "tasks",
    "config",
    "data",
    "model",
    "methods",
    "inference",
    "training",
    "analysis",
    "export",
    "scale",
    "serve",
    "cli",
    "__main__",
]
LEVEL = {room: level for level, room in enumerate(ROOMS)}

# What makes `plait --help` slow.
HEAVY = {"torch", "pyarrow", "numpy", "transformers", "tokenizers", "matplotlib"}
HEAVY |= {"sklearn", "scipy", "jinja2"}
LIGHT_ROOMS = {"errors", "types", "registry", "cli"}


def modules() -> dict[str, Path]:
    """Every module by its dotted name, the package's own __init__ apart."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    del found["plait"]
    return found


def nodes(tree: ast.AST, *, functions: bool) -> Iterator[ast.AST]:
    """Walk what is run: not TYPE_CHECKING blocks, and functions only if asked."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            for other in child.orelse:
                yield other
                yield from nodes(other, functions=functions)
            continue
        if not functions and isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        yield child
        yield from nodes(child, functions=functions)


@cache
def parse(source: str) -> ast.Module:
    """Parse a module, once for all rules."""
    return ast.parse(source)


def imported(source: str, module: str, *, is_package: bool, functions: bool = True) -> set[str]:
    """Return the dotted names a module's source imports, relative ones resolved."""
    names = set()
    for node in nodes(parse(source), functions=functions):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            up = node.level - 1 if is_package else node.level
            parts = module.split(".")
            above = parts[: len(parts) - up] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            # `from plait import data` names a room; `from plait.data import x` may or may not.
            names |= {f"{base}.{alias.name}" for alias in node.names}
    return names


def upward(source: str, module: str, *, is_package: bool = False) -> list[str]:
    """Return the imports of a module that its room may not make."""
    own = module.split(".")[1]
    bad = []
    for name in sorted(imported(source, module, is_package=is_package)):
        parts = name.split(".")
        if parts[0] != "plait":
            continue
        room = parts[1] if len(parts) > 1 else ""
        if room == own or room == "__version__":
            continue
        # The public door opens onto every room, so coming in by it is upward as well.
        if room not in LEVEL or LEVEL[room] >= LEVEL[own]:
            bad.append(f"{module} imports {name}")
    return bad


def heavy(source: str, module: str, *, is_package: bool = False) -> list[str]:
    """Return the slow packages a module imports as soon as it is imported itself."""
    names = imported(source, module, is_package=is_package, functions=False)
    return sorted({name.split(".")[0] for name in names} & HEAVY)


def prints(source: str) -> list[int]:
    """Return the lines that call print."""
    return [
        node.lineno
        for node in ast.walk(parse(source))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "print"
    ]


MODULES = modules()


def find(rule: Callable[..., list[Any]]) -> list[Any]:
    """Return what a rule finds in all modules: it takes source, module and whether a package."""
    found = []
    for module, path in MODULES.items():
        source = path.read_text(encoding="utf-8")
        is_package = path.name == "__init__.py"
        found += [(module, what) for what in rule(source, module, is_package=is_package)]
    return found


def test_every_module_has_a_room():
    assert [module for module in MODULES if module.split(".")[1] not in LEVEL] == []


def test_imports_go_up_the_list_only():
    assert find(upward) == []


def test_only_the_command_line_prints():
    found = find(lambda source, *_, **__: prints(source))
    assert [(module, line) for module, line in found if module.split(".")[1] != "cli"] == []


def test_light_rooms_import_nothing_heavy():
    found = find(heavy)
    assert [(m, name) for m, name in found if m.split(".")[1] in LIGHT_ROOMS] == []


def test_scikit_learn_and_scipy_are_imported_inside_functions():
    """They take a second, and most commands do not need them."""
    assert [(m, name) for m, name in find(heavy) if name in ("sklearn", "scipy")] == []


def test_every_module_has_a_docstring():
    sources = {m: path.read_text(encoding="utf-8") for m, path in MODULES.items()}
    assert [m for m, source in sources.items() if not ast.get_docstring(parse(source))] == []


def test_there_is_no_utils():
    assert [m for m in MODULES if m.rsplit(".", 1)[-1] in ("utils", "util", "helpers")] == []


def test_the_command_line_comes_up_without_anything_heavy():
    """The rule above sees one file at a time; this sees what they pull in together."""
    code = f"import sys, plait.cli; print(*sorted({HEAVY!r} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


# --- these tests can fail ----------------------------------------------------------------


def test_the_walk_finds_the_modules():
    assert {"plait.errors", "plait.config", "plait.data", "plait.cli"} <= MODULES.keys()


def test_an_upward_import_is_seen():
    for source, module in [
        ("import plait.cli", "plait.errors"),
        ("from plait import train", "plait.data.read"),
        ("from plait.training.loop import run", "plait.model.heads"),
        ("from ..train import loop", "plait.model.heads"),
        ("def f():\n    from plait.training.runs import train", "plait.inference.predictor"),
        ("class A:\n    def f(self):\n        import plait.cli.train", "plait.inference.predictor"),
        ("try:\n    import plait.cli\nexcept ImportError:\n    pass", "plait.inference.predictor"),
        ("if TYPE_CHECKING:\n    pass\nelse:\n    import plait.cli", "plait.inference.predictor"),
        ("from plait.methods.schedules import RoundRobin", "plait.model.heads"),
        ("from plait import Predictor", "plait.training.loop"),
        ("import plait", "plait.training.loop"),
        ("from plait.nowhere import x", "plait.cli.train"),
    ]:
        assert len(upward(source, module)) == 1, (source, module)


def test_a_good_import_is_let_through():
    for source, module in [
        ("from plait.errors import DataError", "plait.data.read"),
        ("from plait import errors", "plait.data.read"),
        ("from plait.data.tokens import x", "plait.data.read"),
        ("from .tokens import x", "plait.data.read"),
        ("from plait import __version__", "plait.training.checkpoint"),
        ("if TYPE_CHECKING:\n    from plait.cli import x", "plait.errors"),
        ("import torch, plaited.cli", "plait.errors"),
    ]:
        assert upward(source, module) == [], (source, module)


def test_relative_imports_of_a_package_start_in_it():
    assert upward("from .read import x", "plait.data", is_package=True) == []
    assert upward("from ..cli import x", "plait.data", is_package=True) != []


def test_heavy_imports_are_seen_at_module_level_only():
    assert heavy("import torch.nn\nfrom numpy import array", "plait.config") == ["numpy", "torch"]
    assert heavy("class A:\n    import pyarrow", "plait.config") == ["pyarrow"]
    assert heavy("def f():\n    import torch", "plait.config") == []
    assert heavy("if TYPE_CHECKING:\n    import torch", "plait.config") == []


def test_prints_are_seen():
    assert prints("x = 1\ndef f():\n    print(x)\n'print(x)'") == [3]
