"""`decider ask` prints what a server would answer; `decider serve` serves, keeps its key secret and stops when told."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
from loopback import LoopbackServer

from decider import Decider, QuestionLike
from decider.cli import main
from decider.serve import ModelCard, create_app
from decider.wire import write_response

TINY = Path(__file__).parent / "data" / "tiny_decider"
MODEL = ["--model", str(TINY), "--provider", "cpu", "--threads", "1"]
SCORE = {"type": "score", "criteria": ["empty", "full"]}


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DECIDER_API_KEY", raising=False)


def test_ask_prints_the_response(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "q.json").write_text(json.dumps({"full": SCORE}))
    command = ["ask", "seats free: 3", "--noul", "Is it full?", "--questions", str(tmp_path / "q.json"), *MODEL]
    assert main(command) == 0
    asked: dict[str, QuestionLike] = {"Is it full?": {"type": "noul", "instructions": "Is it full?"}, "full": SCORE}
    answers = Decider.load(TINY, "cpu", threads=1).decide("seats free: 3", asked)
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(write_response(answers)))


def test_ask_reads_standard_input_and_may_ask_an_endpoint(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    decider = Decider.load(TINY, "cpu", threads=1)
    monkeypatch.setattr(sys, "stdin", io.StringIO("seats free: 3"))
    monkeypatch.setenv("DECIDER_API_KEY", "k")
    with LoopbackServer(create_app(decider, ModelCard("tiny", "", "2026-11-30"), key="k")) as server:
        assert main(["ask", "-", "--noul", "Is it full?", "--url", server.url]) == 0
    answers = decider.decide("seats free: 3", {"Is it full?": {"type": "noul", "instructions": "Is it full?"}})
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(write_response(answers)))


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["ask", "a", *MODEL], "questions"),
        (["ask", " ", "--noul", "b", *MODEL], "state"),
        (["ask", "a", "--questions", "nowhere.json", *MODEL], "nowhere.json"),
        (["ask", "a", "--noul", "b", "--model", "nowhere"], "nowhere"),
        (["serve", "--host", "0.0.0.0", *MODEL], "DECIDER_API_KEY"),
        (["serve", "--host", "example.org", *MODEL], "DECIDER_API_KEY"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(
    command: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("decider: ")
    assert message in said.err
    assert "Traceback" not in said.err


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["serve", "--port", "70000"], "0 to 65535"),
        (["serve", "--port", "-1"], "0 to 65535"),
        (["serve", "--body-limit", "0"], "at least 1"),
        (["serve", "--body-time", "0"], "above 0"),
        (["serve", "--body-time", "nan"], "above 0"),
        (["serve", "--grace", "-1"], "at least 0"),
        (["serve", "--threads", "0"], "at least 1"),
        (["report", "m", "c", "--out", "o", "--limit", "0"], "at least 1"),
        (["report", "m", "c", "--out", "o", "--limit", "-1"], "at least 1"),
        (["report", "m", "c", "--out", "o", "--limit", "many"], "at least 1"),
        (["report", "m", "c", "--out", "o", "--robustness", "-1"], "at least 0"),
    ],
)
def test_numbers_out_of_bounds_end_the_command_with_the_bounds(
    command: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(command)
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


def test_a_key_that_no_header_can_carry_is_refused_before_the_model_is_loaded(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DECIDER_API_KEY", "secret\n")
    assert main(["serve", "--model", "nowhere"]) == 2
    assert "no header can carry it" in capsys.readouterr().err
    assert main(["ask", "a", "--noul", "b", "--url", "http://there"]) == 2
    assert "no header can carry it" in capsys.readouterr().err


@pytest.mark.parametrize("place", ["no/folder/report.html", "."])
def test_a_report_that_cannot_be_written_is_refused_before_the_work(
    tmp_path: Path, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The cases are not there either: it is the page that is looked at first."""
    assert main(["report", str(TINY), "no cases", "--out", str(tmp_path / place)]) == 2
    said = capsys.readouterr().err
    assert str(tmp_path) in said
    assert "no cases" not in said


def test_looking_whether_a_report_can_be_written_leaves_nothing_behind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    earlier = tmp_path / "earlier.html"
    earlier.write_text("of last week")
    for page in (tmp_path / "new.html", earlier):
        assert main(["report", str(TINY), "no cases", "--out", str(page)]) == 2
        assert "no cases" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["earlier.html"]
    assert earlier.read_text() == "of last week"


def test_a_question_that_stands_twice_in_a_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "q.json").write_text('{"full": {"type": "noul"}, "full": {"type": "noul"}}')
    assert main(["ask", "a", "--questions", str(tmp_path / "q.json"), *MODEL]) == 2
    assert "'full' stands twice" in capsys.readouterr().err


def test_questions_that_are_no_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "q.json").write_text("{")
    assert main(["ask", "a", "--questions", str(tmp_path / "q.json"), *MODEL]) == 2
    (tmp_path / "q.json").write_text("[]")
    assert main(["ask", "a", "--questions", str(tmp_path / "q.json"), *MODEL]) == 2
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_serve_answers_until_it_is_told_to_stop(stop: signal.Signals) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "decider.cli", "serve", "--port", str(port), *MODEL]
    environment = {**os.environ, "DECIDER_API_KEY": "k"}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as server:
        try:
            models = wait_for(f"http://127.0.0.1:{port}/v1/models")
            assert [model["name"] for model in models] == ["tiny", "jev-latest"]
            assert models[0]["release_date"].count("-") == 2
            server.send_signal(stop)
            _, said = server.communicate(timeout=30)
        finally:
            server.kill()
    assert server.returncode in (0, -stop)
    assert "Traceback" not in said


def wait_for(url: str) -> list[dict[str, str]]:
    until = time.monotonic() + 30
    while True:
        try:
            models: list[dict[str, str]] = httpx.get(url, headers={"Authorization": "Bearer k"}).json()["models"]
            return models
        except httpx.TransportError:
            assert time.monotonic() < until, "the server does not answer"
            time.sleep(0.05)
