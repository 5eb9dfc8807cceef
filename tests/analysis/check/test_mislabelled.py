"""Wrong labels are suspected by classifiers that are what they claim to be."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from plait.analysis.check import check_recipe
from plait.analysis.check.mislabelled import (
    find_suspects,
    fit_classes,
    thresholds_of,
)


def blobs(num_classes: int, count: int = 120) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(count) % num_classes
    centres = 2 * torch.randn(num_classes, 6, generator=generator, dtype=torch.double)
    return centres[labels] + torch.randn(count, 6, generator=generator, dtype=torch.double), labels


@pytest.mark.parametrize("num_classes", [2, 4])
@pytest.mark.parametrize("decay", [1.0, 30.0])
def test_the_logistic_regression_is_sklearns(num_classes, decay):
    linear_model = pytest.importorskip("sklearn.linear_model")
    features, labels = blobs(num_classes)
    scaled = ((features - features.mean(0)) / features.std(0)).numpy()
    # of two classes sklearn has one vector of weights, whose penalty is half that of our two
    strength = 1 / decay if num_classes > 2 else 2 / decay
    theirs = linear_model.LogisticRegression(C=strength, tol=1e-8, max_iter=2000)
    expected = theirs.fit(scaled, labels.numpy()).predict_proba(scaled)
    ours = fit_classes(features, labels, num_classes, decay)(features).softmax(1).numpy()
    np.testing.assert_allclose(ours, expected, atol=2e-3)


def test_suspects_by_hand():
    labels = np.array([0, 0, 0, 1, 1, 1])
    probabilities = np.array(
        [[0.9, 0.1], [0.8, 0.2], [0.1, 0.9], [0.2, 0.8], [0.45, 0.55], [0.97, 0.03]]
    )
    thresholds = thresholds_of(labels, probabilities)
    np.testing.assert_allclose(thresholds, [0.6, 0.46])
    rows, likely = find_suspects(labels, probabilities, thresholds)
    # rows 2 and 5 are denied, 5 the more surely; the others are as labelled
    assert rows.tolist() == [5, 2]
    assert likely.tolist() == [0, 1]


THINGS = ("film", "book", "song", "meal", "walk", "room", "game", "story", "train", "garden")
WORDS = {"good": ("fine", "great", "lovely", "superb"), "bad": ("awful", "dull", "poor", "sad")}


def test_labels_that_were_swapped_are_found(write_recipe, found):
    rows = [
        [f"the {t} was {w} .", mood] for mood, own in WORDS.items() for w in own for t in THINGS
    ]
    wrong = [3, 17, 45, 71]
    for row in wrong:
        rows[row][1] = "bad" if rows[row][1] == "good" else "good"
    train = "\n".join(["id,text,label", *(f"{i},{t},{label}" for i, (t, label) in enumerate(rows))])
    dev = "id,text,label\n1,the film was superb .,good\n2,the walk was awful .,good\n"
    report = check_recipe(write_recipe(train, dev), mislabelled=True)
    finding = found(report, "mislabelled")
    lines = {place.line - 2 for place in finding.places}
    assert len(lines & set(wrong)) >= 2
    assert len(lines - set(wrong)) <= 1
    assert "labelled" in finding.places[0].detail
    assert [p.line for p in found(report, "mislabelled", "dev").places] == [3]


# --- rows that belong together -----------------------------------------------------------


TOGETHER = "group puts all rows of a label into one fold"


def by_one_author(label):
    """Rows of two moods by many, four of them wrong, and ten of another label by one author."""
    rows = [
        [f"the {t} was {w} .", mood, f"{w} {t}"]
        for mood, own in WORDS.items()
        for w in own
        for t in THINGS
    ]
    for row in (3, 17, 45, 71):
        rows[row][1] = "bad" if rows[row][1] == "good" else "good"
    rows += [[f"of a {thing} , ?", label, "one"] for thing in THINGS]
    told = [",".join([str(i), *row]).replace(" , ", " ") for i, row in enumerate(rows)]
    return "\n".join(["id,text,label,author", *told])


def test_a_label_of_one_group_is_not_suspected(write_recipe):
    dev = "id,text,label\n1,the film was superb .,odd\n2,the walk was awful .,good\n"
    names = {"labels": ["bad", "good", "odd", "never"], "group": "author"}
    report = check_recipe(write_recipe(by_one_author("odd"), dev, **names), mislabelled=True)
    note, train, dev = [f for f in report.findings if f.check == "mislabelled"]
    assert note.sentence.startswith(f"{TOGETHER} (odd)")
    assert note.sentence.endswith("so those rows are not looked at")
    assert not [place for place in train.places if place.line > 81]
    assert len({place.line - 2 for place in train.places} & {3, 17, 45, 71}) >= 2
    assert [place.line for place in dev.places] == [3]
