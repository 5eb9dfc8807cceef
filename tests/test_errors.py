"""The exception tree, its exit codes, and suggestions."""

from __future__ import annotations

import pytest

from plait import errors


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.PlaitError, 1),
        (errors.RecipeError, 2),
        (errors.DataError, 2),
        (errors.EncoderError, 2),
        (errors.RunError, 2),
        (errors.DeviceMemoryError, 1),
        (errors.DiskFullError, 1),
        (errors.Interrupted, 130),
    ],
)
def test_exit_codes(error, code):
    assert error.exit_code == code


def test_the_docstring_draws_every_error():
    tree = [
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, errors.PlaitError)
    ]
    assert len(tree) > 5
    assert [e.__name__ for e in tree if e.__name__ not in (errors.__doc__ or "")] == []


@pytest.mark.parametrize(
    ("where", "text"),
    [
        ({}, "no label"),
        ({"path": "a.csv"}, "a.csv: no label"),
        ({"path": "a.csv", "line": 7}, "a.csv, line 7: no label"),
    ],
)
def test_data_errors_say_where(where, text):
    error = errors.DataError("no label", **where)
    assert str(error) == text
    assert (error.path, error.line) == (where.get("path"), where.get("line"))


@pytest.mark.parametrize(
    ("name", "known", "text"),
    [
        ("epoch", ["lr", "epochs"], "; did you mean 'epochs'?"),
        ("zzz", ["lr", "epochs"], "; known: epochs, lr"),
        ("zzz", [], ""),
    ],
)
def test_suggest(name, known, text):
    assert errors.suggest(name, known) == text


def test_out_of_memory_is_told_and_other_words_on_memory_are_not():
    short = "DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"
    assert isinstance(errors.foresee(RuntimeError(short)), errors.ResourceError)
    for ours in ("CUDA error: an illegal memory access was encountered", "wrong memory format"):
        assert errors.foresee(RuntimeError(ours)) is None


def test_one_thing_and_many():
    counted = errors.counted
    assert [counted(n, "row") for n in (0, 1, 1200)] == ["0 rows", "1 row", "1,200 rows"]
    assert [counted(n, "batch", "batches") for n in (1, 2)] == ["1 batch", "2 batches"]
