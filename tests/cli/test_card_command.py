"""`plait card`: printed, or written into the run's folder."""

from __future__ import annotations

import shutil

from plait.inference.card import BEGIN, END, make_card


def test_it_is_printed(plait, trained):
    done = plait("card", trained)
    assert (done.code, done.err) == (0, "")
    assert done.out == make_card(trained)


def test_it_is_written_again(plait, trained, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    (run / "card.md").unlink()
    done = plait("card", run, "--write")
    assert (done.code, done.out) == (0, f"The card is in {run / 'card.md'}.\n")
    text = (run / "card.md").read_text(encoding="utf-8")
    assert text == f"{BEGIN}\n\n{make_card(run)}\n{END}\n"


def test_what_was_there_is_kept_beside_it(plait, trained, tmp_path):
    run = shutil.copytree(trained, tmp_path / "run")
    (run / "card.md").write_text("# Ours\n", encoding="utf-8")
    done = plait("card", run, "--write")
    (aside,) = run.glob("card-*.md")
    assert done.out.endswith(f" The previous card is in {aside}.\n")
    assert aside.read_text(encoding="utf-8") == "# Ours\n"


def test_what_is_no_run(plait, tmp_path):
    assert "there is no run at" in plait("card", tmp_path / "nowhere").complaint()
    assert "is neither a run nor an ensemble" in plait("card", tmp_path).complaint()


def test_a_recipe_without_a_model(plait, trained, tmp_path):
    shutil.copy(trained / "recipe.toml", tmp_path)
    said = plait("card", tmp_path).complaint()
    assert f"has a recipe and no model; train it with `plait train {tmp_path}" in said
    (tmp_path / "export.json").write_text("{}", encoding="utf-8")  # beside it lies an export's
    assert plait("card", tmp_path).code == 0
