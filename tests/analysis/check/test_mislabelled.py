"""Wrong labels are suspected by classifiers that are what they claim to be."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from plait.analysis.check import check_recipe
from plait.analysis.check.mislabelled import (
    NUM_FOLDS,
    find_suspects,
    fit_classes,
    fit_scores,
    fold_of,
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


def test_the_ridge_regression_is_sklearns():
    linear_model = pytest.importorskip("sklearn.linear_model")
    features, labels = blobs(5)
    scaled = ((features - features.mean(0)) / features.std(0)).numpy()
    expected = linear_model.Ridge(alpha=7.0).fit(scaled, labels.numpy()).predict(scaled)
    ours = fit_scores(features, labels.double(), 7.0)(features).numpy()
    np.testing.assert_allclose(ours, expected, atol=1e-8)


def test_one_row_has_no_spread_and_is_fitted_all_the_same():
    features = torch.tensor([[1.0, 2.0]], dtype=torch.double)
    assert fit_classes(features, torch.tensor([1]), 2, 1.0)(features).argmax() == 1
    assert fit_scores(features, torch.tensor([3.0]).double(), 1.0)(features) == 3.0


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


def test_equal_rows_are_in_one_fold():
    prints = np.random.default_rng(0).integers(0, 30, 200).astype(np.uint64)
    folds = fold_of(prints, 1)
    assert {len(set(folds[prints == p])) for p in np.unique(prints)} == {1}
    assert set(folds) == set(range(NUM_FOLDS))


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


def test_labels_without_sense_are_not_judged(write_recipe, found):
    draw = np.random.default_rng(0).integers(0, 2, 60)
    rows = [f"{i},the {THINGS[i % 10]} {i} .,{('good', 'bad')[k]}" for i, k in enumerate(draw)]
    report = check_recipe(write_recipe("\n".join(["id,text,label", *rows])), mislabelled=True)
    assert "cannot tell the labels apart" in found(report, "mislabelled").sentence


# --- rows that belong together -----------------------------------------------------------

NO_WORD = "cannot tell the labels apart"


def by_authors(name="by {thing}"):
    """Eighty rows by ten authors, who write of one thing each; half of them say it is good."""
    mood = dict(zip(THINGS, ["good", "bad", "bad", "good", "bad"] * 2, strict=True))
    told = [
        f"{i},{thing} {i},{mood[thing]},{name.format(thing=thing)}"
        for i, thing in enumerate(THINGS * 8)
    ]
    return "\n".join(["id,text,label,author", *told])


def sentences(report):
    return " ".join(f.sentence for f in report.findings if f.check == "mislabelled")


def test_rows_of_one_author_are_asked_about_together(write_recipe):
    """What an author writes of tells the label of all their rows, and of no one else's."""
    rows = by_authors()
    assert NO_WORD not in sentences(check_recipe(write_recipe(rows, None), mislabelled=True))
    for naming in ({"group": "author"}, {"train": [{"path": "train.csv", "group": "author"}]}):
        report = check_recipe(write_recipe(rows, None, **naming), mislabelled=True)
        assert NO_WORD in sentences(report), naming


def test_a_row_without_an_author_goes_by_its_own_text(write_recipe, monkeypatch):
    dealt = []

    def deal(groups, seed):
        dealt.append(groups)
        return fold_of(groups, seed)

    monkeypatch.setattr("plait.analysis.check.mislabelled.fold_of", deal)
    rows = by_authors().replace("by film", "")
    check_recipe(write_recipe(rows, None, group="author"), mislabelled=True)
    assert len(np.unique(dealt[0])) == 9 + 8


def test_one_group_leaves_nothing_to_learn_from(write_recipe, found):
    recipe = write_recipe(by_authors("the same"), None, group="author")
    told = found(check_recipe(recipe, mislabelled=True), "mislabelled")
    assert "all rows belong together" in told.sentence


def test_a_group_column_that_is_not_there_stops_no_search(write_recipe):
    """Training without folds does not miss it, so nothing says that it would stop."""
    recipe = write_recipe(by_authors(), None, group="auther")
    report = check_recipe(recipe, mislabelled=True)
    (warning,) = [f for f in report.findings if f.check == "files" and f.split == "train"]
    assert warning.level == "warning"
    assert "train.csv: there is no column 'auther'" in warning.sentence
    assert report.splits[0].num_rows == 80
    assert NO_WORD not in sentences(report)
    assert not [f for f in check_recipe(recipe).findings if "auther" in f.sentence]
    folds = recipe.model_copy(update={"data": recipe.data.model_copy(update={"folds": 2})})
    assert check_recipe(folds, mislabelled=True).stops


TOGETHER = "group puts all rows of a label into one fold"


def test_a_group_that_is_the_label_is_not_the_encoders_fault(write_recipe, found):
    recipe = write_recipe(by_authors(), group="label")
    told = found(check_recipe(recipe, mislabelled=True), "mislabelled")
    assert told.sentence.startswith(f"{TOGETHER} (bad, good)")
    assert told.sentence.endswith("so no row is suspected")
    assert "does not follow from the label" in told.advice


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


def test_dev_may_have_no_other_label(write_recipe):
    names = {"labels": ["bad", "good", "odd"], "group": "author"}
    dev = "id,text,label\n1,the film was superb .,odd\n"
    report = check_recipe(write_recipe(by_one_author("odd"), dev, **names), mislabelled=True)
    told = [f.split for f in report.findings if f.check == "mislabelled"]
    assert told == ["train", "train"]


def test_a_label_of_one_row_is_no_groups_fault(write_recipe):
    rows = by_one_author("odd").splitlines()[:82]
    names = {"labels": ["bad", "good", "odd"], "group": "author"}
    report = check_recipe(write_recipe("\n".join(rows), None, **names), mislabelled=True)
    assert TOGETHER not in sentences(report)


def test_what_groups_leave_may_be_in_one_fold(write_recipe, found, monkeypatch):
    """Two labels of one text each, twenty times; whoever is asked about them has seen neither."""
    texts = [("bad", "the film was awful ."), ("good", "the book was great .")] * 20
    rows = [f"{i},{text},{label}," for i, (label, text) in enumerate(texts)]
    rows += [f"{40 + i},of a {thing} ?,odd,one" for i, thing in enumerate(THINGS)]
    monkeypatch.setattr(
        "plait.analysis.check.mislabelled.fold_of",
        lambda groups, _: (np.arange(len(groups)) >= 40) * 1,
    )
    names = {"labels": ["bad", "good", "odd"], "group": "author"}
    text = "\n".join(["id,text,label,author", *rows])
    told = found(check_recipe(write_recipe(text, None, **names), mislabelled=True), "mislabelled")
    assert told.sentence.endswith("so no row is suspected")


def test_many_labels_are_not_all_named(write_recipe, found):
    names = [f"mood {i}" for i in range(5)]
    rows = [f"{i},{THINGS[i % 10]} {i},{names[i % 5]}" for i in range(60)]
    recipe = write_recipe("\n".join(["id,text,label", *rows]), None, labels=names, group="label")
    told = found(check_recipe(recipe, mislabelled=True), "mislabelled")
    assert told.sentence.startswith(f"{TOGETHER} (mood 0, mood 1, mood 2 and 2 more)")
