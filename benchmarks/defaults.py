"""Measure plait without settings beside simple baselines and peers, on tasks12.

    python benchmarks/defaults.py run --data DIR --who plait-draft --out records.jsonl
    python benchmarks/defaults.py summary records.jsonl
    python benchmarks/defaults.py page      # docs/defaults.md from benchmarks/records/defaults

`run` draws a training set for each task, size and seed, trains the contender (contenders.py has
them all), scores every dev row and appends one JSON line. Lines that FILE has already are skipped,
so an interrupted run continues. SetFit is a package of its own: `pip install setfit==1.2.0`.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing as mp
import os
import queue
import subprocess
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any
from zlib import crc32

import defaults_search
import numpy as np
from contenders import (
    CONTENDERS,
    PRESETS,
    SIMPLE,
    Row,
    Setup,
    Task,
    applies,
    labels_of,
    prepare,
    read_rows,
    train_drafts,
)

ROOT = Path(__file__).parents[1]
RECORDS = Path(__file__).parent / "records" / "defaults"
PAGE = ROOT / "docs" / "defaults.md"

Record = dict[str, Any]

TASKS = {
    task.name: task
    for task in (
        *(Task("feeling", "classes"), Task("library", "classes"), Task("assistant", "classes")),
        *(Task("spam", "binary", metric="macro_f1"), Task("opinion", "binary")),
        *(Task("polarity", "binary"), Task("stance", "classes", ("text", "topic"))),
        Task("valence", "score", label="score", metric="pearson"),
        Task("difficulty", "score", ("word", "sentence"), "score", "pearson"),
        Task("reactions", "labels", metric="micro_f1"),
        Task("follows", "classes", ("premise", "hypothesis")),
        Task("samewords", "binary", ("sentence1", "sentence2")),
    )
}
SIZES = ("8c", "16c", "100", "300", "1000", "whole")
JOINT = "plait-joint"
ANY = "any"
"""Encoder of contenders that have none."""


@dataclass(frozen=True)
class Job:
    """One training: its records share everything but the task."""

    who: str
    name: str
    encoder: str
    tasks: tuple[str, ...]
    """One, except for plait-joint."""
    size: str
    seed: int
    overrides: tuple[str, ...]
    data: Path

    def keys(self) -> set[str]:
        """Return what identifies the records."""
        return {_key(self.record(task)) for task in self.tasks}

    def record(self, task: str) -> Record:
        """Return what a record says of the job."""
        joint = {"together": list(self.tasks)} if self.who == JOINT else {}
        encoder = ANY if self.who == "tfidf" else Path(self.encoder).name
        settings = {"size": self.size, "seed": self.seed, "overrides": list(self.overrides)}
        found = {"who": self.who, "name": self.name, "encoder": encoder, "task": task}
        return found | settings | joint


def _key(record: Record) -> str:
    parts = ("who", "name", "encoder", "task", "size", "seed", "overrides", "together")
    return json.dumps([record.get(part) for part in parts])


# --- drawing and scoring -----------------------------------------------------------------


def draw(rows: Sequence[Row], task: Task, size: str, seed: int) -> list[Row]:
    """Return a training set: the larger ones of a seed contain the smaller ones of their kind.

    "8c" is 8 rows a class, 8 * 8 rows of a task with a score, and 8 rows of each label where rows
    have several; "300" is 300 random rows; "whole" is all. Rows keep the file's order.
    """
    if size == "whole":
        return list(rows)
    order = np.random.default_rng([seed, crc32(task.name.encode())]).permutation(len(rows))
    if not size.endswith("c"):
        return [rows[i] for i in sorted(order[: int(size)])]
    each = int(size.removesuffix("c"))
    if task.kind == "score":
        return [rows[i] for i in sorted(order[: 8 * each])]
    chosen: dict[str, list[int]] = defaultdict(list)
    for i in order.tolist():
        for label in labels_of(task, rows[i]):
            if len(chosen[label]) < each:
                chosen[label].append(i)
    return [rows[i] for i in sorted({i for some in chosen.values() for i in some})]


def score(task: Task, labels: Sequence[str], rows: Sequence[Row], answers: Sequence[Any]) -> float:
    """Return the task's metric; 0 for a correlation with something constant."""
    from sklearn.metrics import f1_score

    true = [row.label for row in rows]
    if task.metric == "pearson":
        numbers = np.asarray(answers, dtype=float)
        if not np.isfinite(numbers).all() or np.ptp(numbers) == 0:
            return 0.0
        return float(np.corrcoef([float(label) for label in true], numbers)[0, 1])
    if task.metric == "micro_f1":
        sets = [set(labels_of(task, row)) for row in rows]
        hits = sum(len(a & b) for a, b in zip(sets, answers, strict=True))
        found = sum(len(a) + len(b) for a, b in zip(sets, answers, strict=True))
        return 2 * hits / found if found else 0.0
    if task.metric == "macro_f1":
        return float(f1_score(true, answers, labels=labels, average="macro", zero_division=0))
    return float(np.mean([a == b for a, b in zip(true, answers, strict=True)]))


def run_job(job: Job) -> list[Record]:
    """Train and score; a failure becomes records with an error."""
    with tempfile.TemporaryDirectory(prefix="defaults-") as folder:
        os.environ["PLAIT_CACHE"] = str(Path(folder) / "cache")
        start = time.perf_counter()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return _train_and_score(job, Path(folder))
        except Exception as error:  # the other jobs go on
            told: Record = {"error": f"{type(error).__name__}: {error}"[:500]}
            told["seconds"] = round(time.perf_counter() - start, 2)
            return [job.record(task) | told | _where() for task in job.tasks]


def _train_and_score(job: Job, folder: Path) -> list[Record]:
    prepare(job.who)
    dev, rows, setups = {}, {}, []
    for name in job.tasks:
        task = TASKS[name]
        whole = read_rows(job.data / f"{name}-train.csv", task)
        dev[name] = read_rows(job.data / f"{name}-dev.csv", task)
        labels = sorted({label for row in whole for label in labels_of(task, row)})
        rows[name] = draw(whole, task, job.size, job.seed)
        own = (job.encoder, job.name, job.seed, job.overrides, folder)
        setups.append(Setup(task, () if task.kind == "score" else tuple(labels), *own))
    start = time.perf_counter()
    if job.who == JOINT:
        trained = train_drafts(setups, rows, job.seed)
    else:
        trained = {job.tasks[0]: CONTENDERS[job.who](setups[0], rows[job.tasks[0]])}
    seconds = round(time.perf_counter() - start, 2)
    records = []
    for setup in setups:
        task = setup.task
        answer, notes = trained[task.name]
        found = score(task, setup.labels, dev[task.name], answer([r.texts for r in dev[task.name]]))
        figures: Record = {"rows": len(rows[task.name]), "dev_rows": len(dev[task.name])}
        figures |= {"metric": task.metric, "score": round(found, 5), "seconds": seconds}
        records.append(job.record(task.name) | figures | notes | _where())
    return records


def _where() -> Record:
    """Return the device and the version: `seconds` depend on them."""
    import torch

    import plait

    gpu = torch.cuda.is_available()
    cpu = f"CPU, {torch.get_num_threads()} threads"
    found = {"device": torch.cuda.get_device_name() if gpu else cpu}
    return found | {"plait": f"{plait.__version__} {os.environ.get('PLAIT_COMMIT', _commit())}"}


def _commit() -> str:
    def ask(*words: str) -> str:
        told = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
        return told.stdout.strip()

    try:
        commit = ask("rev-parse", "--short", "HEAD")
        return f"{commit}{'+' * bool(ask('status', '--porcelain', 'src'))}" or "unknown"
    except OSError:
        return "unknown"


# --- many jobs ---------------------------------------------------------------------------


def run(given: argparse.Namespace) -> None:
    """Run the jobs that FILE has no line of, some at a time."""
    from plait.training.sharing import shared_gpu  # starts NVIDIA's MPS where there is a GPU

    os.environ.setdefault("PLAIT_COMMIT", _commit())
    done = {_key(record) for record in read_records([given.out]) if "error" not in record}
    jobs = [job for job in _jobs(given) if not job.keys() <= done]
    print(f"{len(jobs)} jobs", flush=True)
    extra = {"jobs": given.jobs} | ({"rule": given.rule} if given.rule else {})
    given.out.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.time() + given.seconds
    with given.out.open("a", encoding="utf-8") as file, shared_gpu(given.jobs):
        for number, records in enumerate(_results(jobs, given.jobs, deadline), 1):
            for record in records:
                file.write(json.dumps(record | extra, ensure_ascii=False) + "\n")
                shown = record.get("error") or f"{record['score']:.3f}, {record['seconds']:.1f} s"
                what = (f"{record[part]}" for part in ("who", "name", "task", "size", "seed"))
                print(f"{number}/{len(jobs)}", *what, shown, flush=True)
            file.flush()


def _jobs(given: argparse.Namespace) -> Iterator[Job]:
    chosen = tuple(TASKS) if given.tasks == "all" else tuple(given.tasks.split(","))
    names = given.name or next(iter(PRESETS.get(given.who, {"defaults": {}})))
    given.data = given.data.resolve()
    rest = (tuple(given.override), given.data)
    for seed in map(int, given.seeds.split(",")):
        for size in given.sizes.split(","):
            for name in names.split(","):
                one = (given.who, name, given.encoder)
                if given.who == JOINT:
                    yield Job(*one, chosen, size, seed, *rest)
                    continue
                for task in chosen:
                    if applies(given.who, name, TASKS[task]):
                        yield Job(*one, (task,), size, seed, *rest)


def _results(jobs: Sequence[Job], workers: int, deadline: float) -> Iterator[list[Record]]:
    """Yield each job's records as they come; no job begins after the deadline."""
    if workers == 1:
        for job in jobs:
            if time.time() >= deadline:
                return
            yield run_job(job)
        return
    threads = max(1, (os.cpu_count() or 1) // workers)
    os.environ |= {"OMP_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": str(threads)}
    spawn = mp.get_context("spawn")
    waiting, results = spawn.Queue(), spawn.Queue()
    for queued in [*jobs, *[None] * workers]:
        waiting.put(queued)
    team = [spawn.Process(target=_work, args=(waiting, results, deadline)) for _ in range(workers)]
    for process in team:
        process.start()
    while True:
        # Asked before the queue: what a process has put there, it put before it ended.
        alive = any(process.is_alive() for process in team)
        try:
            yield results.get(timeout=2)
        except queue.Empty:
            if not alive:
                break
    if killed := [process.exitcode for process in team if process.exitcode]:
        print(f"{len(killed)} of {workers} workers died ({killed}): run again to go on")
    waiting.cancel_join_thread()


def _work(waiting: Any, results: Any, deadline: float) -> None:
    import torch

    if torch.cuda.is_available():
        torch.set_num_threads(1)
    while (job := waiting.get()) is not None and time.time() < deadline:
        records = run_job(job)
        results.put(records)
        if "CUDA error" in records[0].get("error", ""):
            return  # after one, all that this process asks of the GPU fails


# --- reading records ---------------------------------------------------------------------


def read_records(paths: Iterable[Path]) -> list[Record]:
    """Return all records; of those with one key, the last that has a score, else the last."""
    found: dict[str, Record] = {}
    for path in paths:
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
            record = json.loads(line)
            if "error" not in record or "error" in found.get(_key(record), {"error": ""}):
                found[_key(record)] = record
    return list(found.values())


Cell = tuple[str, str, str]
"""Encoder, size and task."""


def by_contender(records: Iterable[Record]) -> dict[str, dict[Cell, dict[int, Record]]]:
    """Sort records that have a score: contender -> encoder, size, task -> seed -> record."""
    found: dict[str, dict[Cell, dict[int, Record]]] = defaultdict(lambda: defaultdict(dict))
    for record in records:
        if "error" not in record:
            cell = (record["encoder"], record["size"], record["task"])
            found[contender(record)][cell][record["seed"]] = record
    return found


def contender(record: Record) -> str:
    """Return who was measured: the contender, and what its settings are called, or they."""
    named = record["name"] != "defaults"
    name = f" {record['name']}" if named else "".join(f" {o}" for o in record["overrides"])
    few = f" ({len(record['together'])} tasks)" if "together" in record else ""
    return f"{record['who']}{name}{few}"


def score_of(seeds: Mapping[int, Record]) -> float:
    """Return the mean over seeds."""
    return mean(record["score"] for record in seeds.values())


def best_baseline(table: Mapping[str, Any], cell: Cell) -> Mapping[int, Record] | None:
    """Return the records, by seed, of the simple baseline with the best mean."""
    simple = [cells for who, cells in table.items() if who.startswith(SIMPLE)]
    same = (cell, (ANY, *cell[1:]))
    return max((s[c] for s in simple for c in same if c in s), key=score_of, default=None)


def shortfall(own: Mapping[int, Record], base: Mapping[int, Record]) -> float:
    """Return how far a score is below its baseline beyond the 95% interval; 0 if it is not.

    The interval joins two errors, squared and added: of the mean over seeds (Student's t of the
    differences, seed by seed, as both sides have the same rows), and of the dev rows (binomial for
    accuracy and, roughly, F1; Fisher's z for a correlation). One seed has the second alone.
    """
    gap = score_of(base) - score_of(own)
    value, count = score_of(own), next(iter(own.values()))["dev_rows"]
    if next(iter(own.values()))["metric"] == "pearson":
        error = (1 - value**2) / np.sqrt(max(count - 3, 1))
    else:
        error = np.sqrt(max(value * (1 - value), 0) / count)
    common = [base[seed]["score"] - own[seed]["score"] for seed in own.keys() & base.keys()]
    half = np.hypot(1.96 * error, half_width(common))
    return gap if gap > float(half) else 0.0


def half_width(values: Sequence[float]) -> float:
    """Return half of the 95% interval of a mean; 0 for one value."""
    from scipy.stats import t

    if len(values) < 2:
        return 0.0
    return float(t.ppf(0.975, len(values) - 1)) * stdev(values) / len(values) ** 0.5


def summary_rows(records: Iterable[Record], encoder: str, size: str) -> list[list[str]]:
    """Return a line per contender, of one encoder and size; the first is the header."""
    table = by_contender(records)
    lines = [["contender", "tasks", "seeds", "mean", "baseline", "below it", "furthest", "s"]]
    for who, cells in sorted(table.items()):
        own = {c: s for c, s in cells.items() if c[0] in (encoder, ANY) and c[1] == size}
        if not own:
            continue
        pairs = {c: (s, b) for c, s in own.items() if (b := best_baseline(table, c))}
        low = {c[2]: gap for c, (s, b) in pairs.items() if (gap := shortfall(s, b))}
        low = {} if who.startswith(SIMPLE) else low
        worst = max(low, key=lambda task: low[task], default="")
        seeds = {len(s) for s in own.values()}
        took = mean(r["seconds"] for s in own.values() for r in s.values())
        base = mean(score_of(b) for _, b in pairs.values()) if len(pairs) == len(own) else None
        lines.append([
            *(who, str(len(own)), "-".join(str(n) for n in sorted({min(seeds), max(seeds)}))),
            *(shown(mean(map(score_of, own.values()))), "" if base is None else shown(base)),
            *(str(len(low)), f"{worst} {shown(-low[worst])}" if low else "", f"{took:.1f}"),
        ])  # fmt: skip
    return lines


def shown(value: float) -> str:
    """Return a score or a difference with three decimals and without the leading zero."""
    return f"{value:.3f}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:.3f}"


def places(records: Iterable[Record]) -> list[tuple[str, str]]:
    """Return the encoders and sizes that there are records of, in order."""
    found = {(r["encoder"], r["size"]) for r in records if r["encoder"] != ANY}
    return sorted(found, key=lambda place: (place[0] != "packaged", place[0], _rank(place[1])))


def _rank(size: str) -> int:
    return SIZES.index(size) if size in SIZES else len(SIZES)


def summarise(given: argparse.Namespace) -> None:
    """Print a table per encoder and size."""
    records = read_records(given.files)
    for encoder, size in places(records):
        print(f"\n{encoder}, {size}")
        rows = summary_rows(records, encoder, size)
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            cells = zip(row, widths, range(len(row)), strict=True)
            print("  ".join(c.rjust(w) if i else c.ljust(w) for c, w, i in cells).rstrip())
    if failed := [r for r in records if "error" in r]:
        print(f"\n{len(failed)} failed; the first: {contender(failed[0])} {failed[0]['task']} "
              f"{failed[0]['size']}: {failed[0]['error']}")  # fmt: skip


# --- the page ----------------------------------------------------------------------------

TOP = """# What the defaults rest on

plait chooses what a recipe leaves out (`plait.config.choose`). This page has the
measurements behind each choice, those of settings that did not help, and plait without settings
beside simple baselines and peers: twelve public tasks, cut to training sets of several sizes; every
figure is of all dev rows.
They are Emotion (*feeling*), StackOverflow titles (*library*), SMS Spam Collection (*spam*),
customer reviews (*opinion*), MPQA (*polarity*), HWU64 (*assistant*), SemEval 2016 task 6
(*stance*), EmoBank (*valence*), CompLex (*difficulty*), GoEmotions (*reactions*), SNLI (*follows*)
and PAWS-Wiki (*samewords*), of each at most 4,000 training and 1,000 dev rows. The packaged
encoder, all-MiniLM-L6-v2, was trained on pairs of SNLI and on titles of Stack Exchange, so that
*follows* and *library* are not new to it.

The metric is accuracy; macro F1 for *spam*; micro F1 for *reactions*; Pearson's correlation for
scores. *8c* is 8 rows a class (64 rows of a task with a score), *300* is 300 random rows. A setting
has a difference where the 95% interval over tasks does not contain 0.
"""

PEERS = """The mean of plait without settings, then the peer's, over the tasks and seeds that both
have; in brackets the number of tasks. *s* is the peer's seconds a training.
"""

BELOW = """*baseline* is the mean of each task's best simple baseline. *below it* counts the tasks
below theirs by more than the 95% interval; *furthest* is the one with the largest gap. *s* is
seconds a training.
"""

BOTTOM = """## Reproduce

Records are in `benchmarks/records/defaults`, a line for each training. `benchmarks/contenders.py`
has the peers' settings and where their authors recommend them. Lines that a file has are skipped.

```console
$ python benchmarks/defaults.py run --data tasks12 --who plait-fit --out records.jsonl
$ python benchmarks/defaults.py run --data tasks12 --who plait-fit -o train.lr=2e-5 --out lr.jsonl
$ python benchmarks/defaults.py summary records.jsonl
$ python benchmarks/defaults.py page
```
"""


def page(records: Sequence[Record]) -> str:
    """Return the page, from the records and the rules of plait.config.choose."""
    lines = ["<!-- Made by `python benchmarks/defaults.py page`; do not edit. -->", "", TOP]
    changes = _changes(records)
    if rules := _rules():
        found = defaultdict(list)
        for change in changes:
            found[change[0]].append(f"{change[1]} ({change[2]}, {change[3]}): {change[6]}")
        rows = [[f"`{key}`", why, "; ".join(found[key])] for key, why in rules.items()]
        lines += ["## Rules", "", *_table(["rule", "what it says", "change when it is left"], rows)]
    if changes:
        header = ["rule", "settings", "encoder", "size", "tasks", "seeds", "change", "verdict"]
        lines += ["## Settings", "", "Against the defaults, on the same rows.", ""]
        lines += _table(header, changes)
    table = by_contender(records)
    plain = (r for r in records if r["name"] == "defaults" and not r["overrides"])
    ours = sorted({contender(r) for r in plain if r["who"].startswith("plait-")})
    made: dict[tuple[str, ...], int] = defaultdict(int)
    for record in records:
        if record["who"].startswith("plait-") and "error" not in record:
            version = record.get("plait", "unknown").split()[-1]
            device = record.get("device", "unknown").split(",")[0]
            made[version, record["encoder"], record["who"], device] += 1
    lines += ["## Versions", "", "Which commit of plait made how many of its figures.", ""]
    header = ["commit", "encoder", "contender", "device", "figures"]
    lines += _table(header, [[*place, str(count)] for place, count in sorted(made.items())])
    lines += [
        "8b2a7f1 scored dev after each epoch, and fitted pairs to five features with C = 10;",
        "ab0ff84 scores dev at the end, and fits pairs to three with C = 1, divided by their",
        "spread. What 8b2a7f1 made is left where nothing newer covers it: `whole`, and the setting",
        "without names, which the page compares with the defaults of ab0ff84.",
        "",
    ]
    for encoder in dict.fromkeys(encoder for encoder, _ in places(records)):
        lines += [f"## Peers, {encoder}", "", PEERS]
        lines += _table(["size", "peer", "s", *ours], _against(table, encoder, ours))
    for encoder, size in places(records):
        header, *rows = summary_rows(records, encoder, size)
        lines += [f"## {encoder}, {size}", "", BELOW, *_table(header, rows)]
    return "\n".join([*lines, *defaults_search.section(), BOTTOM]).rstrip() + "\n"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    body = [f"| {' | '.join(row)} |" for row in [header, ["---"] * len(header), *rows]]
    return [*body, ""]


def _rules() -> dict[str, str]:
    """Return the rules of plait.config.choose: RULES has a sentence, or what has a `why`, by id."""
    try:
        from plait import choose
    except ImportError:
        return {}
    rules: Mapping[str, Any] = getattr(choose, "RULES", {})
    return {key: str(getattr(rule, "why", rule)) for key, rule in rules.items()}


def _changes(records: Iterable[Record]) -> list[list[str]]:
    """Return a line for each setting of plait's that was measured beside the default, and size."""
    groups: dict[tuple[str, ...], list[Record]] = defaultdict(list)
    table = by_contender(records)
    for record in (r for r in records if "error" not in r and r["who"].startswith("plait-")):
        plain = contender(record | {"name": "defaults", "overrides": []})
        if contender(record) != plain:
            place = (record["encoder"], record["size"])
            groups[record.get("rule", ""), plain, contender(record), *place].append(record)
    lines = []
    for (rule, plain, who, encoder, size), some in sorted(
        groups.items(), key=lambda item: (*item[0][:4], _rank(item[0][4]))
    ):
        gaps: dict[str, list[float]] = defaultdict(list)
        for record in some:
            base = table[plain].get((encoder, size, record["task"]), {}).get(record["seed"])
            if base:
                gaps[record["task"]].append(record["score"] - base["score"])
        if not gaps:
            continue
        change, half = mean(map(mean, gaps.values())), half_width([*map(mean, gaps.values())])
        verdict = "no difference" if len(gaps) < 2 or abs(change) <= half else "better"
        verdict = "worse" if verdict == "better" and change < 0 else verdict
        seeds = str(max(map(len, gaps.values())))
        told = f"{signed(change)} \u00b1 {shown(half)}" if len(gaps) > 1 else signed(change)
        lines.append([rule, who, encoder, size, str(len(gaps)), seeds, told, verdict])
    return lines


def _against(table: Mapping[str, Any], encoder: str, ours: Sequence[str]) -> list[list[str]]:
    """Return a line per size and peer: both means, on the tasks and seeds that both have."""
    lines = []
    for size in SIZES:
        for peer, cells in sorted(table.items()):
            theirs = {c: s for c, s in cells.items() if c[0] in (encoder, ANY) and c[1] == size}
            if peer.startswith("plait-") or not theirs:
                continue
            line = [
                size,
                peer,
                f"{mean(r['seconds'] for s in theirs.values() for r in s.values()):.1f}",
            ]
            for who in ours:
                own = {c[2]: s for c, s in table[who].items() if c[:2] == (encoder, size)}
                shared = [
                    [
                        (own[c[2]][seed]["score"], s[seed]["score"])
                        for seed in s
                        if seed in own[c[2]]
                    ]
                    for c, s in theirs.items()
                    if c[2] in own
                ]
                both = [[mean(side) for side in zip(*some, strict=True)] for some in shared if some]
                if not both:
                    line.append("")
                    continue
                mine, peers = (mean(side) for side in zip(*both, strict=True))
                line.append(f"{shown(mine)}, {shown(peers)} ({len(both)})")
            lines.append(line)
    return lines


def signed(value: float) -> str:
    """Return a difference with its sign."""
    return f"{'+' if value >= 0 else ''}{shown(value)}"


def write_page(given: argparse.Namespace) -> None:
    """Write docs/defaults.md."""
    text = page(read_records(sorted(RECORDS.glob("*.jsonl"))))
    given.out.write_text(text, encoding="utf-8", newline="\n")
    print(given.out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    verbs = parser.add_subparsers(required=True)
    one = verbs.add_parser("run", help="train, score and record")
    one.add_argument("--data", type=Path, required=True, help="folder of tasks12")
    one.add_argument("--who", choices=[*CONTENDERS, JOINT], required=True)
    one.add_argument("--encoder", default="packaged", help="'packaged' or a folder")
    one.add_argument("--tasks", default="all", help="names, separated by commas")
    one.add_argument("--sizes", default=",".join(SIZES), help="8c is 8 rows a class")
    one.add_argument("--seeds", default="1,2,3")
    one.add_argument("--out", type=Path, required=True, metavar="FILE.jsonl")
    one.add_argument("--name", help="named settings of contenders.py (commas), or a name of yours")
    one.add_argument("--rule", help="id of the rule in plait.config.choose that this measures")
    one.add_argument("-o", dest="override", action="append", default=[], metavar="KEY=VALUE")
    one.add_argument("--jobs", type=int, default=1, help="processes")
    one.add_argument("--seconds", type=float, default=1e9, help="no job begins after them")
    one.set_defaults(do=run)
    two = verbs.add_parser("summary", help="print a table per encoder and size")
    two.add_argument("files", type=Path, nargs="+")
    two.set_defaults(do=summarise)
    three = verbs.add_parser("page", help="write docs/defaults.md")
    three.add_argument("out", type=Path, nargs="?", default=PAGE)
    three.set_defaults(do=write_page)
    given = parser.parse_args()
    given.do(given)


if __name__ == "__main__":
    main()
