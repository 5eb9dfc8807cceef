"""A task of any number of labels, beside others, in every command that meets one."""

from __future__ import annotations

import json
import math
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest

from csv_rows import read_rows
from label_rows import write_labels
from plait.analysis.report import write_report
from plait.cli import main
from plait.errors import UsageError
from plait.inference.card import make_card
from plait.inference.ensemble import load, make_ensemble
from plait.inference.fitting.calibrate import calibrate
from plait.tasks import TaskSpec
from plait.training.estimator import TextClassifier

MOODS = TaskSpec(kind="labels", labels=("glad", "tired", "calm"), text=("text",))

SIGNS = ("glad", "tired", "calm")


@pytest.fixture
def run(labels_run, tmp_path):
    """A copy of the run of mood, same, near and moods."""
    return shutil.copytree(labels_run, tmp_path / "run")


@pytest.fixture
def words(capsys):
    """Run a command; return what it prints, and complains of."""

    def run_it(*args, code=0):
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(arg) for arg in args])
        said = capsys.readouterr()
        assert (ended.value.code or 0) == code, said.err
        return said.out if code == 0 else said.err

    return run_it


# --- answers -----------------------------------------------------------------------------


def test_files_of_answers(run, tmp_path):
    model = load(run)
    source = tmp_path / "texts.csv"
    write_labels(source, 16)
    expected = model.predict("moods", [row["text"] for row in read_rows(source)])
    assert len({answer.value for answer in expected}) > 1
    for ending in ("csv", "jsonl", "parquet"):
        out = tmp_path / f"answers.{ending}"
        model.predict_file(source, out, tasks=["moods"], probabilities=True)
    rows = read_rows(tmp_path / "answers.csv")
    # The file's own column of labels is kept, so that the answers' is called otherwise.
    assert [row["predicted_moods_label"] for row in rows] == ["/".join(a.words) for a in expected]
    numbers = ["/".join(map(str, answer.value)) for answer in expected]
    assert [row["predicted_moods"] for row in rows] == numbers
    for row, answer in zip(rows, expected, strict=True):
        each = [float(p) for p in row["predicted_moods_label_probabilities"].split("/") if p]
        assert each == pytest.approx([answer.probabilities[i] for i in answer.value], abs=1e-4)
        together = [p if i in answer.value else 1 - p for i, p in enumerate(answer.probabilities)]
        assert float(row["predicted_moods_confidence"]) == pytest.approx(
            math.prod(together), abs=1e-4
        )
    assert any(len(answer.words) > 1 for answer in expected)
    assert float(rows[0]["predicted_moods_p_glad"]) == pytest.approx(
        expected[0].probabilities[0], abs=1e-4
    )
    written = (tmp_path / "answers.jsonl").read_text(encoding="utf-8")
    lines = [json.loads(line) for line in written.splitlines()]
    assert [line["predicted_moods"]["label"] for line in lines] == [list(a.words) for a in expected]
    assert [line["predicted_moods"]["value"] for line in lines] == [list(a.value) for a in expected]
    for line, answer in zip(lines, expected, strict=True):
        told = line["predicted_moods"]
        each = [told["probabilities"][word] for word in answer.words]
        assert told["label_probabilities"] == each
    table = pq.read_table(tmp_path / "answers.parquet")
    assert table["predicted_moods"].to_pylist() == numbers
    assert table["predicted_moods_confidence"][3].as_py() == pytest.approx(expected[3].confidence)


def test_they_are_not_held_back(run, tmp_path, words):
    with pytest.raises(UsageError, match="'moods' is of kind 'labels', and abstaining"):
        load(run).choose_threshold("moods", 0.9)
    source = tmp_path / "texts.csv"
    write_labels(source, 8)
    done = ("predict", run, "--input", source, "--out", tmp_path / "x.csv", "--task", "moods")
    assert "'moods' is of kind 'labels'" in words(*done, "--threshold", "0.9", code=2)
    assert not (tmp_path / "x.csv").exists()


def test_the_card_says_so(run):
    card = make_card(run)
    assert "| moods | labels | `text` | any number of glad, tired, calm |" in card
    assert "| moods | micro_f1 |" in card
    assert "- moods: lowest recall on" in card


def test_an_estimator_learns_one_class_only():
    for y in ([["a", "b"], ["a"]], [["a", "b"], ["b", "a"]], np.eye(2), [{"a"}, {"b"}]):
        with pytest.raises(UsageError, match="several answers for one text"):
            TextClassifier().fit(["x", "y"], y)


# --- mistakes and audits -----------------------------------------------------------------

TRUE = np.array([[1, 0, 0], [1, 1, 0], [0, 0, 0]], np.float32)
GIVEN = np.array([[0.9, 0.2, 0.1], [0.6, 0.3, 0.8], [0.1, 0.1, 0.7]])


def test_verdicts_by_hand():
    verdicts = MOODS.kind.judge(TRUE, GIVEN)
    assert verdicts.metric == "subset_accuracy"
    assert verdicts.quality.tolist() == [1, 0, 0]
    # In the second row tired was denied with 70% and calm affirmed with 80%.
    assert verdicts.severity == pytest.approx([0, 0.8, 0.7])
    assert verdicts.order().tolist() == [1, 2]
    assert verdicts.truths == ["glad", "glad, tired", "none"]
    assert verdicts.answers == ["glad", "glad, calm", "calm"]
    together = [0.9 * 0.8 * 0.9, 0.6 * 0.7 * 0.8, 0.9 * 0.9 * 0.7]
    assert verdicts.confidences == pytest.approx(together)


def test_mistakes_are_shown(run, words, tmp_path):
    wanted = ("evaluate", run, "--task", "moods", "--errors", "2")
    shown = words(*wanted, "--csv", tmp_path / "wrong.csv")
    assert "of 24 rows, most confident first" in shown
    found = json.loads(words(*wanted, "--json"))["errors"]["moods"]
    assert 0 < found["mistakes"] <= 24
    truths = {row["truth"] for row in read_rows(tmp_path / "wrong.csv")}
    assert truths
    assert set(", ".join(truths).split(", ")) <= {"none", *SIGNS}


# --- reports and calibration -------------------------------------------------------------


@pytest.mark.slow
def test_a_report(run, tmp_path):
    pytest.importorskip("matplotlib")
    other = shutil.copytree(run, tmp_path / "other")
    page = write_report([run, other], tmp_path / "report.html").read_text(encoding="utf-8")
    section = page.split('id="task-moods"')[1].split("</section>")[0]
    assert "Precision, recall and F1" in section
    assert "Metrics of moods by label" in section
    assert "Most confident errors" in section
    assert "Confusion matrix" not in section
    calibration = page.split('id="calibration"')[1].split("</section>")[0]
    assert "mood" in calibration
    assert "moods" not in calibration  # each label has its own probability


def test_calibration_leaves_them_alone(run):
    plain = load(run)
    notes: list[str] = []
    assert set(calibrate(run, note=notes.append)) == {"mood", "same"}
    assert [note for note in notes if "multi-label tasks" in note]
    dev = plain.load_split("dev", tasks=["moods"])["moods"]
    assert (load(run).answer("moods", dev) == plain.answer("moods", dev)).all()


def test_an_ensemble_of_calibrated_runs(run, tmp_path, words):
    other = shutil.copytree(run, tmp_path / "other")
    calibrate(run)
    folder = make_ensemble([run, other], tmp_path / "both", "mode")
    assert set(calibrate(folder)) == {"mood", "same"}
    source = tmp_path / "texts.csv"
    write_labels(source, 8)
    load(folder).predict_file(source, tmp_path / "both.jsonl", tasks=["moods"])
    load(run).predict_file(source, tmp_path / "one.jsonl", tasks=["moods"])
    assert (tmp_path / "both.jsonl").read_bytes() == (tmp_path / "one.jsonl").read_bytes()
    assert "any number of glad" in make_card(folder)
    assert "subset_accuracy" in words("evaluate", folder, "--task", "moods", "--errors", "1")


# --- data --------------------------------------------------------------------------------


def test_data_are_checked(labels_run, words):
    recipe = labels_run.parent / "tiny" / "recipe.toml"
    found = json.loads(words("check", recipe, "--mislabelled", "--json"))
    told = [f["sentence"] for f in found["findings"] if f["task"] == "moods"]
    assert "labels of rows with several labels are not checked" in told
    assert any("also in train" in sentence for sentence in told)
