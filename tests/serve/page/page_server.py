"""A server for browsers, in a thread, and what several tests of the page know."""

from __future__ import annotations

import io
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn

from plait.serve.app import make_app
from plait.serve.errands import Errands
from plait.serve.keys import Keys
from plait.serve.limits import Limits
from plait.serve.logs import Log
from plait.serve.models import Models

HTML = "<img src=x onerror=alert(1)>"
"""A label, and whatever else, that must stay a text."""

SCREENSHOTS = os.environ.get("PLAIT_SCREENSHOTS")
"""A folder with the runs that docs/images is to show; they are taken anew then."""


@contextmanager
def open_server(
    models: Models, runs: Path, *keys: str, port: int = 0, **more: Any
) -> Iterator[str]:
    folders = {path.name: path for path in runs.iterdir()}
    app = make_app(
        models.catalog,
        [models],
        limits=Limits(text_chars=2000),
        keys=Keys(list(keys)),
        log=Log(io.StringIO()),
        folders=folders,
        errands=Errands(device="cpu"),
        **more,
    )
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_config=None, access_log=False))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join(30)
