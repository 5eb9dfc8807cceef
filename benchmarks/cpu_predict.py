"""Time answers to sentence pairs, beside transformers and sentence-transformers.

    python benchmarks/cpu_predict.py [--run RUN --task TASK] [--pairs FILE] [--rows N]
    python benchmarks/cpu_predict.py --device cuda --batch-sizes 64 256 1024 ...

All have the same weights: a BERT with pooler and one linear layer. Without --run, one is
trained on the sample inside plait first (a minute or two), on --encoder. Pairs are taken from
FILE (columns sentence1, sentence2), or else from the sample. Every side gets the texts, and
tokenises them in the time taken. They take turns; peers not installed are left out. On a GPU
peers are timed in bf16 as well, which is plait's default there, and the record is gpu_predict.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import records
import torch

import plait
from plait.config import read_recipe
from plait.data import Columns, open_source, sample_root
from plait.model.encoder import hub_weights

Pairs = list[tuple[str, str]]
SAME = 0.995
"""Share of answers that must be fp32's for a precision to count."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", type=Path, help="a run with pooling cls-pooler and a linear head")
    parser.add_argument("--task", default="paraphrase")
    parser.add_argument("--encoder", default="packaged")
    parser.add_argument("--pairs", type=Path)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rows", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[16, 32, 64])
    parser.add_argument("--out", type=Path, help="write the record here, not to benchmarks/records")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        run = args.run or train(args.encoder, Path(temporary) / "run", args.device)
        pairs = read_pairs(args.pairs, args.rows)
        sides = peers(run, args.task, Path(temporary) / "hub", args.batch_sizes, args.device)
        for precision in ("fp32", "auto", *(["int8"] if args.device == "cpu" else [])):
            try:
                model = plait.load(run, device=args.device, precision=precision)
            except plait.PlaitError as error:
                print(error)
                continue
            sides[f"plait {precision}"] = lambda pairs, model=model: answer(model, args.task, pairs)
        times, answers = measure(sides, pairs, args.repeats)
    report(times, answers, args, pairs)


def train(encoder: str, out: Path, device: str = "cpu") -> Path:
    """Train a model like the peers' on the sample."""
    settings = [f"encoder.source={encoder}", "encoder.pooling=cls-pooler", "train.epochs=3"]
    settings += [f"device={device}", "listeners=[]", "score_first=false"]
    settings += ["tasks.paraphrase.head.name=linear", "train.batch_size=32"]
    print("training a model on the sample ...", flush=True)
    plait.train(read_recipe("demo", settings), out=out)
    return out


def read_pairs(path: Path | None, rows: int) -> Pairs:
    names = ("sentence1", "sentence2") if path else ("question1", "question2")
    source = open_source(path or sample_root() / "paraphrase-dev.csv")
    found = [
        tuple(text.decode() for text in pair)
        for chunk in source.chunks(Columns(names))
        for pair in zip(*(column.to_pylist() for column in chunk.columns), strict=True)
    ]
    return (found * -(-rows // len(found)))[:rows]


def answer(model: plait.Predictor, task: str, pairs: Pairs) -> np.ndarray:
    return np.array([p.probabilities[1] for p in model.predict(task, pairs)])


def peers(
    run: Path, task: str, folder: Path, sizes: list[int], device: str
) -> dict[str, Callable[[Pairs], np.ndarray]]:
    """Make the peers' models of a run's weights; each answers with the probability of yes."""
    loaded = plait.load(run, device="cpu", precision="fp32")
    save_for_hub(run, task, folder, loaded.config.encoder.max_length)
    forms = {"": torch.float32} | ({" in bf16": torch.bfloat16} if device == "cuda" else {})
    made = {}
    for form, dtype in forms.items():
        for name, side in peers_in(dtype, folder, sizes, device).items():
            made[name + form] = side
    return made


def peers_in(
    dtype: torch.dtype, folder: Path, sizes: list[int], device: str
) -> dict[str, Callable[[Pairs], np.ndarray]]:
    """Make the peers' models in one precision."""
    import transformers

    logging.getLogger("transformers").setLevel(logging.ERROR)
    made: dict[str, Callable[[Pairs], np.ndarray]] = {}
    pipe = transformers.pipeline(
        "text-classification", model=str(folder), device=device, dtype=dtype
    )
    for size in sizes:

        def with_pipeline(pairs: Pairs, size: int = size) -> np.ndarray:
            given = [{"text": a, "text_pair": b} for a, b in pairs]
            found = pipe(given, batch_size=size, truncation=True)
            return np.array([one["score"] for one in found])

        made[f"transformers pipeline, batches of {size}"] = with_pipeline
    try:
        from sentence_transformers import CrossEncoder
    except ImportError:
        return made
    cross = CrossEncoder(str(folder), device=device, model_kwargs={"dtype": dtype})
    for size in sizes:

        def with_cross_encoder(pairs: Pairs, size: int = size) -> np.ndarray:
            return cross.predict(pairs, batch_size=size, show_progress_bar=False)

        made[f"CrossEncoder, batches of {size}"] = with_cross_encoder
    return made


def save_for_hub(run: Path, task: str, folder: Path, max_length: int) -> None:
    """Write a run as a BertForSequenceClassification of one label, with its tokenizer."""
    import json

    import transformers
    from safetensors.torch import load_file

    from plait.inference.folders import RunFolder
    from plait.model.encoder import build_encoder

    files = RunFolder(run)
    encoder = build_encoder(files.read_json(files.encoder), "bert")
    weights = load_file(files.weights)
    start = "encoder."
    encoder.load_state_dict(
        {name.removeprefix(start): t for name, t in weights.items() if name.startswith(start)}
    )
    head = {n: t for n, t in weights.items() if n.startswith(f"heads.task-{task}.")}
    (weight,), (bias,) = ([t for t in head.values() if t.ndim == n] for n in (2, 1))
    config = transformers.BertConfig(**json.loads(files.encoder.read_text()), num_labels=1)
    peer = transformers.BertForSequenceClassification(config)
    state = {f"bert.{name}": t for name, t in hub_weights(encoder).items()}
    state |= {"classifier.weight": weight, "classifier.bias": bias}
    missing = peer.load_state_dict(state, strict=False)
    assert not missing.missing_keys, missing
    peer.save_pretrained(folder)
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(files.tokenizer),
        model_max_length=max_length,
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        unk_token="[UNK]",
        mask_token="[MASK]",
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )
    tokenizer.save_pretrained(folder)


def measure(sides, pairs: Pairs, repeats: int):
    """Let the sides take turns; the first turn is thrown away."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    answers: dict[str, np.ndarray] = {}
    with torch.inference_mode():
        for turn in range(repeats + 1):
            for name, side in sides.items():
                given = pairs[:64] if turn == 0 else pairs
                began = time.perf_counter()
                answers[name] = np.asarray(side(given))
                if turn:
                    times[name].append(len(pairs) / (time.perf_counter() - began))
    return times, answers


def report(times, answers, args, pairs: Pairs) -> None:
    exact = answers["plait fp32"]
    figures = {}
    for name, rates in times.items():
        same = float(((answers[name] > 0.5) == (exact > 0.5)).mean())
        far = float(np.abs(answers[name] - exact).max())
        figures[name] = records.spread(rates) | {"same_answers": same, "largest_difference": far}
        print(f"{name:40} {figures[name]['median']:8.1f} rows/s  same {same:.4f}  off {far:.1e}")
    theirs = {name: f for name, f in figures.items() if not name.startswith("plait")}
    ours = {name: f for name, f in figures.items() if name.startswith("plait")}
    best = max(theirs, key=lambda name: theirs[name]["median"])
    ratios = {n: round(f["median"] / theirs[best]["median"], 2) for n, f in ours.items()}
    on_cpu = args.device == "cpu"
    goals = {"plait fp32": 1.2, "plait auto": 4.0 if on_cpu else 3.0}
    where = args.pairs.stem if args.pairs else "the sample's pairs"
    records.write(
        "cpu_predict" if on_cpu else "gpu_predict",
        args.out,
        settings={"rows": len(pairs), "pairs": where, "encoder": args.encoder},
        unit="rows/s",
        best_peer=best,
        peers=theirs,
        plait=ours,
        ratios=ratios,
        goals=goals,
    )


if __name__ == "__main__":
    main()
