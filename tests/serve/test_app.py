"""The application: right answers in order, and a sentence for everything else."""

from __future__ import annotations

import asyncio
import dataclasses
import json

import pytest
from pydantic import ValidationError

import plait
from plait.serve.catalog import Catalog
from plait.serve.limits import Limits
from plait.serve.schemas import EmbedRequest, PredictRequest

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
def model(tiny_run):
    return plait.load(tiny_run, device="cpu", precision="fp32")


def expect(model, task, text):
    """Return the answer that the model gives to this text alone."""
    (found,) = model.predict(task, [tuple(text) if isinstance(text, list) else text])
    return found


def compare(answer, expected):
    assert answer["label"] == expected.label
    assert answer["value"] == pytest.approx(expected.value, abs=1e-5)
    if expected.probabilities:
        assert list(answer["probabilities"].values()) == pytest.approx(
            list(expected.probabilities), abs=1e-5
        )
        assert answer["confidence"] == pytest.approx(expected.confidence, abs=1e-5)
    else:
        assert set(answer) == {"value", "label"}


# --- answers -----------------------------------------------------------------------------


def test_words_are_those_of_the_library(asking, model):
    text = "the film was great ."
    done = asking("POST", "/v1/explain", json={"input": text, "task": "mood"}).json()
    expected = plait.explain(model, "mood", text)
    assert (done["run"], done["task"], done["method"]) == ("tiny", "mood", "shapley")
    assert done["answer"] == done["explained"] == expected.prediction.label
    assert (done["value"], done["bare"]) == pytest.approx((expected.value, expected.bare), abs=1e-5)
    for part, own in zip(done["parts"], expected.parts, strict=True):
        assert (part["text"], part["start"], part["end"]) == (own.text, own.start, own.end)
        assert part["effect"] == pytest.approx(own.effect, abs=1e-5)


def test_words_of_a_pair_and_of_a_label(asking, model):
    done = asking("POST", "/v1/explain", json={"input": PAIRS[0], "task": "near"}).json()
    assert done["explained"] is None
    assert {part["place"] for part in done["parts"]} == {0, 1}
    total = sum(part["effect"] for part in done["parts"])
    assert total == pytest.approx(done["value"] - done["bare"], abs=1e-5)
    body = {"input": TEXTS[0], "label": "so-so"}
    assert asking("POST", "/v1/explain", json=body).json()["explained"] == "so-so"


def test_words_take_no_more_rows_than_a_request_may(asking):
    body = {"input": " ".join(["great", "film"] * 40), "task": "mood"}
    done = asking("POST", "/v1/explain", json=body).json()
    assert done["method"] == "shapley"
    assert len(done["parts"]) <= 24
    few = {"limits": Limits(inputs=40)}
    assert asking("POST", "/v1/explain", given=few, json=body).json()["method"] == "occlusion"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"input": "a", "task": "moo"}, "unknown_task"),
        ({"input": "a", "label": "goof"}, "unknown_label"),
        ({"input": PAIRS[0]}, "which_task"),
        ({"input": PAIRS[0], "task": "mood"}, "wrong_texts"),
        ({"input": "  "}, "empty_text"),
    ],
)
def test_words_that_are_refused(asking, body, code):
    done = asking("POST", "/v1/explain", json=body)
    assert done.status_code == 422
    assert done.json()["error"]["code"] == code


def test_one_text(asking, model):
    done = asking("POST", "/v1/predict", json={"inputs": TEXTS[0], "tasks": "mood"})
    assert done.status_code == 200
    assert done.json()["run"] == "tiny"
    (answer,) = done.json()["answers"]
    compare(answer["mood"], expect(model, "mood", TEXTS[0]))
    assert list(answer["mood"]["probabilities"]) == ["bad", "so-so", "good"]


def test_all_tasks_that_fit_in_the_order_of_the_inputs(asking, model):
    inputs = [TEXTS[0], PAIRS[0], *TEXTS[1:], PAIRS[1]]
    answers = asking("POST", "/v1/predict", json={"inputs": inputs}).json()["answers"]
    assert len(answers) == len(inputs)
    for text, answer in zip(inputs, answers, strict=True):
        assert list(answer) == (["same", "near"] if isinstance(text, list) else ["mood"])
        for task, one in answer.items():
            compare(one, expect(model, task, text))


def test_probabilities_can_be_left_out(asking):
    body = {"inputs": TEXTS, "tasks": ["mood"], "probabilities": False}
    answers = asking("POST", "/v1/predict", json=body).json()["answers"]
    assert {tuple(answer["mood"]) for answer in answers} == {("value", "label", "confidence")}


def test_vectors(asking, model):
    done = asking("POST", "/v1/embed", json={"inputs": TEXTS}).json()
    assert done["width"] == 16
    for found, expected in zip(done["vectors"], model.embed(TEXTS).tolist(), strict=True):
        assert found == pytest.approx(expected, abs=1e-5)


def test_many_clients_at_once_get_their_own_answers(serving, model, held):
    """Held until all are queued, so that they are answered in a few batches."""
    words = [f"the {thing} was {'very ' * n}fine ." for n in range(8) for thing in ("film", "book")]

    async def go():
        async with serving(backends=[held], limits=Limits(batch_size=8)) as client:
            waiting = [asyncio.create_task(client.predict(w, tasks="mood")) for w in words]
            waiting += [asyncio.create_task(client.predict([p], tasks="same")) for p in PAIRS]
            await asyncio.sleep(0.2)
            held.go.set()
            return [(await one).json()["answers"][0] for one in waiting]

    answers = asyncio.run(go())
    for text, answer in zip(words, answers, strict=False):
        compare(answer["mood"], expect(model, "mood", text))
    for pair, answer in zip(PAIRS, answers[len(words) :], strict=True):
        compare(answer["same"], expect(model, "same", pair))
    assert len(held.asked) < len(words)
    assert max(len(ask.rows) for ask in held.asked) == 8


def test_numbers_that_are_none_become_null(serving, models):
    class Collapsed:
        is_alive, close = models.is_alive, models.close

        def answer(self, ask):
            runs = {"tiny": _Nan(models.runs["tiny"])}
            return dataclasses.replace(models, runs=runs).answer(ask)

    class _Nan:
        def __init__(self, model):
            self.tokenise, self.describe, self.tasks = model.tokenise, model.describe, model.tasks
            self.model = model

        def answer_together(self, tasks, rows):
            return {k: v * float("nan") for k, v in self.model.answer_together(tasks, rows).items()}

    async def go():
        async with serving(backends=[Collapsed()]) as client:
            return await client.predict([PAIRS[0]])

    answer = asyncio.run(go()).json()["answers"][0]
    assert answer["near"]["value"] is None
    assert set(answer["same"]["probabilities"].values()) == {None}


# --- what is served ----------------------------------------------------------------------


def test_runs_and_tasks(asking):
    runs = asking("GET", "/v1/runs").json()
    told = {"name": "tiny", "tasks": ["mood", "same", "near"], "embeds": True}
    assert runs == {"runs": [told], "left_out": [], "shows_data": False}
    tasks = asking("GET", "/v1/tasks", params={"run": "tiny"}).json()["tasks"]
    assert tasks == asking("GET", "/v1/tasks").json()["tasks"]
    assert [task["num_texts"] for task in tasks] == [1, 2, 2]
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


def test_signs_of_life_and_pages(asking):
    assert asking("GET", "/healthz").json() == {"status": "alive"}
    assert asking("GET", "/readyz").json() == {"status": "ready"}
    page = asking("GET", "/")
    assert page.headers["content-type"].startswith("text/html")
    assert "/docs" in page.text
    docs = asking("GET", "/docs").text
    for link in ("/openapi.json", "/v1/runs", "/v1/tasks", "/metrics"):
        assert f'href="{link}"' in docs
        assert asking("GET", link).status_code == 200
    runs = {"/v1/runs", *(f"/v1/runs/{{run}}{x}" for x in ("", "/curves", "/report", "/mistakes"))}
    assert set(asking("GET", "/openapi.json").json()["paths"]) == runs | {
        *("/v1/predict", "/v1/explain", "/v1/embed", "/v1/tasks"),
        *("/healthz", "/readyz", "/metrics"),
    }


def test_several_runs_are_told_apart_by_name(asking, models, code):
    facts = models.catalog.runs["tiny"]
    both = {"tiny": facts, "other": dataclasses.replace(facts, name="other", embeds=False)}
    given = {"catalog": Catalog(both, {})}
    done = asking("POST", "/v1/predict", given=given, json={"inputs": TEXTS[0]})
    assert code(done, 422) == "which_run"
    assert "tiny, other" in done.json()["error"]["message"]
    named = {"inputs": TEXTS[0], "run": "tiny"}
    assert asking("POST", "/v1/predict", given=given, json=named).status_code == 200
    done = asking("POST", "/v1/embed", given=given, json=named | {"run": "other"})
    assert code(done, 422) == "no_vectors"


NAMES = ["../tiny", "tiny/", "./tiny", "/etc", "tiny/../tiny", "..", "", "tiny\0", "%2e%2e", "TINY"]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_no_path(asking, code, name):
    done = asking("POST", "/v1/predict", json={"inputs": "fine", "run": name})
    assert code(done, 404) == "unknown_run"
    assert code(asking("GET", "/v1/tasks", params={"run": name}), 404) == "unknown_run"


@pytest.mark.parametrize(
    "path",
    [
        "/../app.py",
        "/%2e%2e/app.py",
        "/..%2fapp.py",
        "/..%5capp.py",
        "//etc/passwd",
        "/page/../../app.py",
        "/app.py",
    ],
)
def test_nothing_beside_the_page_can_be_read(asking, code, path):
    assert code(asking("GET", path), 404) == "not_found"


# --- what is refused ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "expected", "words"),
    [
        ({}, "invalid", "inputs is missing"),
        ({"inputs": []}, "invalid", "list of inputs"),
        ({"inputs": [""]}, "invalid", "not empty"),
        ({"inputs": 3}, "invalid", "one text or a list"),
        ({"inputs": [["a", "b", "c"]]}, "invalid", "a list of two"),
        ({"inputs": [["a"]]}, "invalid", "a list of two"),
        ({"inputs": "a", "tasks": []}, "invalid", "tasks"),
        ({"inputs": "a", "task": "mood"}, "invalid", "task is not known; did you mean 'tasks'?"),
        ({"input": "a"}, "invalid", "input is not known; did you mean 'inputs'?"),
        ({"inputs": "a", "model": "b"}, "invalid", "model is not known; known: inputs"),
        ({"inputs": "a", "": 1}, "invalid", "the key '' is not known; known: inputs"),
        ({"inputs": "a", "b c" * 99: 1}, "invalid", f"the key {('b c' * 99)[:80]!r} is not known"),
        ({"inputs": "a", "probabilities": "yes"}, "invalid", "probabilities"),
        ([1], "invalid", "JSON object"),
        ({"inputs": "  "}, "empty_text", "inputs[0]"),
        ({"inputs": ["a", "b\0"]}, "not_text", "inputs[1]"),
        ({"inputs": "a", "tasks": "mod"}, "unknown_task", "did you mean 'mood'?"),
        ({"inputs": "a", "tasks": "same"}, "wrong_texts", "takes two texts"),
        ({"inputs": ["a", ["a", "b"]], "tasks": ["mood"]}, "wrong_texts", "inputs[1]"),
        ({"inputs": ["a"] * 257}, "too_many_inputs", "256 at most"),
        ({"inputs": ["a", "b" * 20_001]}, "too_long", "20,000 at most"),
    ],
)
def test_a_body_that_cannot_be_answered(asking, code, body, expected, words):
    done = asking("POST", "/v1/predict", json=body)
    assert code(done, 422) == expected
    assert words in done.json()["error"]["message"]


@pytest.mark.parametrize(
    "body",
    [
        {"inputs": [1] * 300_000},
        {"inputs": "a", "tasks": [1] * 300_000},
        {f"{i:x}": 1 for i in range(85_000)},
    ],
)
@pytest.mark.parametrize("schema", [PredictRequest, EmbedRequest])
def test_of_many_mistakes_the_first_is_told(body, schema):
    assert len(json.dumps(body)) < Limits().body_bytes
    with pytest.raises(ValidationError) as refused:  # while it is looked at, nobody is answered
        schema.model_validate(body)
    assert refused.value.error_count() <= 3  # a union's alternatives


def test_a_key_that_is_no_text(asking, code):
    body = b'{"inputs": "a", "\\ud800": 1}'
    done = asking("POST", "/v1/predict", content=body, headers={"content-type": "application/json"})
    assert code(done, 422) == "invalid"


def test_bodies_that_are_no_json(asking, code):
    as_json = {"content-type": "application/json"}
    done = asking("POST", "/v1/predict", content=b'{"inputs": ', headers=as_json)
    assert code(done, 400) == "not_json"
    done = asking("POST", "/v1/predict", content=b'{"inputs": "a"}')
    assert code(done, 422) == "invalid"
    assert "Content-Type: application/json" in done.json()["error"]["message"]
    half = asking("POST", "/v1/predict", content=b'{"inputs": "\\ud800"}', headers=as_json)
    assert code(half, 422) in ("invalid", "not_text")
    name = asking(
        "POST", "/v1/predict", content=b'{"inputs": "a", "run": "\\ud800"}', headers=as_json
    )
    assert name.status_code in (404, 422)
    for body in (b"\xff\xfe", '{"inputs": "é"}'.encode("latin-1"), b"[" * 100_000, b"9" * 10_000):
        done = asking("POST", "/v1/predict", content=body, headers=as_json)
        assert code(done, 400) == "not_json"


def test_methods(asking, code):
    done = asking("DELETE", "/v1/runs")
    assert code(done, 405) == "method_not_allowed"
    assert "GET" in done.headers["allow"]
    done = asking("GET", "/v1/predict")  # as a browser asks for it
    assert code(done, 405) == "method_not_allowed"
    assert done.json()["error"]["message"] == "this address does not take GET; use POST"
    assert done.headers["allow"] == "POST"
    done = asking("PUT", "/v1/predict")
    assert code(done, 405) == "method_not_allowed"
    assert done.headers["allow"] == "POST"


def test_bodies_too_large(serving, code):
    async def pieces(count):
        for _ in range(count):
            yield b"x" * 1000

    async def go():
        async with serving(limits=Limits(body_bytes=5000)) as client:
            plain = await client.post("/v1/predict", content=b"x" * 5001)
            streamed = await client.post("/v1/predict", content=pieces(6))
            endless = await client.post("/v1/predict", content=pieces(1_000_000))
            return plain, streamed, endless

    for done in asyncio.run(go()):
        assert code(done, 413) == "too_large"
        assert "5,000 bytes" in done.json()["error"]["message"]


def test_bodies_too_slow(serving, code):
    async def drip():
        yield b"{"
        await asyncio.sleep(5)

    async def go():
        async with serving(limits=Limits(body_seconds=0.05)) as client:
            return await client.post("/v1/predict", content=drip())

    assert code(asyncio.run(go()), 408) == "slow_body"


def test_a_full_queue_says_when_to_come_again(serving, held, code):
    async def go():
        limits = Limits(queue=4, inputs=4, wait_ms=0)
        async with serving(backends=[held], limits=limits) as client:
            first = asyncio.create_task(client.predict(TEXTS, tasks="mood"))
            await asyncio.sleep(0.1)
            refused = await client.predict(TEXTS[0], tasks="mood")
            held.go.set()
            answered = await first
            after = await client.predict(TEXTS[0], tasks="mood")
            return refused, answered, after

    refused, answered, after = asyncio.run(go())
    assert code(refused, 429) == "busy"
    assert int(refused.headers["retry-after"]) >= 1
    assert (answered.status_code, after.status_code) == (200, 200)


def test_too_many_requests_at_once(serving, held, code):
    async def go():
        async with serving(backends=[held], limits=Limits(requests=2)) as client:
            waiting = [asyncio.create_task(client.predict("fine")) for _ in range(2)]
            await asyncio.sleep(0.1)
            refused = await client.predict("fine")
            held.go.set()
            return refused, [(await one).status_code for one in waiting]

    refused, others = asyncio.run(go())
    assert code(refused, 429) == "busy"
    assert others == [200, 200]


def test_what_takes_too_long_is_given_up(serving, held, code):
    async def go():
        limits = Limits(seconds=0.2, wait_ms=0, batch_size=1)
        async with serving(backends=[held], limits=limits) as client:
            both = await asyncio.gather(client.predict("fine"), client.predict("sad"))
            held.go.set()
            return *both, await client.get("/metrics")

    *both, figures = asyncio.run(go())
    for done in both:
        assert code(done, 504) == "too_slow"
    assert "plait_dropped_rows_total 1.0" in figures.text.splitlines()
    assert len(held.asked) == 1  # nobody waits for the other one any more


def test_who_leaves_while_the_model_answers_takes_nobody_along(serving, held):
    async def go():
        async with serving(backends=[held], limits=Limits(wait_ms=5000, batch_size=2)) as client:
            left, sent = asyncio.Event(), []
            body = json.dumps({"inputs": "sad", "tasks": "mood"}).encode()
            first = iter([{"type": "http.request", "body": body, "more_body": False}])

            async def receive():
                if (message := next(first, None)) is not None:
                    return message
                await left.wait()
                return {"type": "http.disconnect"}

            async def send(message):
                sent.append(message)

            headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
            scope = {"type": "http", "method": "POST", "path": "/v1/predict", "headers": headers}
            scope |= {"query_string": b"", "root_path": "", "scheme": "http", "server": None}
            leaving = asyncio.create_task(client.app(scope, receive, send))
            staying = asyncio.create_task(client.predict("fine", tasks="mood"))
            while not held.asked:
                await asyncio.sleep(0.01)
            left.set()
            await leaving
            held.go.set()
            return await staying, sent, (await client.get("/metrics")).text.splitlines()

    stayed, sent, figures = asyncio.run(go())
    assert [len(ask.rows) for ask in held.asked] == [2]
    assert stayed.status_code == 200
    assert sent[0]["status"] == 499
    for line in ("plait_dropped_rows_total 0.0", "plait_queue_rows 0.0"):
        assert line in figures


def test_what_was_accepted_is_answered_before_the_end(serving, held):
    async def go():
        async with serving(backends=[held], limits=Limits(batch_size=1)) as client:
            waiting = [asyncio.create_task(client.predict(text)) for text in TEXTS]
            await asyncio.sleep(0.1)
            held.go.set()
        return [(await one).status_code for one in waiting]

    assert asyncio.run(go()) == [200] * len(TEXTS)


def test_a_model_that_fails_is_no_traceback(serving, models, code):
    class Broken:
        is_alive, close = models.is_alive, models.close

        def answer(self, ask):
            raise ValueError("secret text")

    async def go():
        async with serving(backends=[Broken()]) as client:
            done = await client.predict("fine")
        return done, client.log

    done, log = asyncio.run(go())
    assert code(done, 500) == "failed"
    assert "secret" not in done.text
    assert [line["event"] for line in log].count("batch_failed") == 2


# --- keys, hosts, ids --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": f"Bearer {KEY}"}, 200),
        ({"X-API-Key": KEY}, 200),
        ({"Authorization": f"Bearer {KEY}x"}, 401),
        ({"Authorization": KEY}, 401),
        ({"Authorization": "Bearer "}, 401),
        ({"X-API-Key": b"\xe9"}, 401),
    ],
)
@pytest.mark.parametrize("path", ["/v1/runs", "/metrics"])
def test_keys(asking, code, path, headers, status):
    done = asking("GET", path, given={"keys": (KEY,)}, headers=headers)
    assert done.status_code == status
    if status == 401:
        assert code(done, 401) == "unauthorized"
        assert done.headers["www-authenticate"] == "Bearer"


def test_a_key_is_asked_before_the_body_is_read(asking, code):
    done = asking("POST", "/v1/predict", given={"keys": (KEY,)}, content=b"x" * 2_000_000)
    assert code(done, 401) == "unauthorized"


def test_life_needs_no_key(asking):
    for path in ("/healthz", "/readyz"):
        assert asking("GET", path, given={"keys": (KEY,)}).status_code == 200


def test_a_local_server_answers_to_its_own_names(asking, code):
    for host in ("localhost:8000", "127.0.0.1", "[::1]:80"):
        assert asking("GET", "/v1/runs", headers={"Host": host}).status_code == 200
    for host in ("evil.example", "127.0.0.1.evil.example", ""):
        assert code(asking("GET", "/v1/runs", headers={"Host": host}), 400) == "wrong_host"
    given = {"local_only": False}
    assert asking("GET", "/v1/runs", given=given, headers={"Host": "a.b"}).status_code == 200


def test_pages_of_other_sites_cannot_ask_a_local_server(asking, code):
    for site, status in (("same-origin", 200), ("none", 200), ("same-site", 200)):
        assert asking("GET", "/v1/runs", headers={"Sec-Fetch-Site": site}).status_code == status
    other = {"Sec-Fetch-Site": "cross-site"}
    assert code(asking("GET", "/v1/runs", headers=other), 400) == "wrong_site"
    assert asking("GET", "/", headers=other).status_code == 200  # a link may lead here
    keys = {"Authorization": f"Bearer {KEY}"}
    done = asking("GET", "/v1/runs", given={"keys": (KEY,)}, headers=other | keys)
    assert done.status_code == 200


def test_other_origins_are_not_let_in(asking):
    origin = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    done = asking("OPTIONS", "/v1/predict", headers=origin)
    assert done.status_code == 405
    assert not [name for name in done.headers if name.startswith("access-control")]


@pytest.mark.parametrize(
    ("given", "kept"), [("abc-1.2:3", True), ("a b", False), ('a"}\n{', False), ("x" * 129, False)]
)
def test_ids_of_requests(asking, given, kept):
    done = asking("GET", "/healthz", headers={"X-Request-ID": given.encode()})
    assert (done.headers["x-request-id"] == given) is kept


# --- log and figures ---------------------------------------------------------------------


def test_the_log_has_no_texts_unless_asked(serving):
    async def go(**more):
        async with serving(**more) as client:
            await client.predict(TEXTS, tasks="mood")
            await client.get("/nowhere?text=great")
            return client.log, client.lines.getvalue()

    log, text = asyncio.run(go())
    assert "great" not in text
    assert [line["event"] for line in log] == ["request", "request"]
    assert log[0] | {"time": 0, "request_id": 0, "ms": 0} == {
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
    assert (log[1]["status"], log[1]["code"]) == (404, "not_found")
    log, _ = asyncio.run(go(log_texts=True))
    assert log[0]["texts"] == [[text] for text in TEXTS]


def test_figures_count(serving):
    async def go():
        async with serving() as client:
            await client.predict(TEXTS, tasks="mood")
            await client.predict([PAIRS[0]])
            await client.predict("a", tasks="nope")
            await client.get("/somewhere/else")
            return (await client.get("/metrics")).text.splitlines()

    lines = asyncio.run(go())
    for line in (
        'plait_requests_total{path="/v1/predict",status="200"} 2.0',
        'plait_requests_total{path="/v1/predict",status="422"} 1.0',
        'plait_requests_total{path="other",status="404"} 1.0',
        'plait_problems_total{code="unknown_task"} 1.0',
        'plait_answers_total{run="tiny",task="mood"} 4.0',
        'plait_answers_total{run="tiny",task="same"} 1.0',
        "plait_batch_rows_sum 6.0",
        "plait_queue_rows 0.0",
        "plait_workers 1.0",
    ):
        assert line in lines
