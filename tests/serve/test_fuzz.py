"""The application against requests made from its own description, right and wrong ones."""

from __future__ import annotations

import io
import threading
import time
from contextlib import suppress

import pytest
import uvicorn

from plait.serve.app import make_app
from plait.serve.keys import Keys
from plait.serve.limits import Limits
from plait.serve.logs import Log

schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")


@pytest.fixture(scope="module")
def address(models):
    """An application on a port of its own."""
    app = make_app(models.catalog, [models], limits=Limits(), keys=Keys([]), log=Log(io.StringIO()))
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, access_log=False))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join(30)


def fuzz(address, examples):
    """Ask each endpoint so many things; return how many were asked, by status."""
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis.errors import Unsatisfiable

    checks = schemathesis.checks
    wanted = [
        checks.not_a_server_error,
        *(
            check
            for check in checks.CHECKS.get_all()
            if check.__name__
            in (
                "status_code_conformance",
                "content_type_conformance",
                "response_schema_conformance",
            )
        ),
    ]
    schema = schemathesis.openapi.from_url(f"{address}/openapi.json")
    counts: dict[int, int] = {}
    for result in schema.get_all_operations():
        operation = result.ok()
        for mode in schemathesis.GenerationMode:

            @given(case=operation.as_strategy(generation_mode=mode))
            @settings(
                max_examples=examples,
                database=None,
                derandomize=True,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            def ask(case):
                response = case.call()
                counts[response.status_code] = counts.get(response.status_code, 0) + 1
                case.validate_response(response, checks=wanted)

            with suppress(Unsatisfiable):  # nothing can be wrong where nothing is asked
                ask()
    return counts


def test_nothing_breaks_it(address):
    counts = fuzz(address, 8)
    assert 200 in counts
    assert 422 in counts


@pytest.mark.slow
def test_nothing_breaks_it_for_long(address):
    assert sum(fuzz(address, 300).values()) > 1000
