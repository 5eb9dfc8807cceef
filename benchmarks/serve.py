"""Ask a server with many clients at once, beside FastAPI around transformers' pipeline.

    python benchmarks/serve.py [--run RUN --task TASK] [--seconds 30] [--clients 64]

Both sides have the same weights: a BERT with pooler and one linear layer, in fp32 for the peer and
in what `plait serve` chooses for plait. Without --run, one is trained on the sample inside plait
first (a minute or two). Each client sends a pair of texts, waits for the answer and sends the next;
texts are of 3 to 60 words, and one request in twenty is broken. The peer answers each request by
itself, on FastAPI's threads, with as many threads as torch takes.

All servers are up from the beginning; they are asked in turns, each for --seconds in all, while the
others wait. In each turn plait's model also answers the same texts by itself, without a server: the
floor, below which no request can cost. What must hold: every request is answered, the broken ones
with a 4xx, none with a 5xx, and the server's memory does not grow. The CPU time of a request is
told as well, which other programs on the machine change less.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.error import HTTPError
from urllib.request import urlopen

import cpu_predict
import numpy as np
import records
import torch

import plait

if TYPE_CHECKING:
    from collections.abc import Iterator

BROKEN = (
    b'{"inputs": ',
    b'{"inputs": []}',
    b'{"inputs": [["a"]]}',
    b"[]",
)
TURNS = 6
SETTLE_SECONDS = 2.0
"""Of each turn, before memory and requests are counted."""
FLOOR_BATCH = 32

PEER = """
import sys
from fastapi import FastAPI
from pydantic import BaseModel, Field
from transformers import pipeline
import uvicorn

app = FastAPI()
pipe = pipeline("text-classification", model=sys.argv[1], device="cpu")

class Request(BaseModel):
    inputs: list[tuple[str, str]] = Field(min_length=1)

@app.post("/v1/predict")
def predict(request: Request):
    return pipe([{"text": a, "text_pair": b} for a, b in request.inputs], truncation=True)

uvicorn.run(app, port=int(sys.argv[2]), log_level="warning", access_log=False)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", type=Path, help="a run with pooling cls-pooler and a linear head")
    parser.add_argument("--task", default="paraphrase")
    parser.add_argument("--encoder", default="packaged")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--out", type=Path, help="write the record here, not to benchmarks/records")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as stack:
        run = args.run or cpu_predict.train(args.encoder, Path(temporary) / "run")
        hub = Path(temporary) / "hub"
        cpu_predict.save_for_hub(run, args.task, hub, 64)
        servers = {
            name: stack.enter_context(start(command))
            for name, command in commands(run, hub, args).items()
        }
        floor = Floor(run, args.task)
        bodies = make_bodies(args.task)
        for _ in range(TURNS):
            for server in servers.values():
                server.measure(bodies, args.clients, args.seconds / TURNS)
            floor.measure(bodies, args.seconds / TURNS / 2)
    report({name: figures(server) for name, server in servers.items()}, floor.figures(), args)


def commands(run: Path, hub: Path, args: argparse.Namespace) -> dict[str, list[str]]:
    """Return what starts each side, but for its port."""
    found = {"FastAPI and pipeline": [sys.executable, "-c", PEER, str(hub)]}
    for workers in args.workers:
        name = f"plait serve, {workers} worker{'s' * (workers > 1)}"
        found[name] = [sys.executable, "-m", "plait", "serve", str(run)]
        found[name] += ["--workers", str(workers), "--port"]
    return found


# --- clients -----------------------------------------------------------------------------


@dataclass
class Seen:
    """What clients saw."""

    latencies: list[float] = field(default_factory=list)
    moments: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    lost: int = 0
    wrong: int = 0
    """Broken requests that were not refused, and good ones that were."""


def make_bodies(task: str, count: int = 2000) -> list[tuple[bytes, bool]]:
    """Make requests, always the same: texts of 3 to 60 words, one in twenty broken."""
    draw = random.Random(0)
    words = [w for pair in cpu_predict.read_pairs(None, 200) for text in pair for w in text.split()]
    bodies = []
    for i in range(count):
        if i % 20 == 7:
            bodies.append((draw.choice(BROKEN), False))
            continue
        length = round(3 * 20 ** draw.random())  # many short ones, few long
        pair = [" ".join(draw.choices(words, k=length)) for _ in range(2)]
        bodies.append((json.dumps({"inputs": [pair], "tasks": [task]}).encode(), True))
    return bodies


async def ask(host: tuple[str, int], bodies: list[Any], number: int, until: float, seen: Seen):
    """Be a client that speaks plain HTTP/1.1 on one connection, which costs it little."""
    reader = writer = None
    place = number * 31
    while time.monotonic() < until:
        body, is_good = bodies[place % len(bodies)]
        place += 1
        began = time.monotonic()
        try:
            if writer is None or writer.is_closing():
                reader, writer = await asyncio.open_connection(*host)
            head = (
                f"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
            )
            writer.write(head.encode() + b"Content-Type: application/json\r\n\r\n" + body)
            status, keep = await read_response(reader)
        except (OSError, asyncio.IncompleteReadError, ValueError):
            seen.lost += 1
            writer = None
            continue
        now = time.monotonic()
        seen.statuses[status] += 1
        seen.wrong += is_good != (status == 200)
        if is_good:
            seen.latencies.append(now - began)
            seen.moments.append(now)
        if not keep:
            writer.close()
            writer = None
    if writer is not None:
        writer.close()


async def read_response(reader: asyncio.StreamReader) -> tuple[int, bool]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    length = re.search(r"content-length: (\d+)", head)
    await reader.readexactly(int(length[1]) if length else 0)
    return int(head.split(" ", 2)[1]), "connection: close" not in head


# --- servers -----------------------------------------------------------------------------


@dataclass
class Server:
    """A server that is up, and what was seen of it so far."""

    port: int
    pid: int
    seen: Seen = field(default_factory=Seen)
    latencies: list[float] = field(default_factory=list)
    """Of good requests, in seconds, as far as they count."""
    rates: list[float] = field(default_factory=list)
    cpu_seconds: float = 0.0
    memory: list[float] = field(default_factory=list)

    def measure(self, bodies: list[tuple[bytes, bool]], clients: int, seconds: float) -> None:
        """Ask for some time, and look at its memory meanwhile."""
        seen = Seen(statuses=self.seen.statuses, lost=self.seen.lost, wrong=self.seen.wrong)
        start = time.monotonic() + SETTLE_SECONDS
        until = start + seconds
        uses: list[Use] = []

        async def watch() -> None:
            await asyncio.sleep(SETTLE_SECONDS)
            while time.monotonic() < until:
                uses.append(look_at(self.pid))
                await asyncio.sleep(min(1.0, max(0.0, until - time.monotonic())))
            uses.append(look_at(self.pid))

        async def go() -> None:
            host = ("127.0.0.1", self.port)
            people = [ask(host, bodies, i, until, seen) for i in range(clients)]
            await asyncio.gather(watch(), *people)

        asyncio.run(go())
        moments = np.array(seen.moments)
        inside = (moments >= start) & (moments < until)
        self.seen = seen
        self.latencies += np.array(seen.latencies)[inside].tolist()
        self.rates.append(float(inside.sum()) / seconds)
        self.cpu_seconds += uses[-1].cpu_seconds - uses[0].cpu_seconds
        self.memory += [use.mib for use in uses]


@contextmanager
def start(command: list[str]) -> Iterator[Server]:
    """Start a server, and end it."""
    port = free_port()
    environment = os.environ | {"TOKENIZERS_PARALLELISM": "false"}
    process = subprocess.Popen(
        [*command, str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
    )
    try:
        wait_for(port, process)
        yield Server(port, process.pid)
    finally:
        process.terminate()
        process.wait(60)


def figures(server: Server) -> dict[str, Any]:
    latencies = np.array(server.latencies) * 1000
    third = max(1, len(server.memory) // 3)
    parts = (server.memory[:third], server.memory[-third:])
    return records.spread(server.rates) | {
        "p50_ms": round(float(np.percentile(latencies, 50)), 1),
        "p99_ms": round(float(np.percentile(latencies, 99)), 1),
        "cpu_ms": round(1000 * server.cpu_seconds / max(1, len(latencies)), 2),
        "statuses": {str(k): v for k, v in sorted(server.seen.statuses.items())},
        "lost": server.seen.lost,
        "wrong": server.seen.wrong,
        "memory_mib": [round(float(np.median(part))) for part in parts],
    }


class Floor:
    """plait's model in this process, asked without a server, on one core."""

    def __init__(self, run: Path, task: str):
        self.model, self.task = plait.load(run, device="cpu", precision="auto"), task
        self.rates: list[float] = []
        self.cpu_seconds, self.num_rows = 0.0, 0

    def measure(self, bodies: list[tuple[bytes, bool]], seconds: float) -> None:
        """Answer the good requests' texts for some time."""
        pairs = [tuple(json.loads(body)["inputs"][0]) for body, is_good in bodies if is_good]
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # several would wait for each other, which takes CPU time, too
        count, cpu, began = 0, time.process_time(), time.monotonic()
        while time.monotonic() < began + seconds:
            some = [pairs[(count + i) % len(pairs)] for i in range(FLOOR_BATCH)]
            self.model.answer_together((self.task,), self.model.tokenise(some))
            count += FLOOR_BATCH
        torch.set_num_threads(threads)
        self.rates.append(count / (time.monotonic() - began))
        self.cpu_seconds += time.process_time() - cpu
        self.num_rows += count

    def figures(self) -> dict[str, Any]:
        """Return rows a second, and the CPU time of one."""
        return records.spread(self.rates) | {
            "cpu_ms": round(1000 * self.cpu_seconds / self.num_rows, 2)
        }


def wait_for(port: int, server: subprocess.Popen[bytes]) -> None:
    """Wait until a server answers HTTP, with whatever status."""
    until = time.monotonic() + 180
    while time.monotonic() < until and server.poll() is None:
        try:
            urlopen(f"http://127.0.0.1:{port}/", timeout=60).close()
            return
        except HTTPError:
            return
        except OSError:
            time.sleep(0.2)
    raise SystemExit("the server did not come up")


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Use(NamedTuple):
    """What a process and those it started have taken."""

    mib: float = 0.0
    cpu_seconds: float = 0.0


def look_at(pid: int) -> Use:
    """Return a server's use; nothing where there is no /proc."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        times = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        threads = Path(f"/proc/{pid}/task").iterdir()
        children = [c for thread in threads for c in (thread / "children").read_text().split()]
    except OSError:
        return Use()
    resident = re.search(r"VmRSS:\s+(\d+)", status)
    uses = [look_at(int(child)) for child in children]
    return Use(
        int(resident[1] if resident else 0) / 1024 + sum(use.mib for use in uses),
        sum(map(int, times)) / os.sysconf("SC_CLK_TCK") + sum(use.cpu_seconds for use in uses),
    )


# --- the record --------------------------------------------------------------------------


def report(sides: dict[str, Any], floor: dict[str, Any], args: argparse.Namespace) -> None:
    print(f"the model alone, on one core: {floor['median']:.1f} rows/s, CPU {floor['cpu_ms']} ms")
    for name, side in sides.items():
        print(
            f"{name:32} {side['median']:7.1f} requests/s  p50 {side['p50_ms']} ms  "
            f"p99 {side['p99_ms']} ms  CPU {side['cpu_ms']} ms  lost {side['lost']}  "
            f"wrong {side['wrong']}  {side['statuses']}  MiB {side['memory_mib']}"
        )
    peers = {name: side for name, side in sides.items() if not name.startswith("plait")}
    ours = {name: side for name, side in sides.items() if name.startswith("plait")}
    ((peer_name, peer),) = peers.items()
    ratios = {name: round(side["median"] / peer["median"], 2) for name, side in ours.items()}
    best = max(ours, key=lambda name: ours[name]["median"])
    settings = {"clients": args.clients, "seconds": args.seconds, "words": "3 to 60"}
    settings |= {"broken": "1 in 20", "encoder": args.encoder}
    latencies = "; ".join(
        f"{name}: {s['p50_ms']:,} and {s['p99_ms']:,} ms, {s['cpu_ms']} ms of CPU a request"
        for name, s in sides.items()
    )
    failed = {n: sum(v for k, v in s["statuses"].items() if k >= "500") for n, s in ours.items()}
    held = "; ".join(
        f"{name}: {s['lost']} lost, {failed[name]} with a 5xx, "
        f"{s['memory_mib'][0]:,} MiB at first and {s['memory_mib'][1]:,} at the end"
        for name, s in ours.items()
    )
    alone = "plait's model alone, without a server, on one core: "
    alone += f"{floor['median']:,.0f} rows/s, {floor['cpu_ms']} ms of CPU a row"
    records.write(
        "serve",
        args.out,
        settings=settings,
        unit="requests/s",
        best_peer=peer_name,
        peers=peers,
        plait=ours,
        ratios=ratios,
        goals={best: 4.0},
        floor=floor,
        note=f"Latencies, median and 99th percentile: {latencies}. {held}. {alone}.",
    )


if __name__ == "__main__":
    main()
