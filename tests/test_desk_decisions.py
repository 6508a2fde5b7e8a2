"""The desk's labels, and the generator that composes cases with known answers."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

from desk.decisions.ask import ABOUT_THE_CASE, Asker, canonical, question_bank, truths
from desk.decisions.compose import Plan, Sample, Writer, compose
from desk.decisions.draw import draw_situation, share
from desk.decisions.evaluate import EvaluationFileError, read_items, report
from desk.decisions.figures import Prediction
from desk.decisions.foreign import Stranger, load_foreign
from desk.decisions.generate import GenerationError, check_sample, desk_line, main, samples
from desk.decisions.label import INTENTS, Intent, PolicyQuestion, Reading, label, may_send, policy_answer
from desk.decisions.pools import POOLS, SLOTS, SPLITS, PoolError, Pools, load_pools, plain
from desk.decisions.surface import blur
from desk.policy import Case, Event, Facts, Registration, facts, render

TODAY = date(2026, 3, 2)
PAGE = Path(__file__).parent.parent / "docs" / "decider.md"


def case(
    days: int = 20,
    *,
    record: bool = True,
    waitlisted: bool = False,
    address: bool = False,
    paid: int = 300,
    taken: int = 5,
    remote: bool = False,
) -> Case:
    event = Event("E1", "Weaving", "Turin", TODAY + timedelta(days=days), 10, taken, remote, 300)
    registration = Registration("Ida Moe", "i@example.org", "waitlisted" if waitlisted else "confirmed", paid)
    return Case(TODAY, event, registration if record else None, "I am at i@example.org." if address else "Hello.")


def known(days: int = 20, **changes: Any) -> Facts:
    return facts(case(days, **changes))


def filler(split: str) -> dict[str, list[str]]:
    """Three wordings a part, each with all the slots its part may use."""
    return {
        part: [f"{split} {part}-{number} {' '.join(f'{{{slot}}}' for slot in sorted(slots))}." for number in range(3)]
        for part, slots in SLOTS.items()
    }


def outside(split: str) -> dict[str, object]:
    """Texts from outside the desk: one of each kind."""
    entry = {
        "text": {"shop": f"{split} bakery", "opens": 7},
        "yes": ["Is it a bakery?"],
        "yes_negated": ["Is it no bakery?"],
        "no": ["Is it a bank?"],
        "no_negated": ["Is it no bank?"],
        "unknown": ["Is it old?"],
        "choice": {"instructions": "What is it?", "options": {"shop": None, "school": "a place to learn"}},
        "score": {"instructions": "How early does it open?", "levels": ["late", "early"]},
    }
    return {"foreign": [f"{split} rain"], "near": [f"{split} cancel my flight"], "general": [entry]}


def write_pools(folder: Path, **changes: dict[str, list[str]]) -> Path:
    for name, split in ((f"{split}_a", split) for split in SPLITS):
        parts = {**filler(split), **changes.get(split, {})}
        (folder / f"{name}.json").write_text(json.dumps({"author": "t", "parts": parts}), encoding="utf-8")
        (folder / f"general_{split}.json").write_text(json.dumps(outside(split)), encoding="utf-8")
    return folder


@pytest.fixture
def pools(tmp_path: Path) -> Pools:
    return load_pools(write_pools(tmp_path))


@pytest.mark.parametrize(
    ("intent", "facts_", "reading", "route", "rule"),
    [
        ("register", known(7, record=False, address=True), {}, "send_email", "R5"),
        ("register", known(7, record=False, address=True, taken=10), {}, "send_email", "R5"),
        ("register", known(6, record=False, address=True), {}, "escalate", "gap"),
        ("register", known(6, record=False, address=True), {"exception": True}, "escalate", "R1"),
        ("register", known(record=False), {}, "ask_user", "R2"),
        ("register", known(record=False), {"override": True}, "escalate", "R1"),
        ("cancel", known(), {}, "send_email", "R5"),
        ("cancel", known(3), {}, "send_email", "R5"),
        ("cancel", known(14, paid=500), {}, "send_email", "R5"),
        ("cancel", known(14, paid=501), {}, "escalate", "R1"),
        ("cancel", known(13, paid=1001), {}, "send_email", "R5"),
        ("cancel", known(13, paid=1002), {}, "escalate", "R1"),
        ("cancel", known(waitlisted=True), {}, "escalate", "gap"),
        ("cancel", known(record=False), {}, "ask_user", "R2"),
        ("cancel", known(record=False, address=True), {}, "escalate", "gap"),
        ("transfer", known(2), {"names_person": True}, "send_email", "R5"),
        ("transfer", known(1), {"names_person": True}, "escalate", "gap"),
        ("transfer", known(2), {}, "ask_user", "R2"),
        ("transfer", known(), {"names_person": True, "other_email": True}, "escalate", "R1"),
        ("catering", known(), {}, "send_email", "R5"),
        ("catering", known(remote=True), {}, "escalate", "gap"),
        ("refund_amount", known(20, paid=900), {}, "calculate", "R3"),
        ("refund_amount", known(record=False), {}, "ask_user", "R2"),
        ("days_to_event", known(record=False), {}, "calculate", "R3"),
        ("days_to_close", known(3), {}, "calculate", "R3"),
        ("ask_policy", known(record=False), {}, "retrieve", "R4"),
        ("ask_event", known(), {"policy_change": True}, "escalate", "R1"),
        ("ask_event", known(), {"asks_person": True}, "escalate", "R1"),
        ("other", known(), {}, "escalate", "gap"),
    ],
)
def test_the_next_step_is_the_first_that_fits(
    intent: Intent, facts_: Facts, reading: dict[str, bool], route: str, rule: str
) -> None:
    verdict = label(facts_, Reading(intent, **reading))
    assert (verdict.route, verdict.rule) == (route, rule)
    assert may_send(facts_, Reading(intent, **reading)) is (route == "send_email")


def test_without_an_event_the_desk_asks_which_one() -> None:
    found = facts(replace(case(), event=None))
    assert label(found, Reading("days_to_event")).route == "ask_user"
    assert label(found, Reading("ask_policy")).route == "retrieve"


@pytest.mark.parametrize(
    ("question", "facts_", "named", "answer"),
    [
        ("P1", known(7, taken=9), False, True),
        ("P1", known(7, taken=10), False, False),
        ("P1", known(6), False, False),
        ("P2", known(14), False, True),
        ("P2", known(13), False, False),
        ("P2", known(14, record=False), False, False),
        ("P3", known(2), True, True),
        ("P3", known(2), False, False),
        ("P3", known(1), True, False),
        ("P4", known(), False, True),
        ("P4", known(remote=True), False, False),
        ("P5", known(14, paid=500), False, True),
        ("P5", known(14, paid=501), False, False),
        ("P5", known(record=False), False, False),
    ],
)
def test_answers_to_questions_about_one_rule(
    question: PolicyQuestion, facts_: Facts, named: bool, answer: bool
) -> None:
    assert policy_answer(question, facts_, named) is answer


def test_a_wording_of_two_pools_stays_where_it_is_measured_with(tmp_path: Path) -> None:
    shared = "Please cancel {event}!"
    folder = write_pools(tmp_path, train={"cancel": [shared, "Off."]}, test={"cancel": ["please, cancel {event}"]})
    pools = load_pools(folder)
    assert pools.parts["train"]["cancel"] == ("Off.",)
    assert pools.parts["test"]["cancel"] == ("please, cancel {event}",)


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"cancel": ["Cancel for {name}."]}, "train_a.json, cancel"),
        ({"contact": ["Call me."]}, "train_a.json, contact"),
        ({"refund": ["x"]}, "train_a.json, refund"),
        ({"other": []}, "train"),
    ],
)
def test_a_wrong_pool_is_refused_with_its_place(tmp_path: Path, change: dict[str, list[str]], where: str) -> None:
    write_pools(tmp_path, train=change)
    with pytest.raises(PoolError) as caught:
        load_pools(tmp_path)
    assert caught.value.where == where


def test_a_missing_pool_is_named(tmp_path: Path) -> None:
    write_pools(tmp_path)
    (tmp_path / "test_a.json").unlink()
    with pytest.raises(PoolError, match=r"test_a\.json"):
        load_pools(tmp_path)


def test_the_pools_that_come_along_share_no_wording() -> None:
    parts = load_pools().parts
    own = {
        split: {
            plain(each)
            for part, wordings in parts[split].items()
            if part in ("cancel", "override")
            for each in wordings
        }
        for split in SPLITS
    }
    assert not own["train"] & own["calibration"]
    assert not own["train"] & own["test"]
    assert not own["calibration"] & own["test"]


def test_names_and_places_of_the_splits_differ() -> None:
    lists = [set(share("cities", split)) for split in SPLITS]
    assert not lists[0] & lists[1]
    assert not lists[0] & lists[2]
    assert not lists[1] & lists[2]


def test_questions_of_the_splits_differ() -> None:
    for texts in question_bank()["nouls"].values():
        wordings = [texts["canonical"]]
        for key in ("train", "train_not", "calibration", "calibration_not", "test", "test_not"):
            entries = texts[key]
            assert isinstance(entries, list)
            wordings += entries
        assert len(set(wordings)) == len(wordings)


def test_the_canonical_intents_are_the_labels_intents() -> None:
    assert tuple(canonical("intent")["criteria"]) == INTENTS  # type: ignore[arg-type]


def test_composed_cases_hold_what_their_plan_says(pools: Pools) -> None:
    for sample in samples("train", 300, 1, pools):
        text = sample.case.request.lower()
        assert f" {sample.plan.core}-" in text
        for part in (*sample.plan.flags, *sample.plan.harmless):
            assert f" {part}-" in text


def test_the_same_seed_composes_the_same_cases(pools: Pools) -> None:
    assert list(samples("test", 20, 3, pools)) == list(samples("test", 20, 3, pools))
    assert list(samples("test", 20, 3, pools)) != list(samples("test", 20, 4, pools))


def test_edges_are_drawn_often(pools: Pools) -> None:
    days = [sample.facts.days_before for sample in samples("train", 600, 0, pools)]
    assert sum(each in (2, 7, 13, 14) for each in days) > 100


def sample_of(
    core: str, intent: Intent, *flags: str, harmless: tuple[str, ...] = (), second: str | None = None
) -> Sample:
    plan = Plan(core, intent, flags, harmless, second, contact=False)
    return Sample(case(), known(), plan)


def test_a_false_alarm_changes_no_answer() -> None:
    assert truths(sample_of("cancel", "cancel", harmless=("false_alarm",))) == truths(sample_of("cancel", "cancel"))


def test_answers_about_a_plain_cancellation() -> None:
    answers = truths(sample_of("cancel", "cancel"))
    assert (answers["intent"], answers["route"], answers["guard"]) == ("cancel", "send_email", True)
    assert (answers["exception"], answers["wants_action"], answers["P2"], answers["P5"]) == (False, True, True, True)
    assert "P3" not in answers


def test_an_exception_escalates_and_leaves_arguable_questions_out() -> None:
    answers = truths(sample_of("cancel", "cancel", "exception"))
    assert (answers["route"], answers["guard"], answers["outside_rules"]) == ("escalate", False, True)
    assert not {"intent", "override", "policy_change", "asks_person"} & set(answers)


def test_a_message_of_another_kind_leaves_rules_and_route_unanswerable() -> None:
    answers = truths(sample_of("other", "other"))
    assert (answers["route"], answers["P1"], answers["intent"], answers["guard"]) == (None, None, "other", False)


def test_a_negated_question_has_the_opposite_answer() -> None:
    asker = Asker(Random(0), "train")
    bank = question_bank()["nouls"]["exception"]
    negated, wordings = bank["train_not"], bank["train"]
    assert isinstance(negated, list)
    assert isinstance(wordings, list)
    seen = set()
    for _ in range(400):
        question, answer = asker.word("exception", True)
        text = str(question["instructions"])
        asked = next((each for each in negated if str(each) in text), None)
        denied = text not in (bank["canonical"], *wordings, *negated)
        seen.add((asked is not None, denied))
        assert answer is ((asked is not None) is denied)
    assert seen == {(True, True), (True, False), (False, True), (False, False)}
    assert {asker.word("exception", None)[1] for _ in range(50)} == {None}


def test_both_answers_come_up_about_equally_often(pools: Pools) -> None:
    asker = Asker(Random(0), "train")
    for sample in samples("train", 1200, 0, pools):
        asker.ask(sample, "request")
        asker.ask(sample, "case")
    for name in ("outside_rules", "names_person", "guard", "wants_cancel", "P2"):
        yes = asker.counts[name, True] / (asker.counts[name, True] + asker.counts[name, False])
        assert 0.3 < yes < 0.7, name


def test_a_request_that_betrays_its_plan_is_refused() -> None:
    with pytest.raises(GenerationError):
        check_sample(sample_of("cancel", "cancel", "email_other"))
    with pytest.raises(GenerationError):
        check_sample(Sample(case(address=True), known(address=True), sample_of("cancel", "cancel").plan))


def test_slips_spare_names_digits_and_addresses() -> None:
    text = "Please write to ida.moe@example.org about Wednesday 2026-03-02 and Leonora"
    for seed in range(60):
        blurred = blur(Random(seed), text, typos=1.0, protected=("Leonora",)).lower()
        assert "ida.moe@example.org" in blurred
        assert "2026-03-02" in blurred
        assert "leonora" in blurred


def test_the_command_writes_examples_and_cases_line_by_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_pools(tmp_path)
    out = tmp_path / "out"
    main(["--out", str(out), "--train", "12", "--calibration", "5", "--test", "5", "--pools", str(folder)])
    assert "train: " in capsys.readouterr().out
    examples = [json.loads(line) for line in (out / "train.jsonl").read_text(encoding="utf-8").splitlines()]
    cases = [json.loads(line) for line in (out / "train_cases.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len(cases) == 12
    texts = {line["case"]["request"] for line in cases}
    rendered = {render(read, facts(read)) for read in (Case.from_json(line["case"]) for line in cases)}
    assert texts <= {example["state"] for example in examples}
    for example in examples:
        assert list(example["questions"]) == list(example["answers"])
        if example["state"] not in texts | rendered:
            assert set(example["answers"].values()) == {None}
    for line in cases:
        assert label(facts(Case.from_json(line["case"])), Reading(**line["reading"])).route == line["route"]
    assert [item.label for item in read_items(out / "train_cases.jsonl", "dev")] == [line["route"] for line in cases]
    with pytest.raises(EvaluationFileError):
        list(read_items(out / "train.jsonl", "dev"))


def test_the_report_counts_right_answers_and_confusions() -> None:
    predictions = [
        Prediction("yes", "P1", {"yes": 0.9, "no": 0.1}),
        Prediction("no", "P1", {"yes": 0.8, "no": 0.2}),
    ]
    lines = list(report("direct", predictions, groups=True))
    assert lines[0].startswith("direct: 1 of 2 right, 0.500 [0.095, 0.905], mean p 0.850")
    assert lines[2].split() == ["no", "0", "1"]
    assert lines[3].split() == ["yes", "0", "1"]
    assert lines[4].strip() == "P1 1/2"


def test_compose_gives_every_core(pools: Pools) -> None:
    rng = Random(5)
    assert len({compose(rng, pools, "test").plan.core for _ in range(500)}) == 17


def test_what_needs_the_records_is_asked_about_the_whole_case(pools: Pools) -> None:
    asker = Asker(Random(1), "train")
    asked: dict[str, set[str]] = {"request": set(), "case": set()}
    for sample in samples("train", 200, 0, pools):
        for about in ("request", "case"):
            asked[about] |= set(asker.ask(sample, about)[0])
    assert not asked["request"] & ABOUT_THE_CASE
    assert asked["case"] >= ABOUT_THE_CASE


def test_levels_follow_from_plan_and_records() -> None:
    assert truths(sample_of("cancel", "cancel"))["bending"] == 0
    assert truths(sample_of("cancel", "cancel", "exception"))["bending"] == 1
    assert truths(sample_of("cancel", "cancel", "override"))["bending"] == 2
    assert "bending" not in truths(sample_of("cancel", "cancel", "policy_change"))
    for days, share_, time in ((14, 2, 2), (13, 1, 1), (7, 1, 1), (6, 0, 0)):
        sample = replace(sample_of("cancel", "cancel"), facts=known(days))
        answers = truths(sample)
        assert (answers["refund_share"], answers["time_left"]) == (share_, time)
    assert truths(replace(sample_of("cancel", "cancel"), facts=known(record=False)))["refund_share"] is None


def test_fewer_options_keep_the_right_one() -> None:
    asker = Asker(Random(0), "train")
    for _ in range(50):
        left = asker.fewer(canonical("intent"), "transfer")["criteria"]
        assert isinstance(left, dict)
        assert "transfer" in left
        assert 2 <= len(left) < len(INTENTS)


def test_texts_from_outside_answer_nothing(pools: Pools, tmp_path: Path) -> None:
    folder = write_pools(tmp_path)
    rng = Random(0)
    stranger = Stranger(rng, "train", load_foreign("train", folder), Asker(rng, "train"))
    situation = draw_situation(rng, "train", "other")
    lines = [stranger.example(Writer(rng, pools.parts["train"], "train", situation)) for _ in range(200)]
    for line in lines:
        answers = line["answers"]
        assert isinstance(answers, dict)
        assert answers
        assert set(answers.values()) == {None}
    texts = " ".join(str(line["state"]).lower() for line in lines)
    assert all(each in texts for each in ("train rain", "cancel my flight", "bakery", "distractor-"))


@pytest.mark.parametrize("part", ["foreign", "near", "general"])
def test_a_general_file_without_a_part_is_refused(tmp_path: Path, part: str) -> None:
    folder = write_pools(tmp_path)
    (folder / "general_test.json").write_text(json.dumps({**outside("test"), part: []}))
    with pytest.raises(PoolError) as caught:
        load_foreign("test", folder)
    assert caught.value.where == f"general_test.json, {part}"
    (folder / "general_test.json").unlink()
    with pytest.raises(PoolError, match=r"general_test\.json"):
        load_foreign("test", folder)


def test_a_leftover_says_that_answerability_is_open(tmp_path: Path) -> None:
    line = desk_line(sample_of("other", "other"), Asker(Random(0), "test"), "request")
    questions = line["questions"]
    assert isinstance(questions, dict)
    assert line["open"] == list(questions)
    assert "open" not in desk_line(sample_of("cancel", "cancel"), Asker(Random(0), "test"), "request")


def test_the_page_counts_the_wordings_for_training() -> None:
    files = sorted(POOLS.glob("train_*.json"))
    parts = [json.loads(file.read_text(encoding="utf-8"))["parts"] for file in files]
    wordings = sum(len(each) for part in parts for each in part.values())
    assert len(files) == 9
    assert f"{wordings:,} wordings of {len(SLOTS)} kinds" in PAGE.read_text(encoding="utf-8")
