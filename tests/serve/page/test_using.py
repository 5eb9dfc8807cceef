"""Everything the page can do, done in a browser by somebody who clicks and types."""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
import time
from pathlib import Path
from urllib.parse import quote, urlencode

import httpx
import pytest
from page_server import HTML

TEXT = "the film was great ."
PAIR = ("the film was great .", "the film was superb .")
KEY = "a-key-of-enough-characters"


def ask(address, run, inputs):
    """Return what the API says to one input."""
    body = {"run": run, "inputs": [inputs]}
    return httpx.post(f"{address}/v1/predict", json=body).json()["answers"][0]


def link(address, *texts, **params):
    return f"{address}/#/try?{urlencode([*params.items(), *(('text', one) for one in texts)])}"


def card(page, task):
    return page.locator("article.answer", has=page.get_by_role("heading", name=task, exact=True))


# --- trying ------------------------------------------------------------------------------


def test_typing_is_answered_with_every_class_as_a_bar(tabs, address):
    page = tabs.open(link(address, run="tiny"))
    assert "one of: bad, so-so, good" in card(page, "mood").inner_text()
    page.get_by_label("Text", exact=True).fill(TEXT)
    verdict = card(page, "mood").locator(".verdict")
    verdict.wait_for()
    expected = ask(address, "tiny", TEXT)["mood"]
    assert verdict.inner_text() == f"{expected['label']} {expected['confidence']:.0%} sure"
    bars = card(page, "mood").locator(".bars li")
    shown = [bar.inner_text().split("\n") for bar in bars.all()]
    assert [label for label, _ in shown] == ["bad", "so-so", "good"]
    for (_, number), share in zip(shown, expected["probabilities"].values(), strict=True):
        assert number == f"{share:.0%}"
    assert bars.locator("css=.bar span").count() == 3
    assert card(page, "mood").locator(".chosen .label").inner_text() == expected["label"]
    said = page.locator("[role=status]").inner_text()
    assert said == f"mood: {expected['label']}"  # what a screen reader hears


def test_the_words_that_an_answer_rests_on(tabs, address):
    page = tabs.open(link(address, TEXT, run="tiny"))
    place = card(page, "mood")
    place.get_by_role("button", name="Which words?").click()
    place.locator(".words li").first.wait_for()
    body = {"run": "tiny", "task": "mood", "input": TEXT}
    found = httpx.post(f"{address}/v1/explain", json=body).json()
    strongest = max(found["parts"], key=lambda part: abs(part["effect"]))
    assert place.locator(".words .label").first.inner_text() == strongest["text"]
    assert place.locator(".marked").inner_text() == TEXT
    assert strongest["text"] in place.locator(".marked mark").all_inner_texts()
    assert f"The probability of “{found['explained']}” is" in place.inner_text()
    assert "strongest words: " in page.locator("[role=status]").inner_text()


def test_an_emptied_box_shows_no_answer(tabs, address):
    page = tabs.open(link(address, TEXT, run="tiny"))
    card(page, "mood").locator(".verdict").wait_for()
    page.get_by_label("Text", exact=True).fill("")
    card(page, "mood").get_by_text("one of: bad, so-so, good").wait_for()
    assert page.locator(".verdict").count() == 0
    assert page.locator(".answers[aria-busy]").count() == 0


def test_pairs_have_two_boxes_and_scores_a_scale(tabs, address):
    page = tabs.open(link(address, run="tiny"))
    assert "choose “Two texts” above" in card(page, "near").inner_text()  # it is told of
    page.get_by_label("Two texts").check()
    assert "choose “One text” above" in card(page, "mood").inner_text()
    page.get_by_label("First text").fill(PAIR[0])
    page.get_by_label("Second text").fill(PAIR[1])
    card(page, "near").locator(".verdict").wait_for()
    answers = ask(address, "tiny", PAIR)
    assert card(page, "same").locator("strong").inner_text() == answers["same"]["label"]
    near = card(page, "near").inner_text()
    assert f"{answers['near']['value']:.2f}" in near
    assert "on a scale of 0 to 5" in near
    width = card(page, "near").locator(".scale .bar span").evaluate("node => node.style.width")
    assert float(width[:-1]) == pytest.approx(20 * answers["near"]["value"], abs=0.01)


def test_samples_go_round(tabs, address):
    page = tabs.open(link(address, run="tiny"))
    box, seen = page.get_by_label("Text", exact=True), []
    for _ in range(7):
        page.get_by_role("button", name="Sample").click()
        seen.append(box.input_value())
    assert len(set(seen)) == 6
    assert seen[0] == seen[6]
    card(page, "mood").locator(".verdict").wait_for()


def test_a_link_restores_what_was_typed(tabs, address):
    page = tabs.open(link(address, run="again"), permissions=["clipboard-read", "clipboard-write"])
    page.get_by_label("Two texts").check()
    odd = f"50% of «{HTML}» & more? #1 + 1"
    page.get_by_label("First text").fill(odd)
    page.get_by_label("Second text").fill(PAIR[1])
    card(page, "same").locator(".verdict").wait_for()
    page.get_by_role("button", name="Copy link").click()
    page.get_by_role("button", name="Copied").wait_for()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == page.url
    assert "?" not in copied.partition("#")[0]  # texts stay behind the #, out of servers' logs
    other = tabs.open(copied)
    assert other.get_by_label("First text").input_value() == odd
    assert other.get_by_label("Second text").input_value() == PAIR[1]
    assert other.get_by_label("Run", exact=True).input_value() == "again"
    expected = card(page, "same").inner_text()
    assert card(other, "same").inner_text() == expected


def test_two_runs_are_compared(tabs, address):
    page = tabs.open(link(address, TEXT, run="tiny"))
    page.get_by_label("Compare with").select_option("again")
    sides = card(page, "mood").locator(".sides > div")
    sides.nth(1).wait_for()
    answers = [ask(address, run, TEXT)["mood"] for run in ("tiny", "again")]
    for side, run, answer in zip(sides.all(), ("tiny", "again"), answers, strict=True):
        assert side.get_by_role("heading").inner_text() == run
        assert side.locator("strong").inner_text() == answer["label"]
        assert f"{answer['confidence']:.0%} sure" in side.inner_text()
    agree = answers[0]["label"] == answers[1]["label"]
    tag = page.locator(".tag").inner_text()
    assert tag == ("they agree" if agree else "they differ")
    again = tabs.open(page.url)
    assert again.locator(".sides > div").count() == 2
    page.get_by_label("Compare with").select_option("labels")  # a run with other tasks
    page.get_by_text("has no such task").first.wait_for()
    assert page.locator("article.answer").count() == 2


def test_several_labels(tabs, address):
    page = tabs.open(link(address, "fine and sad", run="labels"))
    expected = ask(address, "labels", "fine and sad")["signs"]
    said = ", ".join(expected["labels"]) or "none of the labels"
    assert card(page, "signs").locator("strong").inner_text() == said
    labels = card(page, "signs").locator(".bars .label")
    assert labels.all_inner_texts() == ["good", HTML]
    assert card(page, "signs").locator(".chosen").count() == len(expected["labels"])


def test_an_ensemble(tabs, address):
    page = tabs.open(link(address, TEXT, run="both"))
    expected = ask(address, "both", TEXT)["mood"]["label"]
    assert card(page, "mood").locator("strong").inner_text() == expected


def test_what_cannot_be_answered_is_said(tabs, address):
    tabs.expected = ("Failed to load resource: the server responded with a status of 422",)
    page = tabs.open(link(address, run="tiny"))
    page.get_by_role("button", name="Answer").click()
    page.get_by_text("Write something first").wait_for()
    assert page.evaluate("document.activeElement.tagName") == "TEXTAREA"
    page.get_by_label("Text", exact=True).fill("long " * 500)
    page.get_by_role("alert").wait_for()
    assert "send 2,000 at most" in page.get_by_role("alert").inner_text()
    page = tabs.open(link(address, run="nowhere"))
    page.get_by_text("There is no run nowhere here").wait_for()


def test_a_server_that_is_gone(tabs, serve):
    tabs.expected = ("Failed to load resource: net::ERR_CONNECTION_REFUSED",)
    with serve() as address:
        page = tabs.open(link(address, run="tiny"))
    page.get_by_label("Text", exact=True).fill(TEXT)
    page.get_by_role("alert").wait_for()
    assert "is it still running?" in page.get_by_role("alert").inner_text()


# --- files -------------------------------------------------------------------------------


DROP = """([selector, name, text]) => {
  const data = new DataTransfer();
  data.items.add(new File([text], name, { type: "text/csv" }));
  const zone = document.querySelector(selector);
  for (const kind of ["dragover", "drop"]) {
    zone.dispatchEvent(new DragEvent(kind, { dataTransfer: data, cancelable: true }));
  }
}"""


def test_a_dropped_file_comes_back_with_answers(tabs, address):
    page = tabs.open(f"{address}/#/file")
    texts = [f'the film was {word} , "really" .' for word in ("great", "dull", "fine")] * 50
    rows = [[str(i), text, "x"] for i, text in enumerate(texts)]
    lines = [["id", "text", "mood"], *rows, ["150", "", "x"], ["151", "long " * 500, "y"]]
    text = "".join(";".join('"' + c.replace('"', '""') + '"' for c in row) + "\n" for row in lines)
    tabs.expected = ("Failed to load resource: the server responded with a status of 422",)
    page.evaluate(DROP, [".drop", "films.csv", text])
    assert page.get_by_label("Text is in", exact=True).input_value() == "text"
    page.get_by_label("Run", exact=True).select_option("tiny")
    page.get_by_role("button", name="Answer 152 rows").click()
    page.get_by_role("link", name="Download").wait_for()
    problem = page.locator(".problem").inner_text()
    assert problem.startswith("2 rows left empty. Row 151: it has no text.")
    with page.expect_download() as waiting:
        page.get_by_role("link", name="Download").click()
    assert waiting.value.suggested_filename == "films-answered.csv"
    with waiting.value.path().open(encoding="utf-8", newline="") as file:
        found = list(csv.DictReader(file, delimiter=";"))
    assert [[row["id"], row["text"], row["mood"]] for row in found] == lines[1:]
    for row in found[:3]:
        answer = ask(address, "tiny", row["text"])["mood"]
        assert row["predicted_mood"] == str(answer["value"])
        assert row["predicted_mood_label"] == answer["label"]
        assert float(row["predicted_mood_confidence"]) == pytest.approx(
            answer["confidence"], abs=1e-4
        )
    assert all(row["predicted_mood_label"] for row in found[:150])
    assert [row["predicted_mood_label"] for row in found[150:]] == ["", ""]


def test_a_file_of_texts_with_several_labels(tabs, address):
    page = tabs.open(f"{address}/#/file")
    page.get_by_label("or paste its rows").fill(f"text\tx\n{TEXT}\t1\nthe book was .\t2")
    page.get_by_role("button", name="Use what is pasted").click()
    page.get_by_label("Run", exact=True).select_option("labels")
    page.get_by_role("button", name="Answer 2 rows").click()
    page.get_by_role("link", name="Download").wait_for()
    table = page.locator("table").last
    header = table.locator("th").all_inner_texts()
    assert header[2:] == ["signs", "signs_label", "signs_confidence", "signs_label_probabilities"]
    answer = ask(address, "labels", TEXT)["signs"]
    cells = table.locator("td").all_inner_texts()[: len(header)]
    assert cells[3] == "|".join(answer["labels"])
    each = [float(p) for p in cells[5].split("|") if p]
    assert each == pytest.approx([answer["probabilities"][w] for w in answer["labels"]], abs=1e-4)


def test_pasted_pairs(tabs, address):
    page = tabs.open(f"{address}/#/file")
    pasted = "b\ta\n" + "\n".join(f"{two}\t{one}" for one, two in [PAIR] * 3)
    page.get_by_label("or paste its rows").fill(pasted)
    page.get_by_role("button", name="Use what is pasted").click()
    page.get_by_label("Run", exact=True).select_option("tiny")
    columns = [page.get_by_label(f"{name} is in", exact=True) for name in ("Text", "Second text")]
    assert [column.input_value() for column in columns] == ["a", "b"]  # as the task calls them
    page.get_by_role("button", name="Answer 3 rows").click()
    page.get_by_role("link", name="Download").wait_for()
    header = page.locator("table").last.locator("th").all_inner_texts()
    assert header == ["b", "a", "same", "same_label", "same_confidence", "near"]
    near = float(page.locator("table").last.locator("td").nth(5).inner_text())
    assert near == pytest.approx(ask(address, "tiny", PAIR)["near"]["value"], abs=1e-4)


def test_a_chosen_file_and_its_progress(tabs, serve, loaded, tmp_path):
    class Slow:
        is_alive, restart, close = loaded.is_alive, loaded.restart, loaded.close
        catalog = loaded.catalog

        def answer(self, ask):
            time.sleep(0.1)
            return loaded.answer(ask)

    path = tmp_path / "some.csv"
    path.write_text("text\n" + f"{TEXT}\n" * 1000, encoding="utf-8")
    with serve(models=Slow()) as address:
        page = tabs.open(f"{address}/#/file")
        page.get_by_label("Drop a CSV here").set_input_files(path)
        page.get_by_role("button", name="Answer 1,000 rows").click()
        bar = page.get_by_role("progressbar", name="Rows answered")
        page.get_by_text(re.compile(r"[\d,]+ of 1,000 rows")).wait_for()
        assert 0 < bar.evaluate("node => node.value") < 1000
        page.get_by_role("button", name="Stop").click()
        page.get_by_text("Stopped").wait_for()
        page.get_by_role("button", name="Answer 1,000 rows").click()
        page.get_by_role("link", name="Download some-answered.csv").wait_for()


def test_a_phone_leaves_texts_room_beside_their_answers(tabs, address):
    page = tabs.open(f"{address}/#/file", phone=True)
    page.get_by_role("button", name="Sample").click()
    page.get_by_role("button", name="Answer 5 rows").click()
    page.get_by_role("link", name="Download").wait_for()
    cell = page.get_by_role("region", name="First answered rows").locator("td").nth(1)
    assert cell.bounding_box()["width"] >= 9 * 16


LINES = [f"{i},the film was {word} ." for i in range(200) for word in ("great", "dull")]


def answer_until_it_stops(page, failure):
    """Answer a file of 400 rows, of whose requests only the first three come through."""
    asked = []

    def reply(route):
        asked.append(route)
        if len(asked) > 3:
            failure(route)
        else:
            route.continue_()

    page.route("**/v1/predict", reply)
    page.evaluate(DROP, [".drop", "films.csv", "id,text\n" + "\n".join(LINES)])
    page.get_by_label("Run", exact=True).select_option("tiny")
    page.get_by_role("button", name="Answer 400 rows").click()
    page.get_by_role("button", name="Continue").wait_for()


def download(page, name):
    with page.expect_download() as waiting:
        page.get_by_role("link", name=f"Download {name}", exact=True).click()
    with waiting.value.path().open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


STOPPING = json.dumps({"error": {"code": "stopping", "message": "the server is stopping"}})


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        (lambda route: route.abort("connectionreset"), "the server cannot be reached"),
        (lambda route: route.fulfill(status=503, body=STOPPING), "the server is stopping"),
        (
            lambda route: route.fulfill(status=502, body="<h1>Bad gateway"),
            "the server answered 502",
        ),
        (
            lambda route: route.fulfill(status=200, body='{"run": "ti'),
            "the connection broke before",
        ),
    ],
)
def test_what_was_answered_is_kept_when_the_server_fails(tabs, address, failure, words):
    tabs.expected = ("Failed to load resource",)
    page = tabs.open(f"{address}/#/file")
    answer_until_it_stops(page, failure)
    told = page.get_by_role("alert").inner_text()
    found = re.match(rf"Stopped after (128|192) of 400 rows: {words}", told)
    assert found, told
    num_done = int(found[1])  # a request may be under way when another fails
    partly = download(page, "films-partly-answered.csv")
    assert [row["id"] for row in partly] == [line.partition(",")[0] for line in LINES]
    assert [bool(row["mood_label"]) for row in partly].count(True) == num_done
    page.unroute("**/v1/predict")
    asked = []
    page.on("request", lambda one: asked.append(one) if "predict" in one.url else None)
    page.get_by_role("button", name="Continue").click()
    page.get_by_role("link", name="Download films-answered.csv").wait_for()
    sent = sum(len(one.post_data_json["inputs"]) for one in asked)
    assert sent == 400 - num_done  # nothing is asked twice
    whole = download(page, "films-answered.csv")
    for row in (partly[0], *whole[:2], *whole[-2:]):
        answer = ask(address, "tiny", row["text"])["mood"]
        assert row["mood_label"] == answer["label"]
        assert float(row["mood_confidence"]) == pytest.approx(answer["confidence"], abs=1e-4)
    assert all(row["mood_label"] for row in whole)


def test_a_server_that_dies_in_the_middle_of_a_file_and_comes_back(tabs, serve, loaded):
    class Slow:
        is_alive, restart, close = loaded.is_alive, loaded.restart, loaded.close
        catalog = loaded.catalog

        def answer(self, ask):
            time.sleep(0.1)
            return loaded.answer(ask)

    tabs.expected = ("Failed to load resource",)
    with serve(models=Slow()) as address:
        port = int(address.rpartition(":")[2])
        page = tabs.open(f"{address}/#/file")
        page.evaluate(DROP, [".drop", "films.csv", "id,text\n" + "\n".join(LINES * 5)])
        page.get_by_label("Run", exact=True).select_option("tiny")
        page.get_by_role("button", name="Answer 2,000 rows").click()
        page.get_by_text(re.compile(r"[1-9][\d,]* of 2,000 rows")).wait_for()
    page.get_by_role("alert").wait_for()
    assert "Stopped after" in page.get_by_role("alert").inner_text()
    some = sum(bool(row["mood_label"]) for row in download(page, "films-partly-answered.csv"))
    assert 0 < some < 2000
    page.get_by_role("button", name="Continue").click()  # too soon
    page.get_by_role("alert").wait_for()
    with serve(port=port):
        page.get_by_role("button", name="Continue").click()
        page.get_by_role("link", name="Download films-answered.csv").wait_for()
        assert all(row["mood_label"] for row in download(page, "films-answered.csv"))


def test_a_stopped_file_goes_on_or_starts_again(tabs, address):
    page = tabs.open(f"{address}/#/file")
    stop, stopped = page.get_by_role("button", name="Stop"), []

    def stop_once(route):
        stopped.append(route)
        if len(stopped) == 1:  # a second click would wait for the button of the next attempt
            stop.dispatch_event("click")

    answer_until_it_stops(page, stop_once)
    assert page.get_by_text(re.compile(r"^Stopped after (128|192) of 400 rows\.$")).is_visible()
    page.unroute("**/v1/predict")
    page.get_by_role("button", name="Answer 400 rows").click()
    page.get_by_role("link", name="Download films-answered.csv").wait_for()
    assert page.get_by_role("button", name="Continue").count() == 0


def test_files_that_are_none(tabs, address):
    page = tabs.open(f"{address}/#/file")
    for text, words in (("", "nothing in it"), ("a\0b", "no CSV"), ("\n\n", "nothing in it")):
        page.evaluate(DROP, [".drop", "x.csv", text])
        page.get_by_role("alert").filter(has_text=words).wait_for()


BYTES = DROP.replace("[text]", "[new Uint8Array(text)]")


def test_a_file_of_excel_keeps_its_mark_and_one_that_is_not_utf_8_is_refused(tabs, address):
    page = tabs.open(f"{address}/#/file")
    text = "text;größe\r\nthe film was great;1\r\n"
    page.evaluate(BYTES, [".drop", "x.csv", list(text.encode("cp1252"))])
    page.get_by_role("alert").filter(has_text="this is not UTF-8; in Excel, save it as").wait_for()
    page.evaluate(BYTES, [".drop", "x.csv", list(text.encode("utf-8-sig"))])
    page.get_by_role("button", name="Answer 1 row").click()
    page.get_by_role("link", name="Download x-answered.csv").wait_for()
    with page.expect_download() as waiting:
        page.get_by_role("link", name="Download x-answered.csv").click()
    written = Path(waiting.value.path()).read_bytes()
    assert written.startswith("\ufefftext;größe;".encode())


CELLS = [["a", "b,c"], ['say "so"', "two\nlines"], ["", "x"], ["é — 😀", " pad "]]
READ = """async (text) => {
  const { guessSeparator, parse, format } = await import("/csv.js");
  const separator = guessSeparator(text);
  return [separator, parse(text, separator), format(parse(text, separator), separator)];
}"""


def test_csv_is_read_and_written_as_python_does(tabs, address):
    page = tabs.open(f"{address}/docs")
    for separator, ending in itertools.product(",;\t", ("\n", "\r\n")):
        file = io.StringIO(newline="")
        writer = csv.writer(file, delimiter=separator, lineterminator=ending)
        writer.writerows([["one", "two"], *CELLS])
        found, rows, written = page.evaluate(READ, "\ufeff" + file.getvalue())
        assert found == separator
        assert rows == [["one", "two"], *CELLS]
        assert list(csv.reader(io.StringIO(written, newline=""), delimiter=separator)) == rows


def test_names_and_widths_of_a_table_are_found(tabs, address):
    page = tabs.open(f"{address}/docs")
    read = """async (text) => (await import("/csv.js")).readTable(text, "x.csv")"""
    named = page.evaluate(read, "id,text\n1,a\n2,b,more\n")
    assert named["names"] == ["id", "text", "column 3"]
    assert named["rows"] == [["1", "a", ""], ["2", "b", "more"]]
    bare = page.evaluate(read, "A first row that is a sentence and no name of a column\nAnother\n")
    assert (bare["names"], len(bare["rows"])) == (["column 1"], 2)


# --- runs --------------------------------------------------------------------------------


def test_runs_are_browsed(tabs, address, runs):
    page = tabs.open(f"{address}/#/runs")
    names = page.locator(".runs h2").all_inner_texts()
    assert sorted(names) == ["again", "both", "empty", "labels", "tiny"]
    entry = page.locator(".runs > li", has=page.get_by_role("link", name="tiny", exact=True))
    scores = json.loads((runs / "tiny" / "scores.json").read_text("utf-8"))["dev"]["primary"]
    numbers = entry.locator(".number").all_inner_texts()
    assert numbers == [f"{value:.3f}".replace("-", "\u2212") for value in scores.values()]
    assert "recipe.toml" in page.locator(".runs > li", has_text="empty").inner_text()
    assert "ensemble of tiny, again" in page.locator(".runs").inner_text()
    page.get_by_text("The mark on a bar is").wait_for()
    entry.get_by_role("link", name="tiny").click()
    page.get_by_role("heading", name="Losses over time").wait_for()
    charts = page.locator(".chart svg")
    assert charts.count() == 2
    assert "mood, accuracy from" in charts.first.get_attribute("aria-label")
    page.get_by_text("The same as a table").first.click()
    lines = (runs / "tiny" / "metrics.jsonl").read_text("utf-8").splitlines()
    scored = [json.loads(line) for line in lines if '"scores"' in line]
    last = page.locator("figure").first.locator("tbody tr").last.locator("td").first
    assert last.inner_text() == f"{scored[-1]['metrics']['mood']['accuracy']:.3f}"
    page.get_by_role("link", name="Try it").click()
    page.get_by_role("heading", name="Try a sentence").wait_for()
    assert page.get_by_label("Run", exact=True).input_value() == "tiny"


def test_an_ensemble_leads_to_its_members(tabs, address):
    page = tabs.open(f"{address}/#/runs/both")
    page.get_by_role("link", name="again").click()
    page.get_by_role("heading", name="again", exact=True).wait_for()


BLOCKED = "Blocked script execution"
"""What a frame without scripts says to one, be it Playwright's."""


def test_a_report_runs_no_scripts(tabs, address):
    tabs.expected = (BLOCKED,)
    page = tabs.open(f"{address}/report?run=labels")
    page.frame_locator("iframe").get_by_role("heading", name="Mine").click()
    assert page.title() == "Report of labels · plait"
    assert any(trouble.startswith(BLOCKED) for trouble in tabs.troubles)


def test_a_report_is_made_and_opened(tabs, address):
    tabs.expected = (BLOCKED,)
    page = tabs.open(f"{address}/#/runs/tiny")
    page.get_by_role("link", name="Report").click()
    frame = page.frame_locator("iframe")
    frame.get_by_role("heading", name="Training report: tiny").wait_for(timeout=60_000)
    style = "node => getComputedStyle(node).fontFamily"
    assert "system-ui" in frame.locator("body").evaluate(style)  # its own style is let in
    frame.get_by_role("link", name="How it was made").click()
    frame.locator("#making:target").wait_for()  # links to parts stay inside
    assert page.title() == "Report of tiny · plait"
    page.get_by_role("link", name="tiny").click()
    page.get_by_role("heading", name="Scores on dev").wait_for()


def test_mistakes_are_found_and_can_be_tried(tabs, address):
    page = tabs.open(f"{address}/#/runs/again")
    page.get_by_role("link", name="Mistakes").click()
    page.get_by_role("heading", name="near").wait_for(timeout=60_000)
    found = httpx.get(f"{address}/v1/runs/again/mistakes").json()["tasks"]
    worst = next(task for task in found if task["task"] == "near")["worst"][0]
    section = page.locator("section", has=page.get_by_role("heading", name="near"))
    first = section.locator("li").first
    assert first.locator(".text").all_inner_texts() == worst["texts"]
    assert f"said {worst['answer']}, true is {worst['truth']}" in first.inner_text()
    first.get_by_role("link").click()
    page.get_by_label("Second text").wait_for()
    assert page.get_by_label("Second text").input_value() == worst["texts"][1]
    assert page.get_by_label("Run", exact=True).input_value() == "again"


def test_what_is_not_there_is_said(tabs, address):
    tabs.expected = ("Failed to load resource: the server responded with a status of 4",)
    page = tabs.open(f"{address}/#/runs/tinny")
    assert "did you mean 'tiny'?" in page.get_by_role("alert").inner_text()
    page = tabs.open(f"{address}/report?run=empty")
    page.get_by_role("alert").wait_for()
    assert "cannot answer" in page.get_by_role("alert").inner_text()


# --- keys, texts, keyboards --------------------------------------------------------------


def test_a_key_is_asked_for_and_kept_in_the_tab(tabs, serve):
    tabs.expected = ("Failed to load resource: the server responded with a status of 401",)
    with serve(KEY) as address:
        page = tabs.open(link(address, TEXT, run="tiny"))
        dialog = page.get_by_role("dialog", name="This server asks for a key")
        dialog.get_by_label("Key").fill("a-wrong-key-of-enough-letters")
        dialog.get_by_role("button", name="Go on").click()
        page.get_by_text("not one of this server").wait_for()
        dialog.get_by_label("Key").fill(KEY)
        page.keyboard.press("Enter")
        card(page, "mood").locator(".verdict").wait_for()
        page.reload()
        card(page, "mood").locator(".verdict").wait_for()  # without being asked again
        assert page.evaluate("localStorage.length") == 0
        page.goto(f"{address}/report?run=tiny")
        heading = page.frame_locator("iframe").get_by_role("heading", name="Training report: tiny")
        heading.wait_for(timeout=60_000)
        page.goto(f"{address}/#/runs")
        page.get_by_role("button", name="Forget the key").click()
        page.get_by_role("dialog").wait_for()
        page.get_by_role("button", name="Not now").click()
        page.get_by_text("Without a key this server answers nothing.").wait_for()


def test_texts_stay_texts(tabs, address):
    """Whoever writes a run or a file cannot put anything into the page; `tabs` hears alerts."""
    tabs.expected = ("This document requires", "Failed to load resource")
    page = tabs.open(link(address, HTML, HTML, run="tiny"))
    card(page, "same").locator(".verdict").wait_for()
    page.goto(link(address, HTML, run="labels"))
    page.get_by_role("heading", name="signs").wait_for()
    assert f"Any {HTML}" in page.locator("article").inner_text()
    page.goto(f"{address}/#/runs/{quote(HTML)}")
    page.get_by_role("alert").wait_for()
    page.goto(f"{address}/#/file")
    page.locator(".drop").wait_for()
    page.evaluate(DROP, [".drop", f"{HTML}.csv", f"text,{HTML}\nfine,{HTML}\n"])
    page.locator("td", has_text=HTML).wait_for()  # one, or it fails
    page.goto(f"{address}/#/runs/labels")
    page.get_by_text(f"Signs {HTML}").wait_for()
    page.goto(f"{address}/#/runs/labels/mistakes")
    page.get_by_role("heading", name="signs").wait_for(timeout=60_000)
    assert page.locator("img[src=x]").count() == 0
    refused = "() => { try { document.body.innerHTML = '<b>x</b>'; } catch (e) { return e.name; } }"
    assert page.evaluate(refused) == "TypeError"  # the policy itself refuses HTML


def test_the_keyboard_alone(tabs, address):
    page = tabs.open(f"{address}/")
    press = page.keyboard.press
    press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    press("Enter")
    assert page.evaluate("document.activeElement.tagName") == "H1"
    for _ in range(2):
        press("Tab")
    assert page.evaluate("document.activeElement.tagName") == "SELECT"
    page.get_by_label("Run", exact=True).select_option("tiny")
    page.get_by_label("One text").focus()
    press("ArrowRight")
    page.get_by_label("First text").focus()
    page.keyboard.type(PAIR[0])
    press("Tab")
    page.keyboard.type(PAIR[1])
    press("Control+Enter")
    card(page, "same").locator(".verdict").wait_for()
    page.get_by_role("navigation").get_by_role("link", name="Runs").focus()
    press("Enter")
    page.get_by_role("heading", name="Runs", exact=True).wait_for()
    page.locator("h1:focus").wait_for()  # so that a reader begins there
    assert page.title() == "Runs · plait"


def test_the_api_has_a_page(tabs, address):
    page = tabs.open(f"{address}/docs")
    paths = httpx.get(f"{address}/openapi.json").json()["paths"]
    shown = page.locator("section h2").all_inner_texts()
    assert [entry.split()[1] for entry in shown] == list(paths)
    assert "curl" in page.locator("pre").first.inner_text()
    table = page.get_by_role("region", name="What post /v1/predict takes")
    assert table.locator("thead th").all_inner_texts() == ["Field", "Holds", "Means"]
