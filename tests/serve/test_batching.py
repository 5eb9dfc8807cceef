"""The queue: oldest first, every row once, answers to the right job."""

from __future__ import annotations

import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.serve.batching import Job, ModelThread, Queue, Row, make_rows
from plait.serve.middleware import RequestError

MOOD = ("mood",)


def put(queue, *texts, run="tiny", group=MOOD):
    """Queue one job for each text and return them."""
    jobs = [Job(1) for _ in texts]
    for job, text in zip(jobs, texts, strict=True):
        job.num_left = 1
        queue.put([Row(job, 0, run, group, group, (text,))])
    return jobs


def texts(rows):
    return [row.texts[0] for row in rows]


def make(size=100, batch_size=3, wait=0.0):
    return Queue(size, batch_size, wait)


def test_the_oldest_rows_go_first():
    queue = make()
    put(queue, "aaaa", "b" * 90, "a" * 5, "b" * 80, "a" * 3)
    assert texts(queue.take()) == ["aaaa", "b" * 90, "a" * 5]
    assert texts(queue.take()) == ["b" * 80, "a" * 3]


def test_a_batch_leaves_half_of_the_rows():
    queue = Queue(100, 32, 0.0)
    put(queue, *"a" * 40)
    assert len(queue.take()) == 20
    assert len(queue.take()) == 20  # half of those without an answer
    put(queue, *"b" * 6)
    assert len(queue.take()) == 6


def test_runs_and_passes_are_not_mixed():
    queue = make()
    put(queue, "a")
    put(queue, "b", group=("same",))
    put(queue, "c", run="other")
    put(queue, "d")
    assert [texts(queue.take()) for _ in range(3)] == [["a", "d"], ["b"], ["c"]]


@given(
    lengths=st.lists(st.integers(1, 50), min_size=1, max_size=60),
    batch_size=st.integers(1, 9),
    num_runs=st.integers(1, 3),
)
@settings(max_examples=25)
def test_every_row_comes_once_and_the_oldest_always(lengths, batch_size, num_runs):
    queue = make(batch_size=batch_size)
    left = []
    for i, length in enumerate(lengths):
        row = Row(Job(1), 0, f"run{i % num_runs}", (), (), ("x" * length,))
        queue.put([row])
        left.append(row)
    queue.close()
    while rows := queue.take():
        assert left[0] in rows
        assert len(rows) <= batch_size
        assert len({row.run for row in rows}) == 1
        for row in rows:
            left.remove(row)  # fails on one that came twice
    assert left == []


def test_a_row_waits_for_others_but_not_for_long():
    queue = make(wait=0.3)
    put(queue, "a")
    later = threading.Timer(0.01, put, (queue, "b"))
    later.start()
    rows = queue.take()
    assert time.monotonic() >= rows[0].added + 0.3
    assert texts(rows) == ["a", "b"]
    later.join()


def test_a_full_batch_does_not_wait():
    queue = make(wait=60)
    put(queue, "a", "b", "c")
    assert texts(queue.take()) == ["a", "b", "c"]


def test_all_rows_of_a_request_fit_or_none():
    queue = make(size=3)
    put(queue, "a", "b")
    job = Job(2)
    rows = [Row(job, i, "tiny", MOOD, MOOD, ("c",)) for i in range(2)]
    with pytest.raises(RequestError) as refused:
        queue.put(rows)
    assert refused.value.status_code == 429
    assert int(refused.value.headers["Retry-After"]) >= 1
    taken = queue.take()
    with pytest.raises(RequestError, match="full"):  # in a batch, but without an answer
        queue.put(rows)
    queue.finish(taken, [{"mood": 1}] * 2, 0.1)
    queue.put(rows)
    with pytest.raises(RequestError, match="Too many inputs"):
        queue.put(rows * 2)


def test_a_job_is_done_with_its_last_row():
    queue = make(batch_size=1)
    job = Job(2)
    job.num_left = 2
    queue.put([Row(job, i, "tiny", MOOD, MOOD, (text,)) for i, text in enumerate(["a", "bb"])])
    first, second = queue.take(), queue.take()
    queue.finish(second, [{"mood": "second"}], 0.1)
    assert not job.future.done()
    queue.finish(first, [{"mood": "first"}], 0.1)
    assert job.future.result(0) == [{"mood": "first"}, {"mood": "second"}]


def test_a_failed_batch_ends_its_jobs_only():
    queue = make(batch_size=1)
    job = Job(2)
    job.num_left = 2
    queue.put([Row(job, i, "tiny", MOOD, MOOD, (text,)) for i, text in enumerate("ab")])
    (other,) = put(queue, "c")
    queue.fail(queue.take(), ValueError("broken"))
    assert str(job.future.exception(0)) == "broken"
    rest = queue.take()
    assert texts(rest) == ["c"]  # the failed job's other row was dropped
    queue.finish(rest, [{"mood": 1}], 0.1)
    assert other.future.result(0) == [{"mood": 1}]
    assert len(queue) == 0


def test_a_dropped_job_takes_its_waiting_rows_with_it():
    queue = make(batch_size=1)
    job = Job(2)
    job.num_left = 2
    queue.put([Row(job, i, "tiny", MOOD, MOOD, (text,)) for i, text in enumerate("ab")])
    put(queue, "c")
    taken = queue.take()
    job.future.cancel()
    queue.drop(job)
    queue.finish(taken, [{"mood": 1}], 0.1)
    assert texts(queue.take()) == ["c"]


def test_a_closed_queue_gives_out_the_rest():
    queue = make(wait=60)
    put(queue, "a")
    queue.close()
    with pytest.raises(RequestError, match="stopping"):
        put(queue, "b")
    assert texts(queue.take()) == ["a"]
    assert queue.take() == []


def test_the_thread_outlives_a_model_that_fails():
    class Broken:
        def tokenise(self, texts, **_):
            return texts

        def answer_together(self, tasks, texts):
            if ("bad",) in texts:
                raise ValueError("broken")
            return {task: [text for (text,) in texts] for task in tasks}

        def describe(self, task, answer):
            return answer.upper()

    queue = make(batch_size=1)
    thread = ModelThread(queue, {"tiny": Broken()}, lambda rows, seconds: None)
    thread.start()
    bad, good = put(queue, "bad", "good")
    assert str(bad.future.exception(10)) == "broken"
    assert good.future.result(10) == [{"mood": "GOOD"}]
    queue.close()
    thread.join(10)
    assert not thread.is_alive()


def test_tasks_of_one_pass_are_one_row():
    job = Job(2)
    passes = [("mood", "topic"), ("own",)]
    tasks = [("topic", "own", "mood"), ("topic",)]
    rows = make_rows(job, "tiny", passes, [("x",), ("y",)], tasks)
    assert [(row.place, row.group, row.tasks) for row in rows] == [
        (0, ("mood", "topic"), ("topic", "mood")),
        (0, ("own",), ("own",)),
        (1, ("mood", "topic"), ("topic",)),
    ]
    assert job.num_left == 3
    (row,) = make_rows(job, "tiny", passes, [("x",)], [()])
    assert (row.group, row.tasks) == ((), ())
