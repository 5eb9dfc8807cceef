"""ONNX graphs answer what their run answers, for any number of texts of any length."""

from __future__ import annotations

import json
import shutil
import sys

import numpy as np
import pytest
import torch

import plait
from plait.config import read_recipe
from plait.errors import EncoderError, RunError, UsageError
from plait.export.onnx import INPUTS
from plait.export.run import export
from plait.inference.ensemble import make_ensemble
from plait.inference.exported import ExportedModel
from plait.inference.predictor import Predictor
from plait.model.heads import LinearHead
from plait.training.run import train

pytest.importorskip("onnxruntime")

WORDS = ("the film was very great and it is not dull . of a lovely walk , superb story !").split()  # noqa: SIM905


def texts(count: int) -> list[str]:
    """Texts of one word, of two, and so on, beyond what is read."""
    return [" ".join((WORDS * 3)[: 1 + 5 * i]) for i in range(count)]


def pairs(count: int) -> list[tuple[str, str]]:
    return list(zip(texts(count), reversed(texts(count)), strict=True))


@pytest.fixture(scope="session")
def both(rich_run, exported):
    return Predictor.load(rich_run, device="cpu"), plait.load(exported, device="cpu")


# --- the same answers --------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 7])
@pytest.mark.parametrize("task", ["mood", "same", "near", "moods", "beside", "merged", "apart"])
def test_answers_are_the_runs(both, task, count):
    run, model = both
    assert isinstance(model, ExportedModel)
    rows = pairs(count) if run.tasks[task].spec.is_pair else texts(count)
    for mine, theirs in zip(model.predict(task, rows), run.predict(task, rows), strict=True):
        assert mine.label == theirs.label
        assert mine.value == pytest.approx(theirs.value, abs=1e-5)
        assert mine.probabilities == pytest.approx(theirs.probabilities, abs=1e-5)


@pytest.mark.slow
def test_heads_that_began_as_a_regression(train_tiny, tmp_path):
    heads = [f"tasks.{task}.head='regression'" for task in ("mood", "same", "near")]
    more = ["tasks.same.inputs='apart'", "tasks.near.loss='score-cross-entropy'"]
    run = train_tiny(*heads, *more, "train.max_steps=2")
    export(run, tmp_path / "out", form="onnx")
    both = Predictor.load(run, device="cpu"), plait.load(tmp_path / "out", device="cpu")
    for task, rows in (("mood", texts(3)), ("same", pairs(3)), ("near", pairs(3))):
        for theirs, mine in zip(*(model.predict(task, rows) for model in both), strict=True):
            assert mine.value == pytest.approx(theirs.value, abs=1e-5)
            assert mine.probabilities == pytest.approx(theirs.probabilities, abs=1e-5)


def test_vectors_are_the_runs(both):
    run, model = both
    np.testing.assert_allclose(model.embed(texts(9)), run.embed(texts(9)), atol=1e-5)
    assert model.embed([]).shape == (0, 16)


def test_scores_are_the_runs(both):
    run, model = both
    mine, theirs = model.evaluate("dev"), run.evaluate("dev")
    assert mine.primary == pytest.approx(theirs.primary, abs=1e-5)
    assert list(mine.tasks) == list(run.tasks)


def test_calibration_is_in_the_graph(both, rich_run):
    """It matters here, and the graph has it."""
    run, model = both
    plain = Predictor.load(rich_run, device="cpu", calibrated=False)
    data = run.tokenise([(text,) for text in texts(7)])
    assert abs(run.answer("mood", data) - plain.answer("mood", data)).max() > 1e-3
    np.testing.assert_allclose(model.answer("mood", data), run.answer("mood", data), atol=1e-5)


def test_graphs_need_no_plait(both, exported):
    """Whoever reads export.json and has a tokenizer gets the same numbers."""
    import onnxruntime

    run, _ = both
    facts = json.loads((exported / "export.json").read_text())
    place = facts["tasks"]["mood"]
    session = onnxruntime.InferenceSession(exported / place["graph"])
    assert [each.name for each in session.get_inputs()] == facts["inputs"] == list(INPUTS)
    batch = run.collator(
        run.tokenise([("the film was great .",)]), torch.tensor([0]), run.tasks["mood"].spec
    )
    given = (batch.tokens.ids, batch.tokens.types, batch.tokens.mask.long())
    feed = dict(zip(INPUTS, (t.numpy() for t in given), strict=True))
    (found,) = session.run([place["output"]], feed)
    (wanted,) = run.predict("mood", ["the film was great ."])
    assert found[0] == pytest.approx(wanted.probabilities, abs=1e-5)
    assert place["labels"] == ["bad", "so-so", "good"]


def test_a_file_is_answered_alike(both, tmp_path):
    run, model = both
    (tmp_path / "in.csv").write_text("text\n" + "\n".join(f'"{t}"' for t in texts(5)))
    for name, who in (("run", run), ("onnx", model)):
        who.predict_file(tmp_path / "in.csv", tmp_path / f"{name}.csv", tasks=["mood", "moods"])
    labels = [
        [line.split(",")[-4] for line in (tmp_path / f"{name}.csv").read_text().splitlines()]
        for name in ("run", "onnx")
    ]
    assert labels[0] == labels[1]


# --- the folder --------------------------------------------------------------------------


def test_what_is_in_the_folder(exported):
    names = {path.name for path in exported.iterdir()}
    graphs = {"model.onnx", "task-beside.onnx", "task-merged.onnx", "task-apart.onnx"}
    heads = {"head-near.onnx", "head-apart.onnx"}
    assert names == {"README.md", "export.json", "recipe.toml", "tokenizer.json"} | graphs | heads
    facts = json.loads((exported / "export.json").read_text())
    assert facts["measured"]["tasks"]["mood"]["equal"] == 1
    assert facts["measured"]["tasks"]["mood"]["largest"] < 1e-5
    page = (exported / "README.md").read_text()
    assert "| mood | accuracy |" in page
    assert 'plait.load("FOLDER")' in page
    assert "`RUN`" not in page


def test_an_export_can_be_calibrated_again(exported, tmp_path):
    from plait.inference.fitting.calibrate import calibrate

    place = shutil.copytree(exported, tmp_path / "copy")
    found = calibrate(place, device="cpu")["mood"].scaling
    assert found.temperature == pytest.approx(1, abs=0.05)  # it is calibrated already
    assert plait.load(place).scalings.keys() >= {"mood"}
    assert plait.load(place, calibrated=False).scalings == {}
    path = place / "calibration.json"
    path.write_text(path.read_text().replace('"temperature": ', '"temperature": -'))
    with pytest.raises(RunError, match=r"calibration\.json has a temperature for task 'mood'"):
        plait.load(place)


# --- int8 --------------------------------------------------------------------------------


@pytest.mark.slow
def test_int8_is_close_and_says_how_close(tiny_run, tmp_path):
    done = export(tiny_run, tmp_path / "int8", precision="int8")
    run, model = Predictor.load(tiny_run, device="cpu"), plait.load(done.folder)
    data = run.tokenise([(text,) for text in texts(7)])
    far = abs(model.answer("mood", data) - run.answer("mood", data)).max()
    assert 0 < far < 0.1
    told = json.loads((done.folder / "export.json").read_text())
    assert told["precision"] == "int8"
    assert told["measured"]["tasks"].keys() == run.tasks.keys()
    dev = run.load_split("dev")["mood"]
    both = [who.answer("mood", dev) for who in (run, model)]
    mood = done.comparisons["mood"]
    assert mood.after == pytest.approx((both[1].argmax(1) == dev.labels.numpy()).mean())
    assert mood.equal == pytest.approx((both[0].argmax(1) == both[1].argmax(1)).mean())
    assert mood.largest == pytest.approx(abs(both[0] - both[1]).max())
    with pytest.raises(UsageError, match="holds int8 graphs; for fp32 export the run again"):
        plait.load(done.folder, precision="fp32")


# --- refusals ----------------------------------------------------------------------------


@pytest.mark.slow
def test_without_dev_files_nothing_is_compared(tiny_run, tmp_path):
    run = shutil.copytree(tiny_run, tmp_path / "run")
    recipe = run / "recipe.toml"
    recipe.write_text(recipe.read_text().replace("-dev.csv", "-gone.csv"))
    done = export(run, tmp_path / "out", tasks=["mood"])
    assert done.note.startswith(
        "the export was not compared with the run: data file mood-gone.csv is not there"
    )
    assert "measured" not in json.loads((done.folder / "export.json").read_text())
    with pytest.raises(plait.PlaitError, match="no data folder"):
        export(run, tmp_path / "other", tasks=["mood"], data=str(tmp_path / "nowhere"))
    assert not (tmp_path / "other").exists()
    assert list(tmp_path.glob(".*")) == []


def test_ensembles_are_refused(tiny_run, tmp_path):
    make_ensemble([tiny_run], tmp_path / "all")
    with pytest.raises(RunError, match="it is an ensemble; name one of its members"):
        export(tmp_path / "all")


def test_places_that_are_taken_or_empty(tiny_run, exported, tmp_path):
    with pytest.raises(RunError, match="exists already and is not overwritten"):
        export(tiny_run, exported)
    with pytest.raises(RunError, match="there is no run at"):
        export(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="is already an export"):
        export(exported)
    with pytest.raises(RunError, match="exported folder, not a run"):
        make_ensemble([exported], tmp_path / "all")


def test_a_damaged_export(exported, tmp_path):
    place = shutil.copytree(exported, tmp_path / "copy")
    with (place / "model.onnx").open("ab") as file:
        file.write(b"more")
    with pytest.raises(RunError, match=r"model\.onnx was changed after the export; copy it again"):
        plait.load(place)
    facts = json.loads((place / "export.json").read_text())
    outside = facts | {"graphs": {str(exported / "model.onnx"): ""}}
    (place / "export.json").write_text(json.dumps(outside))
    with pytest.raises(RunError, match=r"a graph '.*model.onnx' is outside of the folder"):
        plait.load(place)
    (place / "export.json").write_text(json.dumps({k: v for k, v in facts.items() if k != "tasks"}))
    with pytest.raises(RunError, match="is damaged: it lacks tasks"):
        plait.load(place)


@pytest.mark.parametrize("package", ["onnx", "onnxscript", "onnxruntime"])
def test_a_missing_package_is_named(tiny_run, tmp_path, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UsageError, match=rf"needs the package {package}: pip install 'plait\[exp"):
        export(tiny_run, tmp_path / "out")


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_why_there_is_no_graph_is_told(tiny_run, tmp_path, monkeypatch):
    """In the words of what went wrong, not of the exporter, which only says that it did."""

    def fail(_head: LinearHead, _vectors: torch.Tensor) -> torch.Tensor:
        raise TypeError("this head wants a mask")

    monkeypatch.setattr(LinearHead, "forward", fail)
    with pytest.raises(EncoderError, match=r"graph of model: .*this head wants a mask"):
        export(tiny_run, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_other_architectures(tiny_run, tmp_path):
    """An encoder without segments has a graph without them."""
    transformers = pytest.importorskip("transformers")
    config = transformers.DistilBertConfig(
        vocab_size=200, dim=16, n_layers=1, n_heads=2, hidden_dim=24, max_position_embeddings=48
    )
    folder = tmp_path / "distil"
    transformers.DistilBertModel(config).save_pretrained(folder)
    shutil.copy(tiny_run / "tokenizer.json", folder)
    recipe = tiny_run.parent / "tiny" / "recipe.toml"
    changes = [f"encoder.source={str(folder)!r}", "encoder.architecture=auto", "train.max_steps=2"]
    run = train(read_recipe(recipe, changes), tmp_path / "run").folder
    model = plait.load(export(run, tmp_path / "out").folder)
    both = [who.predict("mood", texts(7)) for who in (model, Predictor.load(run, device="cpu"))]
    for mine, theirs in zip(*both, strict=True):
        assert mine.probabilities == pytest.approx(theirs.probabilities, abs=1e-5)
