"""Write docs/speed.md out of benchmarks/records/*.json.

    python scripts/make_speed.py [FILE]

What is written follows from the records alone, so a test can compare.
"""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "speed.md"

ABOUT = {
    "cpu_predict": (
        "Answers on a CPU",
        "Sentence pairs are answered by the same BERT with pooler and one linear layer, from the "
        "texts on, tokenising included. The best of transformers' text-classification pipeline "
        "and sentence-transformers' CrossEncoder, with the batch sizes named, is the peer. "
        "`auto` is the default of `plait predict`; *same* is the share of answers that are "
        "those of fp32.",
    ),
    "cpu_embed": (
        "Vectors on a CPU",
        "One run's encoder embeds texts, from the texts on, tokenising included; the peer is "
        "sentence-transformers with the run's export. `auto` is the default of `plait embed`; "
        "the lowest cosine is that of any text's vector with the one of fp32.",
    ),
    "cpu_train": (
        "Training on a CPU",
        "The same BERT is trained on the sample's paraphrase pairs with batches of the same size "
        "in a random order, dropout, clipping and AdamW, by transformers' Trainer with dynamic "
        "padding and by plait, which works on no padding. fp32 is plait's default on CPUs; "
        '`precision = "bf16"` must be asked for.',
    ),
    "scaling": (
        "Training by two processes",
        "The same recipe and the same batches, by one process and by two under torchrun, a thread "
        "each; `1 process` stands in the peer's place. What this says of GPUs is in "
        "[Several GPUs](how-to/cluster.md#what-limits-several-gpus).",
    ),
    "serve": (
        "Serving over HTTP",
        "Many clients at once send pairs of texts of very different lengths, each the next when "
        "the last is answered, and broken requests among them. The peer is FastAPI around "
        "transformers' text-classification pipeline with the same weights, a request at a time; "
        "plait is `plait serve` as it comes. Clients and servers share the machine's cores.",
    ),
    "tokenise": (
        "Tokenising",
        "A file of sentence pairs is read and tokenised for the first time, beside "
        "`datasets.map` with transformers' fast tokenizer. Peak memory is that of the process. "
        "With fewer pairs, which have more new words for their number, the ratio is lower: "
        "[2.6](measured.md#tokenising) with the course's 63,483 of Quora.",
    ),
}
"""Title and explanation by the benchmark's name; one without has its name alone."""

TOP = """# Speed

What `make bench` measures, beside peers: `python benchmarks/NAME.py` is one benchmark. A figure is
the median of repeats in which the sides took turns, with the lowest and highest. A ratio is plait's
figure over the best peer's. The goals were set beforehand; those that were missed stay here.
"""


def main() -> None:
    path = Path(sys.argv[1]) if sys.argv[1:] else PAGE
    path.write_text(page(), encoding="utf-8", newline="\n")
    print(path)


def page() -> str:
    """Return the whole page."""
    paths = sorted((ROOT / "benchmarks" / "records").glob("*.json"))
    records = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    lines = ["<!-- Made by `make docs` (scripts/make_speed.py); do not edit. -->", "", TOP]
    lines += ["| benchmark | best peer | peer | plait | ratio | goal | met |"]
    lines += ["|---|---|---|---|---|---|---|"]
    lines += [row for record in records for row in _rows(record)]
    for record in records:
        lines += _section(record)
    return "\n".join([*lines, *_gpu_section()]).rstrip() + "\n"


def _rows(record: dict[str, Any]) -> list[str]:
    """Return one line per goal."""
    peer, lines = record["peers"][record["best_peer"]], []
    for name, goal in record["goals"].items():
        if name == "memory":
            (ours,) = record["plait"].values()
            shown = [f"{side['peak_mib']:,.0f} MiB" for side in (peer, ours)]
            ratio, met = record["ratios"][name], record["ratios"][name] <= goal
        else:
            side = name.partition(" (")[0]
            shown = [f"{s['median']:,.0f} {record['unit']}" for s in (peer, record["plait"][side])]
            ratio, met = record["ratios"][side], record["ratios"][side] >= goal
        cells = [f"{record['benchmark']}: {name}", record["best_peer"], *shown]
        cells += [f"{ratio:.2f}", f"{goal:g}", "yes" if met else "no"]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _section(record: dict[str, Any]) -> list[str]:
    title, about = ABOUT.get(record["benchmark"], (record["benchmark"], ""))
    lines = ["", f"## {title}", "", _wrap(about), ""]
    lines += [f"| side | {record['unit']} | lowest to highest | repeats | also |"]
    lines += ["|---|---|---|---|---|"]
    for name, side in (record["peers"] | record["plait"]).items():
        also = []
        if "same_answers" in side:
            also.append(f"{side['same_answers']:.2%} same")
        if "lowest_cosine" in side:
            also.append(f"cosines of {side['lowest_cosine']:.5f} and more")
        if "peak_mib" in side:
            also.append(f"{side['peak_mib']:,.0f} MiB")
        between = f"{side['low']:,.1f} to {side['high']:,.1f}"
        lines += [
            f"| {name} | {side['median']:,.1f} | {between} | {side['runs']} | {', '.join(also)} |"
        ]
    made = f"Settings: {_words(record['settings'])}. Hardware: {_words(record['hardware'])}. "
    lines += ["", _wrap(f"{made}Versions: {_words(record['versions'])}.")]
    if note := record.get("note"):
        lines += ["", _wrap(note)]
    return lines


# --- on a GPU ----------------------------------------------------------------------------

GPU_FOLDER = ROOT / "benchmarks" / "records" / "gpu"

GPU_TOP = """
## On a GPU

Time of one training step: the median of windows of steps after a warm-up, with the fastest and the
slowest window. Both sides have the same data, the same random weights and bf16. What the peers
take depends much on the host's CPU, which has to ask for every kernel of theirs, and differs from
run to run; ours hardly does, as a step is asked for at once. The scripts are `benchmarks/gpu_*.py`.

| benchmark | peer | peer, ms | plait, ms | ratio | goal | met |
|---|---|---|---|---|---|---|
"""

GPU_GOALS = {
    "train-8": ("BERT-base, Quora pairs, batches of 8", 10),
    "train-8-small": ("e5-small, Quora pairs, batches of 8", 10),
    "train-256": ("BERT-base, Quora pairs, batches of 256", 2.5),
    "tasks": ("e5-small, three tasks in turn, batches of 32", 6),
}
"""What a record measures, and the ratio that was the goal."""


def _gpu_section() -> list[str]:
    records = {
        path.stem: json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(GPU_FOLDER.glob("*.json"))
    }
    lines = [GPU_TOP.rstrip("\n")]
    for name, (title, goal) in GPU_GOALS.items():
        record = records[name]
        peers = record.get("peers") or {record["peer"]["name"]: record["peer"]}
        peer, theirs = min(peers.items(), key=lambda item: item[1]["step_ms"])
        ours = record["plait"]
        ratio = theirs["step_ms"] / ours["step_ms"]
        met = "yes" if ratio >= goal else "no"
        cells = (title, peer, _ms(theirs), _ms(ours), f"{ratio:.1f}", f"{goal:g}", met)
        lines.append(f"| {' | '.join(cells)} |")
    made = records["train-8"]
    lines += ["", _wrap(f"{made['hardware']}; versions: {_words(made['versions'])}.")]
    lines += _surgery_lines(records["surgery"])
    lines += _torchjd_lines(records["torchjd"])
    lines += _smart_lines([*records["smart-8"]["rows"], *records["smart"]["rows"]])
    lines += _recipe_lines(records["recipe"])
    return [*lines, *_job_lines(records["jobs"]), *_share_lines(records["shares"])]


def _ms(side: dict[str, Any]) -> str:
    return f"{side['step_ms']:.2f} ({side['fastest_ms']:.2f} to {side['slowest_ms']:.2f})"


def _surgery_lines(record: dict[str, Any]) -> list[str]:
    lines = [
        "",
        "An update with PCGrad over three tasks, beside the ways others take (goal: 3 times as",
        "fast, half the memory beyond a plain update). The peers' time is mostly their host's.",
        "",
        "| encoder, batch | way | ms | memory beyond a plain update, MiB | plait's ratio |",
        "|---|---|---|---|---|",
    ]
    for row in record["rows"]:
        place = f"{row['shape']}, {row['batch_size']}"
        ways = {"plait": row["plait"]["pcgrad"]} | row["peers"]
        for name, side in ways.items():
            if name == "plain":
                continue
            ratio = f"{row['ratio'][name]:.1f}" if name in row["ratio"] else ""
            extra = f"{side['extra_mib']:,.0f}"
            lines.append(f"| {place} | {name} | {_ms(side)} | {extra} | {ratio} |")
    return lines


def _torchjd_lines(record: dict[str, Any]) -> list[str]:
    (row,) = record["rows"]
    others = {name: side for name, side in row["peers"].items() if name.startswith("torchjd")}
    times = ", ".join(f"{name} {_ms(side)} ms" for name, side in others.items())
    extra = ", ".join(f"{side['extra_mib']:,.0f}" for side in others.values())
    ours = row["plait"]["pcgrad"]
    about = (
        f"Beside torchjd {record['versions']['torchjd']} it was timed before plait took the "
        f"gradients of small batches side by side: plait {_ms(ours)} ms and "
        f"{ours['extra_mib']:,.0f} MiB, {times}, and {extra} MiB. Side by side costs memory: "
        "plait now needs as much beyond a plain update as torchjd, not half of it."
    )
    return ["", _wrap(about)]


def _share_lines(record: dict[str, Any]) -> list[str]:
    times = {(run["jobs"], run["percent"]): run["step_ms"] for run in record["runs"]}
    about = (
        "With kernels of plait's own for attention and embeddings, timed later: "
        f"{times[1, 100]:.2f} ms for one run under MPS, {times[8, 100]:.2f} for each of eight "
        f"({8 * times[1, 100] / times[8, 100]:.2f} times as many in all). Holding each of eight to "
        f"25% of the GPU (`CUDA_MPS_ACTIVE_THREAD_PERCENTAGE`) makes it {times[8, 25]:.2f}, but "
        "plait does not do that, and notes it where it is set: at some shares cuBLAS works out "
        "wrong products (`scripts/check_gpu.py --products` under such a share; the times are "
        "`benchmarks/gpu_jobs.py`'s). Largest relative errors of products in bf16, as e5-small's "
        "layers have them, against float64; the last column is what training came to:"
    )
    lines = [
        "",
        _wrap(about),
        "",
        "| share | multiprocessors | forward | to inputs | to weights | |",
    ]
    lines += ["|---|---|---|---|---|---|"]
    for row in record["shares"]:
        parts = [row[name] for name in ("forward", "to_inputs", "to_weights")]
        errors = ["not a number" if e is None else f"{e:.2g}" for e in parts]
        cells = [f"{row['percent']}%", str(row["multiprocessors"]), *errors]
        end = "as it should be" if row["losses"] == "right" else "**not a number**"
        lines.append(f"| {' | '.join(cells)} | {end} |")
    return lines


def _recipe_lines(record: dict[str, Any]) -> list[str]:
    run = record["plait"]
    return [
        "",
        _wrap(
            f"A whole recipe, `{record['settings']['recipe']}` with e5-small: {run['updates']:,} "
            f"updates and {run['num_scorings']} passes over dev in {run['whole_s']:.0f} s: "
            f"{run['training_s']:.0f} s of training, {run['scoring_s']:.0f} s of scoring, "
            f"{run['reading_s']:.0f} s of reading (goal: 180 s). {record['note']}"
        ),
    ]


def _smart_lines(rows: list[dict[str, Any]]) -> list[str]:
    about = (
        "What smart-unit costs, as a multiple of a plain step: 2.67 by the passes it makes, less"
    )
    lines = ["", about, "where the update, which both make once, is much of a step.", ""]
    lines += ["| encoder | batch | plain, ms | smart-unit, ms | cost |", "|---|---|---|---|---|"]
    for row in rows:
        plain, smart = (row["plait"][name]["step_ms"] for name in ("plain", "smart"))
        cells = (row["shape"], row["batch_size"], f"{plain:.2f}", f"{smart:.2f}")
        lines.append(f"| {' | '.join(map(str, cells))} | {row['cost']:.2f} |")
    return lines


def _job_lines(record: dict[str, Any]) -> list[str]:
    about = "Several runs on one GPU (e5-small, batches of 8), each a process of its own. `--jobs`"
    lines = ["", about, "starts NVIDIA's MPS, without which they only take turns.", ""]
    lines += ["| runs | MPS | ms a step | steps in all, over one run's |", "|---|---|---|---|"]
    for row in record["runs"].values():
        mean = sum(row["step_ms"]) / len(row["step_ms"])
        mps = "yes" if row["mps"] else "no"
        lines.append(f"| {row['jobs']} | {mps} | {mean:.2f} | {row['throughput']:.2f} |")
    return lines


def _wrap(text: str) -> str:
    return textwrap.fill(text, 100, break_long_words=False, break_on_hyphens=False)


def _words(table: dict[str, Any]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in table.items())


if __name__ == "__main__":
    main()
