"""`plait serve` as a process: a port, signals, workers that are killed."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

BODY = {"inputs": ["the film was great .", "a dull walk"], "tasks": ["mood"]}


class Server:
    """A running server."""

    def __init__(self, process: subprocess.Popen[str], log: Path):
        self.process, self._log = process, log
        self.address = ""

    def wait(self) -> None:
        assert self.process.stderr is not None
        told = []
        for line in self.process.stderr:
            told.append(line)
            if found := re.match(r"(http://\S+) is open", line):
                self.address = found[1]
                return
        raise AssertionError("".join(told))

    def log(self, event: str) -> list[dict[str, object]]:
        lines = [json.loads(line) for line in self._log.read_text("utf-8").splitlines()]
        return [line for line in lines if line["event"] == event]

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(how)
        return self.process.wait(60)


@contextmanager
def running(folder: Path, *words: object) -> Iterator[Server]:
    log = folder / "log.jsonl"
    command = [sys.executable, "-m", "plait", "serve", "--port", "0", "--device", "cpu"]
    environment = {k: v for k, v in os.environ.items() if k != "PLAIT_KEYS"}
    with log.open("w", encoding="utf-8") as out:
        process = subprocess.Popen(
            [*command, "--precision", "fp32", *map(str, words)],
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
            env=environment | {"OMP_NUM_THREADS": "1"},
        )
    try:
        server = Server(process, log)
        server.wait()
        yield server
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


def test_a_killed_worker_loses_nothing_and_is_replaced(tiny_run, tmp_path):
    with running(tmp_path, tiny_run, "--workers", 2) as server:
        (first, second) = [line["pid"] for line in server.log("worker_started")]
        with httpx.Client(base_url=server.address, timeout=60) as client:
            expected = client.post("/v1/predict", json=BODY).json()

            def ask(number):
                if number in (20, 60):
                    os.kill((first if number == 20 else second), signal.SIGKILL)
                return client.post("/v1/predict", json=BODY)

            with ThreadPoolExecutor(8) as people:
                answers = list(people.map(ask, range(120)))
            assert {answer.status_code for answer in answers} == {200}
            for answer in answers:
                for one, other in zip(answer.json()["answers"], expected["answers"], strict=True):
                    assert one["mood"]["label"] == other["mood"]["label"]
            until = time.monotonic() + 60
            while len(server.log("worker_restarted")) < 2 and time.monotonic() < until:
                time.sleep(0.2)
            assert len(server.log("worker_restarted")) == 2
            assert client.get("/readyz").status_code == 200
        assert server.stop() == 0
        assert len(server.log("stopped")) == 1


def test_what_was_accepted_is_answered_after_the_signal(tiny_run, tmp_path):
    """Rows wait seconds for company, so that the signal comes while they do."""
    with running(tmp_path, tiny_run, "--wait-ms", 4000, "--batch-size", 64) as server:
        limits = httpx.Limits(max_connections=40)
        with (
            httpx.Client(base_url=server.address, timeout=60, limits=limits) as client,
            ThreadPoolExecutor(20) as people,
        ):
            waiting = [people.submit(client.post, "/v1/predict", json=BODY) for _ in range(20)]
            wait_for(client, "plait_queue_rows 40.0")
            assert server.stop(signal.SIGTERM) == 0
            assert [one.result().status_code for one in waiting] == [200] * 20
            with pytest.raises(httpx.ConnectError):
                client.get("/healthz")


def test_rows_of_a_closed_connection_are_dropped_and_no_others(tiny_run, tmp_path):
    """Rows wait ten seconds for company that fills their parcel of four."""
    with running(tmp_path, tiny_run, "--wait-ms", 10_000, "--batch-size", 4) as server:
        with (
            httpx.Client(base_url=server.address, timeout=50) as client,
            ThreadPoolExecutor(2) as people,
        ):
            staying = people.submit(client.post, "/v1/predict", json=BODY)
            wait_for(client, "plait_queue_rows 2.0")
            body = json.dumps({"inputs": "the film was great .", "tasks": "mood"}).encode()
            head = (
                f"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
            )
            port = int(server.address.rpartition(":")[2])
            with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
                kind = "Content-Type: application/json\r\n\r\n"
                connection.sendall((head + kind).encode() + body)
                wait_for(client, "plait_queue_rows 3.0")
            wait_for(client, "plait_dropped_rows_total 1.0")
            wait_for(client, "plait_queue_rows 2.0")
            coming = people.submit(client.post, "/v1/predict", json=BODY)
            for answer in (staying.result(), coming.result()):
                assert answer.status_code == 200
                assert len(answer.json()["answers"]) == 2
            told = client.get("/metrics").text
            assert "plait_batch_rows_sum 4.0" in told
            assert 'plait_problems_total{code="gone"} 1.0' in told
            assert 'status="5' not in told
        (gone,) = [line for line in server.log("request") if line.get("code") == "gone"]
        assert (gone["status"], gone["inputs"]) == (499, 1)
        assert server.stop() == 0


def wait_for(client: httpx.Client, figure: str) -> None:
    until = time.monotonic() + 30
    while f"{figure}\n" not in client.get("/metrics").text:
        assert time.monotonic() < until
        time.sleep(0.02)


def test_ctrl_c_and_keys_and_a_folder_of_runs(tiny_run, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("0123456789abcdef\n")
    with running(tmp_path, "--runs", tiny_run.parent, "--key-file", keys) as server:
        with httpx.Client(base_url=server.address, timeout=60) as client:
            assert client.get("/v1/runs").status_code == 401
            headers = {"Authorization": "Bearer 0123456789abcdef"}
            told = client.get("/v1/runs", headers=headers).json()
            assert [run["name"] for run in told["runs"]] == ["run"]
            assert told["shows_data"]
            assert "tiny" in [one["name"] for one in told["left_out"]]
            # Beside the run lie its data, which nobody can ask for.
            assert client.get("/v1/tasks", params={"run": "tiny"}, headers=headers).is_error
        assert server.stop(signal.SIGINT) == 130


def test_an_open_server_shows_no_data_and_outlives_clients_that_speak_no_http(tiny_run, tmp_path):
    with running(tmp_path, tiny_run, "--open") as server:
        assert not httpx.get(f"{server.address}/v1/runs").json()["shows_data"]
        port = int(server.address.rpartition(":")[2])
        for rubbish in (b"\x16\x03\x01\x00\xff", b"GET\r\n\r\n", b"POST / HTTP/9\r\n\r\n"):
            with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
                connection.sendall(rubbish)
                connection.shutdown(socket.SHUT_WR)
                assert b"Traceback" not in connection.recv(10_000)
        with httpx.Client(base_url=server.address, timeout=60) as client:
            raw = (
                b"GET /..%2f..%2fetc%2fpasswd HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            )
            with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
                connection.sendall(raw + b"\r\n")
                assert connection.recv(10_000).startswith(b"HTTP/1.1 404")
            assert client.post("/v1/predict", json=BODY).status_code == 200
        assert server.stop() == 0
