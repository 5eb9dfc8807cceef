"""Write facts about plait's behaviour as JSON: pin_probe.py OUT [PATTERN]. See pin.py.

A fact is a name and a text: the contents of a file, or the SHA-256 of arrays, weights or answers.
This file makes tiny data and a tiny random BERT; pin.toml lists the recipes, runs and commands.
If you move a module or rename a setting, adapt the section "Access to plait" or pin.toml in the
same commit, and keep the names of the facts.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from fnmatch import fnmatch
from functools import cache, partial
from importlib.util import find_spec
from inspect import Parameter
from io import StringIO
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import numpy as np
import pyarrow as pa
import tomli_w
from pyarrow import csv, parquet
from safetensors.numpy import load_file, save_file

import plait

Facts = dict[str, str]
Table = dict[str, Any]

TABLES: Table = tomllib.loads(Path(__file__).with_name("pin.toml").read_text(encoding="utf-8"))

# --- Access to plait -----------------------------------------------------------------------


def find_parts() -> dict[str, list[str]]:
    """Return the names of plait's own parts, by family."""
    import plait.training.run  # noqa: F401 - imports all families
    from plait.registry import FAMILIES

    def is_own(part: type) -> bool:
        return part.__module__.startswith("plait.")

    return {family: [n for n in parts if is_own(parts[n])] for family, parts in FAMILIES.items()}


def find_tables(family: str, name: str) -> list[Table]:
    """Return settings of a part: the defaults, each other choice, and those in pin.toml."""
    from plait.registry import FAMILIES

    given: list[Table] = TABLES["parts"].get(f"{family}/{name}", [])
    settings = FAMILIES[family].settings(name)
    needed = [s.name for s in settings if s.default is Parameter.empty]
    least = {key: given[0][key] for key in needed}
    tables = [] if needed else [least]
    for setting in settings:
        kind = setting.annotation
        choices = get_args(kind) if get_origin(kind) is Literal else ()
        choices = (True, False) if kind is bool and setting.name not in NEED_OTHERS else choices
        tables += [least | {setting.name: c} for c in choices if c != setting.default]
    return [*tables, *given]


def read_rows(recipe: Path, split: Any) -> Facts:
    """Return the hashes of a split's arrays, by task."""
    from plait.config import read_recipe
    from plait.data.loading import load_data
    from plait.training.starting import find_tokenizer

    config, facts = read_recipe(recipe), {}
    for task, data in load_data(config, find_tokenizer(config), split).items():
        tokens = [(column.ids, column.offsets, column.lengths) for column in data.tokens]
        parts: Table = {"tokens": tokens, "labels": data.labels, "ids": list(data.ids)}
        parts |= {"fingerprints": np.array(data.fingerprints), "held out": data.held_out()}
        digests = {name: digest(value) for name, value in parts.items()}
        facts[f"{split} {task}"] = show({"rows": len(data)} | digests)
    return facts


def draw_weights(recipe: Path) -> str:
    """Return the hash of a model's weights before the first update."""
    from plait.config import read_recipe
    from plait.training.build import build

    return digest(dict(build(read_recipe(recipe)).model.state_dict()))


@contextmanager
def batches_recorded() -> Iterator[list[str]]:
    """Record the task and the row numbers of each training batch."""
    from plait.training.loop import _Feed

    taken: list[str] = []
    plain = _Feed._next

    def record(self: Any, task: str) -> Any:
        batch = plain(self, task)
        size = self.stage.streams[task].batch_size
        end = self.state.cursors[task].batches * size
        taken.append(f"{task} {self.orders[task][1][end - size : end].tolist()}")
        return batch

    _Feed._next = record  # type: ignore[method-assign]
    try:
        yield taken
    finally:
        _Feed._next = plain  # type: ignore[method-assign]


def train_broken(recipe: Path, out: Path, updates: list[int]) -> None:
    """Train, crash right after the given updates, and resume after each crash."""
    from plait.training.listeners import Listener

    class Crash(BaseException):
        """A BaseException, because plait does not catch it."""

    class Crasher(Listener):
        def step(self, record: Any) -> None:
            if record.total_steps in updates:
                updates.remove(record.total_steps)
                raise Crash

    for _ in range(len(updates) + 1):
        try:
            plait.train(recipe, out, resume=out.exists(), listeners=[Crasher()])
        except Crash:
            continue


def show_recipe(name: str) -> Facts:
    """Return all settings of a packaged recipe, or of each member of an ensemble."""
    from plait.config import lists_members, read_ensemble, read_recipe, to_toml

    if lists_members(name):
        ensemble = read_ensemble(name)
        members, how = ensemble.members, {"how": f"{ensemble.how} {ensemble.calibrate}"}
    else:
        members, how = {"toml": read_recipe(name)}, {}
    tables = {member: tomllib.loads(to_toml(config)) for member, config in members.items()}
    return how | {member: show(table) for member, table in tables.items()}


def name_recipes() -> list[str]:
    """Return the names of the packaged recipes that can be trained."""
    from plait.config import list_recipes

    return [name for name, table in list_recipes().items() if "about" in table]


def spell_command(command: str) -> str:
    """Return a command as this version of plait has it; after || stands that of 0.1."""
    now, _, before = command.partition(" || ")
    if find_spec("plait.cli.removed") is not None:
        return now
    return before or re.sub(r"^((?:predict|embed) .*)--out ", r"\1--output ", now)


def run_command(command: str) -> str:
    """Run a plait command in this process and return its standard output."""
    from plait.cli import main

    words = shlex.split(spell_command(command))
    if words[0] == "copy":
        return str(shutil.copytree(words[1], words[2]))
    if words[0] == "torchrun":
        words = [sys.executable, "-m", "torch.distributed.run", *words[1:]]
        return subprocess.run(words, check=True, capture_output=True, text=True).stdout
    with redirect_stdout(StringIO()) as printed, redirect_stderr(StringIO()) as errors:
        try:
            main(words)
        except SystemExit as end:
            if end.code:
                raise RuntimeError(f"exit code {end.code}: {errors.getvalue()}") from end
    return printed.getvalue()


NEED_OTHERS = {"from_tasks", "unseen", "calibrated"}
"""Settings that only work together with other settings; pin.toml sets them."""

NOT_PINNED = {"listener/tensorboard", *(f"task-kind/{kind}" for kind in TABLES["kinds"])}
"""Parts that do not affect training, and the task kinds, which every recipe has."""

# --- Facts as text ------------------------------------------------------------------------

IGNORED_KEYS = {"seconds", "published", "plait", "about", "advice", "detail", "hint", "note"}
"""JSON keys that are not compared: times, versions, prose, and the table [published]."""


def show(value: Any) -> str:
    """Return JSON with one value a line, without the ignored keys."""

    def strip(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: strip(inner) for key, inner in value.items() if key not in IGNORED_KEYS}
        return [strip(inner) for inner in value] if isinstance(value, list) else value

    return json.dumps(strip(value), indent=0, sort_keys=True)


def digest(value: Any) -> str:
    """Return the SHA-256 of arrays, tensors, or nested lists and tables of them."""
    sha = hashlib.sha256()

    def feed(value: Any) -> None:
        value = value.detach().cpu().numpy() if hasattr(value, "detach") else value
        if isinstance(value, np.ndarray):
            sha.update(f"{value.dtype.str}{value.shape}".encode() + value.tobytes())
        elif isinstance(value, Mapping):
            feed([item for key in sorted(value) for item in (key, value[key])])
        elif isinstance(value, list | tuple):
            sha.update(f"[{len(value)}".encode())
            for item in value:
                feed(item)
        else:
            sha.update(f"{value!r};".encode())

    feed(value)
    return sha.hexdigest()


def read_file(path: Path) -> str:
    """Return the contents of a text file, or the hash of the arrays in a binary file."""
    if path.suffix == ".parquet":
        table = parquet.read_table(path)
        return f"{table.schema.remove_metadata()}\n{digest(table.to_pylist())}"
    if path.suffix in (".npy", ".safetensors"):
        return digest(np.load(path) if path.suffix == ".npy" else load_file(path))
    text = path.read_text(encoding="utf-8")
    if path.name == "metrics.jsonl":
        return show([json.loads(line) for line in text.splitlines()])
    readers = {".json": json.loads, ".toml": tomllib.loads}
    return show(readers[path.suffix](text)) if path.suffix in readers else text


def read_folder(folder: Path, *names: str) -> Facts:
    """Return the contents of a folder's files: those with the given names, or all."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {
        str(path.relative_to(folder)): read_file(path)
        for path in paths
        if (path.name in names if names else path.name not in UNREAD)
    }


RUN = ("model.safetensors", "scores.json", "metrics.jsonl", "calibration.json")
UNREAD = ("_manifest.jsonl", "README.md", "tokenizer.json", "vocab.txt")
"""Files that are not compared: they hold times, prose, or copies of the encoder's files."""

# --- Tiny data ----------------------------------------------------------------------------

MOODS = {"bad": "awful dull sad cold", "fair": "plain usual calm", "good": "fine lovely warm kind"}
TOPICS = {"lodging": "room bed", "food": "meal soup", "staff": "host clerk", "money": "price bill"}
THINGS = " ".join(TOPICS.values()).split()
FILLERS = ["very", "rather", "quite", "so", "really", "he", "she", "his", "her", "always"]


def write_rows(path: Path, rows: list[Table]) -> None:
    """Write a file in the format of its ending."""
    table = pa.Table.from_pylist(rows)
    if path.suffix == ".parquet":
        parquet.write_table(table, path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    else:
        delimiter = "\t" if path.suffix == ".tsv" else ","
        csv.write_csv(table, path, csv.WriteOptions(delimiter=delimiter))


def make_rows(task: str, count: int, seed: str) -> list[Table]:
    """Return learnable rows: words decide moods and topics, shared meaning decides pairs."""
    draw, pool = random.Random(f"{task} {seed}"), random.Random("pool")

    def say(draw: random.Random, mood: str, thing: str, most: int = 4) -> str:
        words = ["the", thing, "was", *draw.sample(FILLERS, draw.randint(0, most))]
        return " ".join([*words, draw.choice(MOODS[mood].split()), draw.choice(".!")])

    def choose(draw: random.Random) -> tuple[str, str]:
        return draw.choice(list(MOODS)), draw.choice(THINGS)

    said = [
        [say(pool, *meaning, 1) for _ in range(6)] for meaning in [choose(pool) for _ in range(9)]
    ]
    rows: list[Table] = []
    for i in range(count):
        row: Table = {"id": f"{task[0]}{seed[0]}{i}"}
        one, two = choose(draw), choose(draw)
        if draw.random() < 0.4:
            two = one
        if task == "mood":
            row |= {"text": say(draw, *one), "label": one[0], "source": draw.choice("xyz")}
        elif task == "topics":
            row["text"] = f"{say(draw, *one)} {say(draw, *two)}"
            found = [t for t, words in TOPICS.items() if {one[1], two[1]} & set(words.split())]
            row |= {"topics": ";".join(found)} | {t: int(t in found) for t in TOPICS}
        elif task == "same":
            a = draw.randrange(9 if seed == "train" else 5)
            b = a if one == two else draw.randrange(9)
            row |= {"a": draw.choice(said[a]), "b": draw.choice(said[b]), "label": int(a == b)}
            row["author"] = f"w{draw.randrange(6)}"
        else:
            score = 2.5 * (one[0] == two[0]) + 2.5 * (one[1] == two[1])
            row |= {"a": say(draw, *one), "b": say(draw, *two), "score": score}
            row |= {"first": min(score + draw.choice([0, 0.5]), 5), "second": max(score - 0.5, 0)}
        rows.append(row)
    return rows


def write_data(folder: Path) -> None:
    """Write the data files that pin.toml names."""
    folder.mkdir()
    files = {"mood-train.csv": 46, "same-train.tsv": 62, "topics-train.jsonl": 40}
    for name, count in (files | {"near-train.parquet": 30}).items():
        task, _, ending = name.partition("-train")
        for split, size in (("train", count), ("dev", 20), ("test", 9), ("more", 17)):
            write_rows(folder / f"{task}-{split}{ending}", make_rows(task, size, split))
    stars = [*make_rows("mood", 5, "dev"), *make_rows("mood", 6, "stars")]
    stars = [row | {"label": list(MOODS).index(row["label"]) + 1} for row in stars]
    bad = make_rows("mood", 12, "bad")
    bad[4]["text"] = bad[7]["label"] = ""
    ten = [row | {"score": row["score"] * 2} for row in make_rows("near", 15, "ten")]
    others = {"stars.tsv": stars, "bad.csv": bad, "near-ten.jsonl": ten}
    others["bare.csv"] = [{"text": row["text"]} for row in make_rows("mood", 30, "bare")]
    pairs = [{"a": row["a"], "b": row["b"]} for row in make_rows("near", 30, "bare")]
    for name, rows in (others | {"bare-pairs.csv": pairs}).items():
        write_rows(folder / name, rows)


def write_encoder(folder: Path) -> None:
    """Write a BERT of 2 layers, 16 wide, with random weights, in the Hub's layout."""
    folder.mkdir()
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["the", "was", ".", "!", *" ".join(MOODS.values()).split(), *THINGS, *FILLERS]
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters]
    tokens += [*(f"##{letter}" for letter in letters), *words]
    (folder / "vocab.txt").write_text("\n".join(tokens) + "\n", encoding="utf-8")
    config = TABLES["bert"] | {"vocab_size": len(tokens)}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    shapes: dict[str, tuple[int, ...]] = {"embeddings.LayerNorm": (16,), "pooler.dense": (16, 16)}
    sizes = {"word": len(tokens), "position": 48, "token_type": 2}
    shapes |= {f"embeddings.{name}_embeddings": (size, 16) for name, size in sizes.items()}
    for layer in ("encoder.layer.0.", "encoder.layer.1."):
        names = ("self.query", "self.key", "self.value", "output.dense")
        shapes |= {f"{layer}attention.{name}": (16, 16) for name in names}
        shapes |= {f"{layer}intermediate.dense": (32, 16), f"{layer}output.dense": (16, 32)}
        shapes |= {f"{layer}{name}output.LayerNorm": (16,) for name in ("attention.", "")}
    generator, weights = np.random.default_rng(5), {}
    for name, shape in shapes.items():
        values = generator.normal(float("LayerNorm" in name), 0.2, shape)
        weights[f"{name}.weight"] = values.astype(np.float32)
        if "_embeddings" not in name:
            weights[f"{name}.bias"] = generator.normal(0.0, 0.05, shape[0]).astype(np.float32)
    save_file(weights, folder / "model.safetensors")


# --- Recipes and runs ---------------------------------------------------------------------


def write_recipe(name: str, changes: Table) -> Path:
    """Write the recipe of pin.toml with some settings changed."""
    recipe = json.loads(json.dumps(TABLES["recipe"]))
    for key, value in changes.items():
        *folders, last = key.split(".")
        inner = recipe
        for part in folders:
            inner = inner.setdefault(part, {})
        inner.pop(last) if value == "unset" else inner.update({last: value})
    path = Path("recipes") / f"{name.replace('/', '-')}.toml"
    path.write_text(tomli_w.dumps(recipe), encoding="utf-8")
    return path


def vary_parts() -> dict[str, Table]:
    """Return the recipe changes of every case that trains a registered part, by name."""
    cases = {}
    for family, parts in find_parts().items():
        for name in parts:
            part = f"{family}/{name}"
            if part in NOT_PINNED:
                continue
            changes = json.dumps(TABLES["places"].get(part) or TABLES["places"][family])
            for table in find_tables(family, name):
                shown = ",".join(f"{key}={json.dumps(value)}" for key, value in table.items())
                full = name if family == "architecture" else {"name": name} | table
                placed = json.loads(changes.replace('"PART"', json.dumps(full)))
                cases[f"{part}[{shown}]"] = placed
    return cases


@cache
def find_model(name: str) -> Path:
    """Return the folder of a model in pin.toml; train or build it on first use."""
    how, folder = TABLES["runs"][name], Path("runs") / name
    if isinstance(how, dict):
        find_models(how)
        plait.train(write_recipe(name, how), folder)
        return folder
    for command in how:
        run_command(fill(command, folder))
    return folder


def find_models(changes: Table) -> None:
    """Train or build the models that a recipe names."""
    for name in re.findall(r"runs/([\w-]+)", json.dumps(changes)):
        find_model(name)


def fill(command: str, out: Path) -> str:
    """Replace {out}, {recipe} and {names of models} by folders."""

    def look_up(match: re.Match[str]) -> str:
        known = {"out": out, "recipe": Path("recipes/recipe.toml")}
        return str(known.get(match[1]) or find_model(match[1]))

    return re.sub(r"{([\w-]+)}", look_up, command)


# --- The facts ----------------------------------------------------------------------------


def pin_rows(name: str) -> Facts:
    recipe = write_recipe(f"rows-{name}", TABLES["rows"][name])
    splits = ["train", "dev", "test", *(["unlabelled"] if name == "unlabelled" else [])]
    return {key: text for split in splits for key, text in read_rows(recipe, split).items()}


def pin_run(name: str, changes: Table) -> Facts:
    find_models(changes)
    folder = Path("pinned") / name.replace("/", "-")
    with batches_recorded() as batches:
        plait.train(write_recipe(name, changes), folder)
    return read_folder(folder, *RUN) | {"batches": "\n".join(batches[:30])}


def pin_model(name: str) -> Facts:
    return read_folder(find_model(name), *RUN)


def pin_resume() -> Facts:
    """Interrupt a run twice; check that it ends with the weights of an uninterrupted run."""
    changes = TABLES["places"]["aggregator"] | {"train.aggregator": "gradvac", "save_every": 3}
    changes |= {"train.max_steps": 14, "train.eval_every": 8, "train.average": 0.9}
    train_broken(write_recipe("resume", changes), Path("runs/broken"), [4, 11])
    whole, broken = pin_run("resume", changes), read_folder(Path("runs/broken"), *RUN)
    if wrong := [name for name in broken if broken[name] != whole[name]]:
        raise RuntimeError(f"{wrong} of the resumed run differ from the uninterrupted run")
    return broken


def pin_draws() -> Facts:
    adapters = {"tasks.mood.adapter": "top", "tasks.same.adapter": "lora", "tasks.same.head": "mlp"}
    cases: dict[str, Table] = {"base": {}, "other seed": {"seed": 12345}, "adapters": adapters}
    return {name: draw_weights(write_recipe("draws", c)) for name, c in cases.items()}


def pin_answers(name: str, precision: str) -> Facts:
    """Return exact predictions for a few texts."""
    texts = ["The room was rather lovely !", "the soup was cold", "he was so kind", "Zebra?"]
    questions: dict[str, Any] = {"mood": texts, "topics": texts}
    questions |= {task: list(zip(texts, texts[::-1], strict=True)) for task in ("same", "near")}
    model = plait.load(find_model(name), precision=precision)
    return {
        task: "\n".join(repr((p.value, p.probabilities)) for p in model.predict(task, asked))
        for task, asked in questions.items()
    }


def pin_thresholds() -> Facts:
    model, wanted = plait.load(find_model("base")), {"mood": (0.3, 0.5), "same": (0.2, 0.3)}
    cases = [(task, accuracy) for task, several in wanted.items() for accuracy in several]
    chosen = {f"{task} {part}": model.choose_threshold(task, part) for task, part in cases}
    return {name: repr((t.value, t.accuracy, t.num_answered)) for name, t in chosen.items()}


def pin_command(name: str) -> Facts:
    out = Path("out") / name
    out.mkdir(parents=True)
    command = fill(TABLES["commands"][name], out)
    printed = run_command(command)
    facts = {"json": show(json.loads(printed))} if "--json" in command else {}
    return facts | read_folder(out)


def list_cases() -> dict[str, Callable[[], Facts]]:
    """Return the functions that collect facts, by the prefix of the facts' names."""
    runs = vary_parts() | {f"setting/{name}": c for name, c in TABLES["settings"].items()}
    cases: dict[str, Callable[[], Facts]] = {}
    cases |= {f"rows/{name}": partial(pin_rows, name) for name in TABLES["rows"]}
    cases |= {name: partial(pin_run, name, changes) for name, changes in runs.items()}
    cases |= {"resume": pin_resume, "draws": pin_draws, "thresholds": pin_thresholds}
    for name in TABLES["runs"]:
        cases[f"run/{name}"] = partial(pin_model, name)
        cases[f"answers/{name}"] = partial(pin_answers, name, "run")
    del cases["answers/alone"]  # a folder of runs
    for precision in ("auto", "fp32", "bf16", "int8"):
        cases[f"answers/base-{precision}"] = partial(pin_answers, "base", precision)
    cases |= {f"command/{name}": partial(pin_command, name) for name in TABLES["commands"]}
    return cases | {f"recipe/{name}": partial(show_recipe, name) for name in name_recipes()}


def probe(pattern: str) -> Facts:
    """Return the facts of all cases that match; a case that fails becomes an ERROR fact."""
    write_data(Path("data"))
    write_encoder(Path("encoder"))
    Path("recipes").mkdir()
    write_recipe("recipe", {})
    folds = {"name": "folds", "ensemble": TABLES["ensemble"], "train": {"max_steps": 12}}
    Path("recipes/folds.toml").write_text(tomli_w.dumps(folds), encoding="utf-8")
    facts: Facts = {}
    for name, find in list_cases().items():
        if not fnmatch(name, pattern):
            continue
        try:
            found = find()
        except Exception as error:
            found = {"error": f"ERROR {type(error).__name__}: {error}"}
        facts |= {f"{name}: {part}": text for part, text in found.items()}
    return facts


def main() -> None:
    out, pattern = Path(sys.argv[1]).resolve(), (*sys.argv[2:], "*")[0]
    os.environ["PLAIT_CACHE"] = "cache"
    os.environ.pop("PLAIT_DATA", None)
    import torch

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        facts = probe(pattern)
        os.chdir("/")
    text = json.dumps(facts, indent=0, sort_keys=True)
    out.write_text(text.replace(str(Path(folder).resolve()), "FOLDER"), encoding="utf-8")


if __name__ == "__main__":
    main()
