"""`plait train --jobs ray`: Ray's workers train one run, and begin again where one is lost."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest
from launching import HERE, STILL, TIMEOUT, environment, read_losses

from plait.config import read_recipe
from plait.training.runs import train

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None,  # not importorskip: Ray is imported when asked for
    reason="Ray is not installed (pip install 'plait[ray]')",
)


@pytest.fixture
def type_plait(tmp_path):
    """Factory: run a command of plait in a process of its own."""

    def run(*words):
        return subprocess.run(
            [sys.executable, "-m", "plait", *map(str, words)],
            env=environment(tmp_path / "cache"),
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )

    return run


def words(overrides):
    return [word for override in overrides for word in ("-o", override)]


@pytest.mark.nightly
def test_rays_workers_begin_again_and_come_to_the_same(type_plait, tiny_recipe, tmp_path):
    recipe, out, mark = tiny_recipe(), tmp_path / "run", tmp_path / "mark"
    killer = f"train.regularizers=[{{name='killer', rank=1, step=8, mark='{mark}'}}]"
    overrides = [*STILL, "save_every=3", "train.epochs=1", f"plugins=['{HERE / 'killer.py'}']"]
    overrides += [killer, "score_first=true"]
    whole = train(read_recipe(recipe, overrides), tmp_path / "whole").folder
    done = type_plait("train", recipe, "--out", out, "--jobs", "ray,workers=2", *words(overrides))
    assert done.returncode == 0, done.stderr
    assert mark.exists()
    assert "note: a worker was lost; all workers continue from the last checkpoint" in done.stderr
    assert "continuing after 6 updates" in done.stderr
    assert "best after 12 of 12 updates" in done.stdout
    for line, other in zip(read_losses(whole), read_losses(out), strict=True):
        assert other["losses"] == pytest.approx(line["losses"], rel=2e-4, abs=2e-5)
    assert {path.name for path in tmp_path.iterdir()} >= {"run", "whole"}
    assert not list(tmp_path.glob(".ray-*"))


@pytest.mark.nightly
def test_two_nodes_train_together(type_plait, tiny_recipe, tmp_path):
    """Two Ray nodes, each with room for one worker, as processes of this machine."""
    code = (
        "import subprocess, sys\n"
        "from ray.cluster_utils import Cluster\n"
        "cluster = Cluster(initialize_head=True, head_node_args={'num_cpus': 1})\n"
        "cluster.add_node(num_cpus=1)\n"
        "done = subprocess.run([*sys.argv[1:], f'ray:{cluster.address},workers=2'])\n"
        "cluster.shutdown()\n"
        "sys.exit(done.returncode)\n"
    )
    command = [sys.executable, "-m", "plait", "train", str(tiny_recipe()), "--out"]
    command += [str(tmp_path / "run"), "--jobs"]
    done = subprocess.run(
        [sys.executable, "-c", code, *command],
        env=environment(tmp_path / "cache"),
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "scores.json").exists()


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--workers", "2"], "use --jobs ray,workers=N"),
        (["--jobs", "ray,runs=2"], "--jobs N is for several runs"),
        (["--jobs", "ray,workers=2,runs=2", "--each-alone"], "one after the other"),
        (["--jobs", "slurm"], "should be a number of processes, ray or"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_options_that_do_not_go_together_are_refused(capsys, tiny_recipe, tmp_path, more, told):
    from plait.cli import main

    with pytest.raises(SystemExit) as ended:
        main(["train", str(tiny_recipe()), "--out", str(tmp_path / "run"), *more])
    assert ended.value.code == 2
    assert told in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
