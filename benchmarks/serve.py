"""Ask a server with many clients at once, beside FastAPI around transformers' pipeline.

    python benchmarks/serve.py [--run RUN --task TASK] [--seconds 30] [--clients 64]

Both sides have the same weights: a BERT with pooler and one linear layer, in fp32 for the peer and
in what `plait serve` chooses for plait. Without --run, one is trained on the sample inside plait
first (a minute or two). Each client sends a pair of texts, waits for the answer and sends the next;
texts are of 3 to 60 words, and one request in twenty is broken. What must hold: every request is
answered, the broken ones with a 4xx, none with a 5xx, and the server's memory does not grow.
The CPU time of a request is also told, which other programs on the machine change less.
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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import cpu_predict
import numpy as np
import records

BROKEN = (
    b'{"inputs": ',
    b'{"inputs": []}',
    b'{"inputs": [["a"]]}',
    b"[]",
)
SETTLE_SECONDS = 5.0
"""Before memory and requests are counted."""

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
    parser.add_argument("--wait-ms", type=float, nargs="+", default=[5.0])
    parser.add_argument("--out", type=Path, help="write the record here, not to results/bench")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        run = args.run or cpu_predict.train(args.encoder, Path(temporary) / "run")
        hub = Path(temporary) / "hub"
        cpu_predict.save_for_hub(run, args.task, hub, 64)
        port = free_port()
        peer = [sys.executable, "-c", PEER, str(hub), str(port)]
        sides = {"FastAPI and pipeline": measure(peer, port, args)}
        for workers in args.workers:
            for wait in args.wait_ms:
                port = free_port()
                command = [sys.executable, "-m", "plait", "serve", str(run), "--port", str(port)]
                command += ["--workers", str(workers), "--wait-ms", str(wait)]
                name = f"plait serve, {workers} worker{'s' * (workers > 1)}"
                name += f", {wait:g} ms" if len(args.wait_ms) > 1 else ""
                sides[name] = measure(command, port, args)
    report(sides, args)


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


def measure(command: list[str], port: int, args: argparse.Namespace) -> dict[str, Any]:
    """Start a server, ask it for the time given, and look at its memory meanwhile."""
    environment = os.environ | {"TOKENIZERS_PARALLELISM": "false"}
    server = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment
    )
    try:
        wait_for(port, server)
        bodies, seen, uses = make_bodies(args.task), Seen(), []
        start = time.monotonic() + SETTLE_SECONDS
        until = start + args.seconds

        async def watch() -> None:
            while time.monotonic() < until:
                if time.monotonic() >= start:
                    uses.append(look_at(server.pid))
                await asyncio.sleep(1)

        async def go() -> None:
            host = ("127.0.0.1", port)
            people = [ask(host, bodies, i, until, seen) for i in range(args.clients)]
            await asyncio.gather(watch(), *people)

        asyncio.run(go())
    finally:
        server.terminate()
        server.wait(60)
    return figures(seen, uses, start, args.seconds)


def figures(seen: Seen, uses: list[Use], start: float, seconds: float) -> dict[str, Any]:
    moments = np.array(seen.moments)
    latencies = np.array(seen.latencies)[moments >= start] * 1000
    inside = moments[moments >= start] - start
    window = max(1.0, seconds / 6)
    rates = [
        float(((inside >= i * window) & (inside < (i + 1) * window)).sum() / window)
        for i in range(6)
    ]
    third = max(1, len(uses) // 3)
    memory = [use.mib for use in uses]
    cpu = uses[-1].cpu_seconds - uses[0].cpu_seconds
    return records.spread(rates) | {
        "p50_ms": round(float(np.percentile(latencies, 50)), 1),
        "p99_ms": round(float(np.percentile(latencies, 99)), 1),
        "cpu_ms": round(1000 * cpu / max(1, len(latencies)), 2),
        "statuses": {str(k): v for k, v in sorted(seen.statuses.items())},
        "lost": seen.lost,
        "wrong": seen.wrong,
        "memory_mib": [round(float(np.median(part))) for part in (memory[:third], memory[-third:])],
    }


def wait_for(port: int, server: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 180
    while time.monotonic() < until and server.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
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


def report(sides: dict[str, Any], args: argparse.Namespace) -> None:
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
        note=f"Latencies, median and 99th percentile: {latencies}. {held}.",
    )


if __name__ == "__main__":
    main()
