"""Workers: processes that answer, die and come back, and the pool that sees to it."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time

import pytest
from safetensors.torch import load_file, save_file

from plait.errors import RunError
from plait.serve.batching import Job, Queue, Row
from plait.serve.parcels import Ask, RunsToLoad
from plait.serve.pool import Died, Pool
from plait.serve.worker import Worker

ASK = Ask("tiny", ("mood",), [("the film was great .",), ("sad",)])
KEY = ("tiny", ("mood",))


class Listed:
    """A watcher that keeps what it hears."""

    def __init__(self):
        self.restarts, self.reasons, self.failures = [], [], []

    def answered(self, rows, seconds):
        pass

    def failed(self, num_rows, num_again, error):
        self.failures.append((num_rows, num_again))

    def restarted(self, number, reason, error):
        self.restarts.append(error)
        self.reasons.append(reason)


class Mortal:
    """A backend that dies of some texts, and of its first parcel if told so."""

    def __init__(self, *, dies_first=False, changed=()):
        self.alive, self.dies_first, self.asked = True, dies_first, []
        self.changed = changed

    def answer(self, ask):
        self.asked.append([text for (text,) in ask.rows])
        if self.dies_first or "poison" in self.asked[-1]:
            self.alive = self.dies_first = False
            raise Died("a worker is gone")
        return [{"mood": text} for (text,) in ask.rows]

    def is_alive(self):
        return self.alive

    def restart(self):
        self.alive = True
        return self.changed

    def close(self):
        self.alive = False


def ask_all(pool, queue, *texts):
    jobs = [Job(1) for _ in texts]
    for job, text in zip(jobs, texts, strict=True):
        job.num_left = 1
        queue.put([Row(job, 0, KEY, ("mood",), (text,))])
    pool.start()
    return jobs


def test_what_a_dead_worker_had_is_answered():
    queue, watcher = Queue(100, 8, 0.0), Listed()
    backend = Mortal(dies_first=True)
    pool = Pool(queue, [backend], watcher)
    jobs = ask_all(pool, queue, "a", "b", "c")
    assert [job.future.result(10) for job in jobs] == [[{"mood": t}] for t in "abc"]
    pool.close()
    assert watcher.failures == [(3, 3)]
    assert watcher.restarts == [None]
    assert not backend.alive


def test_a_deadly_question_takes_no_other_along():
    queue, watcher = Queue(100, 8, 0.0), Listed()
    pool = Pool(queue, [Mortal(), Mortal()], watcher)
    jobs = ask_all(pool, queue, "a", "poison", "b")
    assert jobs[0].future.result(10) == [{"mood": "a"}]
    assert jobs[2].future.result(10) == [{"mood": "b"}]
    assert isinstance(jobs[1].future.exception(10), Died)
    pool.close()


def test_an_idle_worker_that_dies_is_replaced(monkeypatch):
    monkeypatch.setattr("plait.serve.pool.IDLE_SECONDS", 0.02)
    queue, watcher, backend = Queue(100, 8, 0.0), Listed(), Mortal()
    pool = Pool(queue, [backend], watcher)
    pool.start()
    backend.alive = False
    until = time.monotonic() + 10
    while not backend.alive and time.monotonic() < until:
        time.sleep(0.01)
    assert pool.num_alive == 1
    pool.close()


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ((), "it was gone"),
        (["a", "b"], "it was gone; it has other models now than the server began with, of a, b"),
    ],
)
def test_a_worker_that_comes_back_with_another_model_is_told(changed, told):
    queue, watcher = Queue(100, 8, 0.0), Listed()
    pool = Pool(queue, [Mortal(dies_first=True, changed=changed)], watcher)
    (job,) = ask_all(pool, queue, "a")
    assert job.future.result(10) == [{"mood": "a"}]
    pool.close()
    assert watcher.reasons == [told]


def test_a_worker_that_cannot_start_ends_with_the_pool():
    class Dead(Mortal):
        def restart(self):
            raise RunError("the run is gone")

    queue, watcher = Queue(100, 8, 0.0), Listed()
    pool = Pool(queue, [Dead(dies_first=True)], watcher)
    (job,) = ask_all(pool, queue, "a")
    time.sleep(0.1)
    assert not job.future.done()  # it waits for a worker, and its client for no longer than it may
    done = threading.Thread(target=pool.close)
    done.start()
    done.join(10)
    assert not done.is_alive()
    assert isinstance(watcher.restarts[0], RunError)


def test_a_process_answers_dies_and_comes_back(tiny_run, models):
    worker = Worker(RunsToLoad({"tiny": tiny_run}, device="cpu", precision="fp32", threads=1), 60)
    try:
        assert worker.wait() == models.catalog
        answers = worker.answer(ASK)
        for found, expected in zip(answers, models.answer(ASK), strict=True):
            assert found["mood"]["label"] == expected["mood"]["label"]
            assert found["mood"]["confidence"] == pytest.approx(expected["mood"]["confidence"])
        os.kill(worker.pid, signal.SIGTERM)  # which a supervisor sends to everybody
        assert worker.answer(ASK) == answers
        with pytest.raises(Exception, match=r"KeyError at .*\.py:\d+"):
            worker.answer(Ask("other", ("mood",), [("a",)]))
        os.kill(worker.pid, signal.SIGKILL)
        with pytest.raises(Died, match="code -9"):
            worker.answer(ASK)
        assert not worker.is_alive()
        assert worker.restart() == []
        assert worker.answer(ASK) == answers
        worker._patience = 0.1
        os.kill(worker.pid, signal.SIGSTOP)
        with pytest.raises(Died, match="killed after"):
            worker.answer(ASK)
        assert not worker.is_alive()  # nor may it pass for alive until it has ended
        worker.start()
        assert not worker.is_alive()  # it cannot answer before it has loaded
    finally:
        worker.close()
    assert not worker.is_alive()


def test_a_process_that_comes_back_names_runs_that_have_changed(tiny_run, tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    for folder in (one, two):
        shutil.copytree(tiny_run, folder)
    wanted = RunsToLoad({"one": one, "two": two}, device="cpu", precision="fp32", threads=1)
    worker = Worker(wanted, 60)
    try:
        worker.wait()
        weights = load_file(two / "model.safetensors")
        save_file({name: 2 * tensor for name, tensor in weights.items()}, two / "model.safetensors")
        for _ in range(2):
            assert worker.restart() == ["two"]
    finally:
        worker.close()


def test_a_process_that_cannot_be_started_is_tried_again(tiny_run, monkeypatch):
    worker = Worker(RunsToLoad({"tiny": tiny_run}, device="cpu", precision="fp32", threads=1), 60)
    try:
        with monkeypatch.context() as patch:
            patch.setattr("multiprocessing.context.SpawnProcess.start", refuse)
            for _ in range(2):
                with pytest.raises(OSError, match="no memory"):
                    worker.restart()
                assert not worker.is_alive()
        worker.restart()
        assert worker.is_alive()
    finally:
        worker.close()


def refuse(process):
    raise OSError("no memory")


def test_a_run_that_cannot_be_loaded_is_told(tmp_path):
    (tmp_path / "empty").mkdir()
    worker = Worker(RunsToLoad({"empty": tmp_path / "empty"}), 60)
    try:
        with pytest.raises(RunError, match=r"recipe\.toml"):
            worker.wait()
    finally:
        worker.close()
