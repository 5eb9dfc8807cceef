"""The application on a port: workers are started, then requests come in until somebody stops it."""

from __future__ import annotations

import os
import signal
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING

import uvicorn

from plait.errors import ResourceError, UsageError
from plait.serve.app import make_app
from plait.serve.errands import Errands
from plait.serve.heads import limit_heads
from plait.serve.pool import Died
from plait.serve.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from plait.serve.catalog import Catalog
    from plait.serve.keys import Keys
    from plait.serve.limits import Limits
    from plait.serve.logs import Log
    from plait.serve.parcels import RunsToLoad

BACKLOG = 2048
"""Connections that may wait to be accepted."""


def serve(
    wanted: RunsToLoad,
    *,
    host: str,
    port: int,
    num_workers: int,
    limits: Limits,
    keys: Keys,
    log: Log,
    local_only: bool,
    log_texts: bool = False,
    reports: bool = True,
    data: str | None = None,
    ready: Callable[[str, Catalog], None],
) -> None:
    """Serve runs until SIGINT or SIGTERM; what was accepted until then is answered.

    `reports` says whether reports and mistakes are shown, and `data` where their rows are, if not
    where recipes say. `ready` is called with the address and what is served, once requests can
    come.
    """
    with _bind(host, port) as listener, _workers(wanted, num_workers, limits) as workers:
        catalogs = [worker.wait() for worker in workers]
        app = make_app(
            catalogs[0],
            workers,
            limits=limits,
            keys=keys,
            log=log,
            local_only=local_only,
            log_texts=log_texts,
            folders=wanted.folders,
            errands=Errands(data, wanted.device, log) if reports else None,
        )
        log.capture()
        config = uvicorn.Config(
            app,
            http=limit_heads(limits),
            ws="none",  # nothing here speaks it, and the gate does not watch it
            log_config=None,
            access_log=False,
            server_header=False,
            backlog=BACKLOG,
            timeout_graceful_shutdown=int(limits.seconds) + 1,
        )
        number = listener.getsockname()[1]
        shown = f"[{host}]" if ":" in host else host
        for i, worker in enumerate(workers):
            log.write("worker_started", worker=i, pid=worker.pid)
        log.write("started", host=host, port=number, runs=list(catalogs[0].runs))
        listener.listen(BACKLOG)  # who comes at once waits a moment rather than being refused
        ready(f"http://{shown}:{number}", catalogs[0])
        # uvicorn hands a signal on when it is done; an orderly end is no error.
        signal.signal(signal.SIGTERM, lambda *_: None)
        uvicorn.Server(config).run(sockets=[listener])
        log.write("stopped")


@contextmanager
def _bind(host: str, port: int) -> Iterator[socket.socket]:
    """Take a port before anything slow begins."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as error:
        raise UsageError(f"--host {host} is no address of this machine") from error
    with socket.socket(family, kind) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
        except (OSError, OverflowError) as error:
            told = getattr(error, "strerror", None) or str(error)
            raise UsageError(
                f"port {port} of {host} cannot be had ({told.lower()}); choose another with --port"
            ) from error
        yield listener


@contextmanager
def _workers(wanted: RunsToLoad, number: int, limits: Limits) -> Iterator[list[Worker]]:
    """Start workers, each with its part of the CPU's cores; end them all."""
    if wanted.threads is None and number > 1:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        wanted = wanted._replace(threads=max(1, (cores or 1) // number))
    workers = [Worker(wanted, limits.seconds) for _ in range(number)]
    try:
        yield workers
    except Died as error:
        raise ResourceError(f"{error} while it was loading; it may lack memory") from error
    finally:
        for worker in workers:
            worker.close()
