"""The queue: the oldest first, whatever their length, nothing lost and nothing twice."""

from __future__ import annotations

import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.serve.batching import Closed, Full, Job, Queue, Row, ask_for, make_rows
from plait.serve.catalog import RunFacts, TaskFacts

MOOD = ("tiny", ("mood",))


def put(queue, *texts, key=MOOD):
    """Queue one job for each text and return them."""
    jobs = [Job(1) for _ in texts]
    for job, text in zip(jobs, texts, strict=True):
        job.num_left = 1
        queue.put([Row(job, 0, key, key[1], (text,))])
    return jobs


def texts(rows):
    return [row.texts[0] for row in rows]


def make(size=100, batch_size=3, wait=0.0):
    return Queue(size, batch_size, wait)


def test_the_oldest_go_first_whatever_their_length():
    queue = make()
    put(queue, "aaaa", "b" * 90, "a" * 5, "b" * 80, "a" * 3)
    assert texts(queue.take(0)) == ["aaaa", "b" * 90, "a" * 5]
    assert texts(queue.take(0)) == ["b" * 80, "a" * 3]
    assert queue.take(0) == []


def test_a_parcel_leaves_as_much_for_every_taker():
    queue = Queue(100, 32, 0.0, num_takers=2)
    put(queue, *"a" * 64)
    taken = [queue.take(0) for _ in range(4)]
    assert list(map(len, taken)) == [16, 16, 16, 16]
    queue.finish(taken[0], [{"mood": 1}] * 16, 0.1)
    put(queue, *"b" * 12)
    assert len(queue.take(0)) == 12  # of 60, 15 would be its share
    alone = Queue(100, 32, 0.0)
    put(alone, *"a" * 20)
    assert [len(alone.take(0)) for _ in range(2)] == [10, 10]


def test_passes_and_runs_do_not_mix():
    queue = make()
    put(queue, "a", key=MOOD)
    put(queue, "b", key=("tiny", ("same",)))
    put(queue, "c", key=("other", ("mood",)))
    put(queue, "d", key=MOOD)
    assert [texts(queue.take(0)) for _ in range(3)] == [["a", "d"], ["b"], ["c"]]


@given(
    lengths=st.lists(st.integers(1, 50), min_size=1, max_size=60),
    batch_size=st.integers(1, 9),
    keys=st.integers(1, 3),
)
@settings(max_examples=60)
def test_every_row_comes_once_and_the_oldest_always(lengths, batch_size, keys):
    queue = make(batch_size=batch_size)
    left = []
    for i, length in enumerate(lengths):
        job = Job(1)
        row = Row(job, 0, (f"run{i % keys}", ()), (), ("x" * length,))
        queue.put([row])
        left.append(row)
    while rows := queue.take(0):
        assert left[0] in rows
        assert len(rows) <= batch_size
        assert len({row.key for row in rows}) == 1
        for row in rows:
            left.remove(row)  # fails on one that came twice
    assert left == []


def test_a_row_waits_for_others_but_not_for_long():
    queue = make(wait=0.5)
    put(queue, "a")
    later = threading.Timer(0.01, put, (queue, "b"))
    later.start()
    rows = queue.take(60)
    assert time.monotonic() >= rows[0].born + 0.5
    assert texts(rows) == ["a", "b"]
    later.join()


def test_what_is_not_full_waits_though_less_will_be_taken():
    queue = Queue(100, 32, 0.3)
    put(queue, *"a" * 20)
    rows = queue.take(60)
    assert time.monotonic() >= rows[0].born + 0.3
    assert len(rows) == 10


def test_a_full_parcel_does_not_wait():
    queue = make(wait=60)
    put(queue, "a", "b", "c")
    assert texts(queue.take(1)) == ["a", "b", "c"]


def test_all_or_none_fit_and_room_comes_back():
    queue = make(size=3)
    put(queue, "a", "b")
    job = Job(2)
    rows = [Row(job, i, MOOD, ("mood",), ("c",)) for i in range(2)]
    with pytest.raises(Full) as refused:
        queue.put(rows)
    assert refused.value.seconds >= 1
    assert len(queue) == 2
    taken = queue.take(0)
    with pytest.raises(Full):  # taken, but not yet answered
        queue.put(rows)
    queue.finish(taken, [{"mood": 1}] * 2, 0.1)
    queue.put(rows)


def test_a_job_is_done_with_its_last_row():
    queue = make(batch_size=1)
    job = Job(2)
    job.num_left = 2
    queue.put([Row(job, i, MOOD, ("mood",), (text,)) for i, text in enumerate(["a", "bb"])])
    first, second = queue.take(0), queue.take(0)
    queue.finish(second, [{"mood": "second"}], 0.1)
    assert not job.future.done()
    queue.finish(first, [{"mood": "first"}], 0.1)
    assert job.future.result(0) == [{"mood": "first"}, {"mood": "second"}]


def test_what_fails_is_tried_once_more_alone():
    queue = make()
    jobs = put(queue, "a", "b", "c")
    assert queue.fail(queue.take(0), ValueError("one")) == 3
    assert [texts(queue.take(0)) for _ in range(1)] == [["a"]]
    rest = [queue.take(0), queue.take(0)]
    assert list(map(texts, rest)) == [["b"], ["c"]]
    assert queue.fail(rest[0], ValueError("two")) == 0
    queue.finish(rest[1], [{"mood": 1}], 0.1)
    assert str(jobs[1].future.exception(0)) == "two"
    assert jobs[2].future.result(0) == [{"mood": 1}]


def test_what_nobody_waits_for_is_left_out():
    queue = make()
    jobs = put(queue, "a", "b")
    jobs[0].future.cancel()
    assert texts(queue.take(0)) == ["b"]


def test_a_job_given_up_takes_its_waiting_rows_along_and_no_others():
    queue = make(batch_size=1)
    job = Job(3)
    job.num_left = 3
    queue.put([Row(job, i, MOOD, ("mood",), (text,)) for i, text in enumerate("abc")])
    (other,) = put(queue, "d")
    taken = queue.take(0)
    assert queue.drop(job) == 2
    assert len(queue) == 2  # the one that was taken, and the other job's
    queue.finish(taken, [{"mood": 1}], 0.1)
    rest = queue.take(0)
    assert texts(rest) == ["d"]
    queue.finish(rest, [{"mood": 2}], 0.1)
    assert other.future.result(0) == [{"mood": 2}]
    assert queue.drop(other) == 0  # too late to give up
    assert len(queue) == 0


def test_after_the_end_the_rest_is_given_out():
    queue = make(wait=60)
    put(queue, "a")
    queue.close()
    with pytest.raises(Closed):
        put(queue, "b")
    rows = queue.take(60)
    assert texts(rows) == ["a"]
    queue.finish(rows, [{"mood": 1}], 0.1)
    assert queue.take(60) == []


@pytest.mark.parametrize("fails", [True, False])
def test_after_the_end_takers_wait_for_what_may_come_back(fails):
    queue = make()
    put(queue, "a")
    rows = queue.take(0)
    queue.close()
    taken = []
    other = threading.Thread(target=lambda: taken.append(queue.take(60)))
    other.start()
    other.join(0.2)
    assert other.is_alive()  # neither gone nor asking over and over
    if fails:
        queue.fail(rows, ValueError("one"))
    else:
        queue.finish(rows, [{"mood": 1}], 0.1)
    other.join(10)
    assert list(map(texts, taken)) == [["a"] if fails else []]


def test_what_one_taker_leaves_wakes_the_next():
    queue = Queue(100, 32, 0.0, num_takers=2)
    parcels = []
    takers = [threading.Thread(target=lambda: parcels.append(queue.take(60))) for _ in range(2)]
    for taker in takers:
        taker.start()
    time.sleep(0.2)  # until both wait
    job = Job(64)
    queue.put([Row(job, i, MOOD, ("mood",), ("a",)) for i in range(64)])
    for taker in takers:
        taker.join(10)
    assert list(map(len, parcels)) == [16, 16]


def test_tasks_of_one_pass_are_one_row():
    kinds = {"mood": 1, "topic": 1, "own": 1}
    tasks = {name: TaskFacts(name, "classes", ("a", "b"), None, n) for name, n in kinds.items()}
    run = RunFacts("tiny", tasks, (("mood", "topic"), ("own",)), True)
    job = Job(2)
    rows = make_rows(job, run, [("x",), ("y",)], [("topic", "own", "mood"), ("topic",)])
    assert [(row.place, row.key[1], row.tasks) for row in rows] == [
        (0, ("mood", "topic"), ("topic", "mood")),
        (0, ("own",), ("own",)),
        (1, ("mood", "topic"), ("topic",)),
    ]
    assert job.num_left == 3
    ask = ask_for([rows[0], rows[2]])
    assert (ask.tasks, ask.rows) == (("mood", "topic"), [("x",), ("y",)])
    assert ask_for([rows[2]]).tasks == ("topic",)
