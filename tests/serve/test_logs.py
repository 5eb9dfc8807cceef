"""Lines of the log: JSON, one an event, whatever happens."""

from __future__ import annotations

import io
import json
import logging

import pytest

from plait.serve.logs import Log


@pytest.fixture(autouse=True)
def _own_logger():
    logger = logging.getLogger("uvicorn")
    before = (logger.handlers, logger.propagate, logger.level)
    yield
    logger.handlers, logger.propagate = before[:2]
    logger.setLevel(before[2])


def test_a_line_is_one_line():
    stream = io.StringIO()
    Log(stream).write("thing", level="warning", words='a"\nb', nothing=None, number=1)
    (line,) = stream.getvalue().splitlines()
    assert json.loads(line) | {"time": 0} == {
        "time": 0,
        "level": "warning",
        "event": "thing",
        "words": 'a"\nb',
        "number": 1,
    }


def test_what_uvicorn_says_is_a_line_without_a_traceback():
    stream = io.StringIO()
    Log(stream).capture()
    try:
        raise ValueError("secret")
    except ValueError:
        logging.getLogger("uvicorn.error").exception("it failed")
    logging.getLogger("uvicorn.error").info("not worth a line")
    (line,) = map(json.loads, stream.getvalue().splitlines())
    assert (line["level"], line["message"]) == ("error", "it failed")
    assert line["where"].startswith(__file__)
    assert "secret" not in stream.getvalue()


def test_a_reader_that_went_away_is_no_error():
    stream = io.StringIO()
    stream.close()
    Log(stream).write("thing")
