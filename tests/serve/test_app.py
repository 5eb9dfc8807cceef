"""The endpoints: right answers in the order of the inputs, and one sentence for every error."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import plait
from plait.serve.middleware import RequestError, limit_body

TEXTS = [
    "the film was great .",
    "it was a very long , dull and boring story of a sad walk and a poor meal .",
    "fine !",
    "the garden is lovely and the room is bright .",
]
PAIRS = [
    ["the film was great .", "the film was superb ."],
    ["the walk was sad .", "a bright , happy and very lovely game is fine ."],
]
KEY = "a-key-of-enough-characters"


@pytest.fixture(scope="module")
def model(models):
    return models["tiny"]


def compare(answer, model, task, text):
    """Compare an answer with the one that the model gives to the text alone."""
    (expected,) = model.predict(task, [tuple(text) if isinstance(text, list) else text])
    assert answer["label"] == expected.label
    assert answer["value"] == pytest.approx(expected.value, abs=1e-5)
    if expected.probabilities:
        shares = list(answer["probabilities"].values())
        assert shares == pytest.approx(list(expected.probabilities), abs=1e-5)
        assert answer["confidence"] == pytest.approx(expected.confidence, abs=1e-5)
    else:
        assert set(answer) == {"value", "label"}


def predict(client, inputs, **more):
    return client.post("/v1/predict", json={"inputs": inputs, **more})


# --- answers -----------------------------------------------------------------------------


def test_one_text(client, model):
    done = predict(client, TEXTS[0], tasks="mood")
    assert done.status_code == 200
    assert done.json()["run"] == "tiny"
    (answer,) = done.json()["answers"]
    compare(answer["mood"], model, "mood", TEXTS[0])
    assert list(answer["mood"]["probabilities"]) == ["bad", "so-so", "good"]


def test_all_tasks_that_fit_in_the_order_of_the_inputs(client, model):
    inputs = [TEXTS[0], PAIRS[0], *TEXTS[1:], PAIRS[1]]
    answers = predict(client, inputs).json()["answers"]
    for text, answer in zip(inputs, answers, strict=True):
        assert list(answer) == (["same", "near"] if isinstance(text, list) else ["mood"])
        for task, one in answer.items():
            compare(one, model, task, text)


def test_probabilities_can_be_left_out(client):
    answers = predict(client, TEXTS, tasks=["mood"], probabilities=False).json()["answers"]
    assert {tuple(answer["mood"]) for answer in answers} == {("value", "label", "confidence")}


def test_several_labels_and_an_ensemble(serving, models):
    with serving("labels", "both") as client:
        text = "fine and sad"
        answer = predict(client, text, run="labels").json()["answers"][0]["signs"]
        (expected,) = models["labels"].predict("signs", [text])
        assert answer["value"] == list(expected.value)
        assert answer["labels"] == list(expected.words)
        assert answer["label_probabilities"] == pytest.approx(list(expected.word_probabilities))
        both = predict(client, TEXTS[0], run="both").json()["answers"][0]
        compare(both["mood"], models["both"], "mood", TEXTS[0])


def test_vectors(client, model):
    done = client.post("/v1/embed", json={"inputs": TEXTS}).json()
    assert done["width"] == 16
    for found, expected in zip(done["vectors"], model.embed(TEXTS).tolist(), strict=True):
        assert found == pytest.approx(expected, abs=1e-5)


def test_words_have_the_effects_of_the_library(client, model):
    done = client.post("/v1/explain", json={"input": TEXTS[0], "task": "mood"}).json()
    expected = plait.explain(model, "mood", TEXTS[0])
    assert (done["run"], done["task"], done["method"]) == ("tiny", "mood", "shapley")
    assert done["answer"] == done["explained"] == expected.prediction.label
    assert (done["value"], done["bare"]) == pytest.approx((expected.value, expected.bare), abs=1e-5)
    for part, own in zip(done["parts"], expected.parts, strict=True):
        assert (part["text"], part["start"], part["end"]) == (own.text, own.start, own.end)
        assert part["effect"] == pytest.approx(own.effect, abs=1e-5)


def test_words_of_a_pair_of_a_label_and_of_a_long_text(client):
    done = client.post("/v1/explain", json={"input": PAIRS[0], "task": "near"}).json()
    assert done["explained"] is None
    assert {part["place"] for part in done["parts"]} == {0, 1}
    total = sum(part["effect"] for part in done["parts"])
    assert total == pytest.approx(done["value"] - done["bare"], abs=1e-4)
    done = client.post("/v1/explain", json={"input": TEXTS[0], "label": "so-so"}).json()
    assert done["explained"] == "so-so"
    long = " ".join(["great", "film"] * 40)
    assert len(client.post("/v1/explain", json={"input": long}).json()["parts"]) <= 24


def test_requests_at_the_same_time_get_their_own_answers(serving, model, held):
    words = [f"the {thing} was {'very ' * n}fine ." for n in range(8) for thing in ("film", "book")]
    with serving(served={"tiny": held}) as client, ThreadPoolExecutor(16) as pool:
        waiting = [pool.submit(predict, client, text, tasks="mood") for text in words]
        time.sleep(0.3)
        held.go.set()
        for text, done in zip(words, waiting, strict=True):
            compare(done.result().json()["answers"][0]["mood"], model, "mood", text)
    assert len(held.sizes) < len(words)


def test_nan_becomes_null(serving, held):
    held.answer_together = lambda tasks, rows: {
        task: value * float("nan")
        for task, value in held._model.answer_together(tasks, rows).items()
    }
    with serving(served={"tiny": held}) as client:
        answer = predict(client, [PAIRS[0]]).json()["answers"][0]
    assert answer["near"]["value"] is None
    assert set(answer["same"]["probabilities"].values()) == {None}


# --- lists and pages ---------------------------------------------------------------------


def test_runs_and_tasks(client, serving):
    expected = {"name": "tiny", "tasks": ["mood", "same", "near"], "embeds": True}
    assert client.get("/v1/runs").json() == {"runs": [expected]}
    tasks = client.get("/v1/tasks", params={"run": "tiny"}).json()["tasks"]
    assert tasks == client.get("/v1/tasks").json()["tasks"]
    assert tasks[0]["labels"] == ["bad", "so-so", "good"]
    assert tasks[2] == {
        "run": "tiny",
        "name": "near",
        "kind": "score",
        "labels": [],
        "range": [0.0, 5.0],
        "num_texts": 2,
        "columns": ["a", "b"],
        "about": "",
        "label_separator": None,
    }
    with serving("both") as other:
        assert not other.get("/v1/runs").json()["runs"][0]["embeds"]


def test_health_and_pages(client):
    assert client.get("/healthz").json() == {"status": "alive"}
    assert client.get("/readyz").json() == {"status": "ready"}
    page = client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    script = client.get("/page/main.js")
    assert script.headers["content-type"].startswith("text/javascript")
    assert script.headers["content-security-policy"] == policy
    assert "swagger" in client.get("/docs").text
    assert set(client.get("/openapi.json").json()["paths"]) == {
        *("/v1/predict", "/v1/explain", "/v1/embed", "/v1/runs", "/v1/tasks"),
        *("/healthz", "/readyz", "/metrics"),
    }


PATHS = ["/../app.py", "/page/..%2fapp.py", "/page/%2e%2e/app.py", "//etc/passwd", "/nowhere"]


@pytest.mark.parametrize("path", PATHS)
def test_no_other_file_can_be_read(client, code, path):
    assert code(client.get(path), 404) == "not_found"


@pytest.mark.parametrize("name", ["../tiny", "tiny/", "./tiny", "/etc", "..", "", "TINY"])
def test_a_name_is_not_a_path(client, code, name):
    assert code(predict(client, "fine", run=name), 404) == "unknown_run"
    assert code(client.get("/v1/tasks", params={"run": name}), 404) == "unknown_run"


# --- errors ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "expected", "words"),
    [
        ({}, "invalid", "inputs: field required"),
        ({"inputs": []}, "invalid", "inputs: list should have at least 1 item"),
        ({"inputs": 3}, "invalid", "inputs has the wrong type. One text, or a list"),
        ({"inputs": ["a", ["a"]]}, "invalid", "inputs[1]: list should have at least 2"),
        ({"inputs": "a", "tasks": []}, "invalid", "tasks: list should have at least 1"),
        ({"inputs": "a", "task": "mood"}, "invalid", "'task'; did you mean 'tasks'?"),
        ({"inputs": "a", "model": "b"}, "invalid", "'model'; known: inputs"),
        ({"inputs": "a", "probabilities": "yes"}, "invalid", "probabilities"),
        ([1], "invalid", "JSON object"),
        ({"inputs": ["a", "  "]}, "invalid", "inputs[1]: the text is empty"),
        ({"inputs": ["a", "b\0"]}, "invalid", "inputs[1]: the text is empty or has a NUL"),
        ({"inputs": ["a"] * 257}, "invalid", "at most 256 items"),
        ({"inputs": ["a", "b" * 20_001]}, "invalid", "inputs[1]: string should have at most 20000"),
        ({"inputs": "a", "tasks": "mod"}, "unknown_task", "did you mean 'mood'?"),
        ({"inputs": "a", "tasks": "same"}, "wrong_texts", "takes two"),
        ({"inputs": ["a", PAIRS[0]], "tasks": ["mood"]}, "wrong_texts", "inputs[1] has two texts"),
    ],
)
def test_requests_that_are_refused(client, code, body, expected, words):
    done = client.post("/v1/predict", json=body)
    assert code(done, 422) == expected
    assert words in done.json()["error"]["message"]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"input": "a", "task": "moo"}, "unknown_task"),
        ({"input": "a", "label": "goof"}, "invalid"),
        ({"input": PAIRS[0]}, "which_task"),
        ({"input": PAIRS[0], "task": "mood"}, "wrong_texts"),
    ],
)
def test_explanations_that_are_refused(client, code, body, expected):
    assert code(client.post("/v1/explain", json=body), 422) == expected


def test_several_runs_need_a_name(serving, code):
    with serving("tiny", "both") as client:
        done = predict(client, TEXTS[0])
        assert code(done, 422) == "which_run"
        assert "tiny, both" in done.json()["error"]["message"]
        assert predict(client, TEXTS[0], run="tiny").status_code == 200
        done = client.post("/v1/embed", json={"inputs": "a", "run": "both"})
        assert code(done, 422) == "no_vectors"


@pytest.mark.parametrize("body", [b'{"inputs": ', b"\xff\xfe", b"[" * 100_000])
def test_bodies_that_are_not_json(client, code, body):
    headers = {"content-type": "application/json"}
    assert code(client.post("/v1/predict", content=body, headers=headers), 400) == "not_json"


def test_json_needs_its_content_type(client, code):
    """So that a foreign page cannot send a request without asking for permission first."""
    headers = {"content-type": "text/plain"}
    done = client.post("/v1/predict", content=b'{"inputs": "a"}', headers=headers)
    assert code(done, 422) == "invalid"
    origin = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    done = client.options("/v1/predict", headers=origin)
    assert done.status_code == 405
    assert not [name for name in done.headers if name.startswith("access-control")]


def test_methods(client, code):
    done = client.get("/v1/predict")
    assert code(done, 405) == "method_not_allowed"
    assert done.headers["allow"] == "POST"


def test_large_bodies(client, code):
    assert code(client.post("/v1/predict", content=b"x" * 1_000_001), 413) == "too_large"
    pieces = (b"x" * 1000 for _ in range(1100))  # without a Content-Length
    assert code(client.post("/v1/predict", content=pieces), 413) == "too_large"


def test_a_slow_body_is_given_up(monkeypatch):
    monkeypatch.setattr("plait.serve.middleware.MAX_BODY_SECONDS", 0.01)

    async def receive():
        await asyncio.sleep(60)

    async def go():
        return await limit_body({"type": "http", "headers": []}, receive)()

    with pytest.raises(RequestError, match="took longer than") as refused:
        asyncio.run(go())
    assert refused.value.status_code == 408


def test_a_full_queue(serving, held, code):
    with serving(served={"tiny": held}, queue_size=4) as client, ThreadPoolExecutor(1) as pool:
        first = pool.submit(predict, client, TEXTS, tasks="mood")
        time.sleep(0.2)
        refused = predict(client, TEXTS[0], tasks="mood")
        held.go.set()
        assert code(refused, 429) == "busy"
        assert int(refused.headers["retry-after"]) >= 1
        assert first.result().status_code == 200
        assert predict(client, TEXTS[0], tasks="mood").status_code == 200


def test_an_answer_that_takes_too_long(serving, held, code, monkeypatch):
    monkeypatch.setattr("plait.serve.app.MAX_SECONDS", 0.1)
    with serving(served={"tiny": held}) as client:
        assert code(predict(client, "fine"), 504) == "too_slow"
        assert code(predict(client, "sad"), 504) == "too_slow"
        held.go.set()
    assert held.sizes == [1]  # the second was dropped from the queue


def test_a_model_that_fails(serving, held, code, log):
    def fail(tasks, rows):
        raise ValueError("secret text")

    held.answer_together = fail
    with serving(served={"tiny": held}) as client:
        done = predict(client, "fine")
    assert code(done, 500) == "failed"
    assert "secret" not in done.text + str(log())
    assert [line["event"] for line in log()] == ["failed", "request"]
    assert log()[0]["error"] == "ValueError"
    assert "test_app.py:" in log()[0]["at"]


# --- keys, hosts, ids, log, metrics ------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "status"),
    [(None, 401), (f"Bearer {KEY}", 200), (f"Bearer {KEY}x", 401), (KEY, 401), ("Bearer ", 401)],
)
def test_keys(serving, code, header, status):
    with serving(keys=("another-key-of-somebody", KEY)) as client:
        headers = {"Authorization": header} if header else {}
        for path in ("/v1/runs", "/metrics"):
            done = client.get(path, headers=headers)
            assert done.status_code == status
            if status == 401:
                assert code(done, 401) == "unauthorized"
                assert done.headers["www-authenticate"] == "Bearer"
        assert client.get("/healthz").status_code == client.get("/").status_code == 200


def test_a_local_server_accepts_its_own_names_only(client, serving):
    for host in ("localhost:8000", "127.0.0.1", "[::1]:80"):
        assert client.get("/v1/runs", headers={"Host": host}).status_code == 200
    for host in ("evil.example", "127.0.0.1.evil.example", ""):
        assert client.get("/v1/runs", headers={"Host": host}).status_code == 400
    with serving(local_only=False) as other:
        assert other.get("/v1/runs", headers={"Host": "a.b"}).status_code == 200


@pytest.mark.parametrize(("given", "kept"), [("abc-1.2:3", True), ("a b", False), ("é", False)])
def test_request_ids(client, given, kept):
    done = client.get("/healthz", headers={"X-Request-ID": given.encode()})
    assert (done.headers["x-request-id"] == given) is kept


def test_the_log_has_no_texts(client, log):
    predict(client, TEXTS, tasks="mood")
    client.get("/nowhere?text=great")
    assert "great" not in str(log())
    first, second = log()
    assert first | {"time": 0, "request_id": 0, "ms": 0} == {
        "time": 0,
        "level": "info",
        "event": "request",
        "request_id": 0,
        "method": "POST",
        "path": "/v1/predict",
        "status": 200,
        "ms": 0,
        "run": "tiny",
        "inputs": 4,
        "tasks": ["mood"],
    }
    assert (second["status"], second["code"]) == (404, "not_found")


def test_metrics(serving):
    with serving() as client:
        predict(client, TEXTS, tasks="mood")
        predict(client, [PAIRS[0]])
        predict(client, "a", tasks="nope")
        client.get("/somewhere/else")
        lines = client.get("/metrics").text.splitlines()
    for line in (
        'plait_requests_total{path="/v1/predict",status="200"} 2.0',
        'plait_requests_total{path="/v1/predict",status="422"} 1.0',
        'plait_requests_total{path="other",status="404"} 1.0',
        'plait_problems_total{code="unknown_task"} 1.0',
        'plait_answers_total{run="tiny",task="mood"} 4.0',
        'plait_answers_total{run="tiny",task="same"} 1.0',
        "plait_batch_rows_sum 6.0",
    ):
        assert line in lines
