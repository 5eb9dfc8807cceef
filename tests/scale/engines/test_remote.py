"""Jobs as tasks of Ray: answered, refused, lost and tried again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from plait.scale import Engine
from plait.scale.pool import Needs
from plait.scale.remote import RayPool


def add(tell, numbers):
    """Ask for a number and add it."""
    return ("done", sum(numbers) + tell(("more", len(numbers))))


def kill_itself_at_first(tell, place):
    """Be lost as a worker is whose machine goes down, as often as the file says."""
    left = int(Path(place).read_text())
    Path(place).write_text(str(left - 1))
    if left > 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return ("done", left)


def fail(tell, place):
    with Path(place).open("a") as file:
        file.write("tried\n")
    return ("failed", "the loss is not a number")


@pytest.fixture
def notes():
    return []


@pytest.fixture
def pool(cluster, tmp_path, notes):
    # Workers cannot import this file, so they are handed what is in it.
    cluster.ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    pool = RayPool(cluster, Engine("ray", gpus=0), 2, tmp_path / "out", notes.append)
    yield pool
    pool.close()
    cluster.ray.cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
    assert list((tmp_path / "out").iterdir()) == []  # its mark is gone


def hear_last(pool):
    """Answer everything with 10 until a job is over."""
    while True:
        for name, message, is_last in pool.hear():
            if is_last:
                return name, message
            pool.answer(name, 10)


@pytest.mark.nightly
def test_jobs_are_answered_and_say_what_came_of_them(pool):
    pool.start("one", add, [1, 2])
    pool.start("two", add, [5])
    assert dict([hear_last(pool), hear_last(pool)]) == {"one": ("done", 13), "two": ("done", 15)}
    assert pool.names() == []


@pytest.mark.nightly
def test_a_lost_worker_is_told_of_and_its_job_tried_again(pool, tmp_path, notes):
    (tmp_path / "left").write_text("1")
    pool.start("unlucky", kill_itself_at_first, str(tmp_path / "left"))
    assert hear_last(pool) == ("unlucky", ("done", 0))
    [note] = notes
    assert note.startswith("unlucky: its worker was lost")


@pytest.mark.nightly
def test_a_node_that_does_not_see_the_data_refuses_the_job(pool, tmp_path):
    pool.start("blind", add, [1], Needs(paths=(tmp_path / "elsewhere",)))
    name, message = hear_last(pool)
    assert (name, message[0]) == ("blind", "failed")
    assert f"has no {tmp_path / 'elsewhere'}" in message[1]


@pytest.mark.nightly
def test_a_job_that_uses_no_gpu_waits_for_none(cluster, pool, tmp_path):
    """There are GPUs as far as the pool knows, but one that is asked for would never be free."""
    believing = replace(cluster, nodes=({"CPU": 2.0, "GPU": 1.0},))
    folder = tmp_path / "believing"
    on_cpu = RayPool(believing, Engine("ray"), None, folder, print, gpu=False)
    on_gpu = RayPool(believing, Engine("ray"), None, folder, print)
    assert (on_cpu.num_places, on_gpu.num_places) == (2, 1)
    on_gpu.start("waiting", fail, str(tmp_path / "waiting"))
    on_cpu.start("working", fail, str(tmp_path / "working"), Needs(gpu=False))
    end = time.monotonic() + 60
    while not (tmp_path / "working").exists():
        assert time.monotonic() < end, "it waits for a GPU"
        time.sleep(0.05)
    assert not (tmp_path / "waiting").exists()
    assert hear_last(on_cpu)[0] == "working"
    on_cpu.close()
    on_gpu.close()


@pytest.mark.nightly
def test_nothing_listens_beyond_loopback(cluster):
    """Whoever could reach Ray's ports could run anything here."""
    mine = {os.getpid(), *_descendants(os.getpid())}
    found = _listening(mine)
    assert found  # Ray does listen
    assert {address for address in found if not address.startswith(("127.", "::1"))} == set()


def _descendants(pid: int) -> set[int]:
    done = subprocess.run(["ps", "-eo", "pid,ppid"], capture_output=True, text=True, check=True)
    pairs = [tuple(map(int, line.split())) for line in done.stdout.splitlines()[1:]]
    found: set[int] = set()
    waiting = [pid]
    while waiting:
        more = [child for child, parent in pairs if parent == waiting[-1]]
        waiting.pop()
        found |= set(more)
        waiting += more
    return found


def _listening(pids: set[int]) -> set[str]:
    """Return the addresses that processes listen at, out of what Linux says of them."""
    inodes = set()
    for pid in pids:
        try:
            links = list(Path(f"/proc/{pid}/fd").iterdir())
        except FileNotFoundError:  # it ended meanwhile
            continue
        for link in links:
            try:
                target = str(link.readlink())
            except OSError:
                continue
            if target.startswith("socket:["):
                inodes.add(target[8:-1])
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and words[9] in inodes:  # 0A: it listens
                number = bytes.fromhex(words[1].partition(":")[0])
                quads = [number[i : i + 4][::-1] for i in range(0, len(number), 4)]
                found.add(".".join(map(str, quads[-1])) if any(quads[-1]) else "all")
    return found
