"""Questions: asking, answering, partial answers, time travel to a question, and static breakpoints."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
from conftest import Log, Sync, ask, build, chain, checkpoint_before, fan, odd, open_ids, say, sources, thread, words

from minigraph import END, START, Command, Send, StateGraph, interrupt
from minigraph.checkpoint import InMemorySaver, Saver
from minigraph.errors import (
    AmbiguousAnswerError,
    EmptyInputError,
    GraphDefinitionError,
    SwallowedInterruptError,
    ThreadConflictError,
    UnknownInterruptError,
    UnstorableValueError,
)
from minigraph.records import Paused, Write

T = thread()


# ------------------------------------------------------------------ one question


def test_a_question_pauses_and_its_answer_finishes_the_node(run: Sync, saver: Saver) -> None:
    runs: list[Any] = []
    graph = build({"p": say("p", runs), "q": ask("q", runs), "z": say("z", runs)}, chain("p", "q", "z"), saver)
    (question,) = run.invoke(graph, {}, T)["__interrupt__"]
    state = run.state(graph, T)
    assert question.value == "q"
    assert len(question.id) == 32
    assert (state.next, state.interrupts, state.tasks[0].interrupts) == (("q",), (question,), (question,))
    assert run.invoke(graph, Command(resume="R"), T)["log"] == ["p", ("q", "R"), "z"]
    assert runs == ["p", "q", "q", "z"]
    assert run.state(graph, T).interrupts == ()


@pytest.mark.parametrize("answer", [None, False, 0, "", [], {}, (), {"k": 1}, {"0" * 31: 1}, {"0" * 32: 1, "x": 2}])
def test_any_value_is_an_answer_and_keeps_its_type(run: Sync, answer: Any) -> None:
    graph = build({"q": lambda s: {"value": interrupt("q")}}, chain("q"), InMemorySaver())
    run.invoke(graph, {}, T)
    given = run.invoke(graph, Command(resume=answer), T)["value"]
    assert given == answer
    assert type(given) is type(answer)


@pytest.mark.parametrize("answer", [None, False, {}, [], {"k": 1}])
def test_any_value_is_an_answer_by_id_too(run: Sync, answer: Any) -> None:
    graph = build({"q": lambda s: {"value": interrupt("q")}}, chain("q"), InMemorySaver())
    (question,) = run.invoke(graph, {}, T)["__interrupt__"]
    assert run.invoke(graph, Command(resume={question.id: answer}), T)["value"] == answer


@pytest.mark.parametrize("value", [None, "", 0, {"amount": (1, 2)}, ["a", {"b"}]])
def test_any_value_can_be_shown(run: Sync, saver: Saver, value: Any) -> None:
    graph = build({"q": lambda s: {"value": interrupt(value)}}, chain("q"), saver)
    run.invoke(graph, {}, T)
    assert run.state(graph, T).interrupts[0].value == value


def test_a_question_that_cannot_be_stored_names_its_node(run: Sync) -> None:
    graph = build({"q": lambda s: {"value": interrupt(lambda: None)}}, chain("q"), InMemorySaver())
    with pytest.raises(UnstorableValueError, match="'q'"):
        run.invoke(graph, {}, T)
    assert run.state(graph, T).next == ("q",)


def test_an_answer_that_cannot_be_stored_is_refused_and_the_question_stays_open(run: Sync) -> None:
    graph = build({"q": ask("q")}, chain("q"), InMemorySaver())
    run.invoke(graph, {}, T)
    with pytest.raises(UnstorableValueError):
        run.invoke(graph, Command(resume=lambda: None), T)
    assert open_ids(graph, T).keys() == {"q"}
    assert run.invoke(graph, Command(resume=1), T)["log"] == [("q", 1)]


def test_code_runs_again_up_to_each_question_and_once_after_the_last(run: Sync) -> None:
    passed: list[str] = []

    def node(s: Any) -> dict[str, Any]:
        passed.append("before")
        one = interrupt("one")
        passed.append("between")
        two = interrupt("two")
        passed.append("after")
        return {"log": [one, two]}

    graph = build({"n": node}, chain("n"), InMemorySaver())
    first = run.invoke(graph, {}, T)["__interrupt__"][0]
    second = run.invoke(graph, Command(resume=1), T)["__interrupt__"][0]
    assert (first.value, second.value) == ("one", "two")
    assert first.id != second.id
    assert run.invoke(graph, Command(resume=2), T)["log"] == [1, 2]
    assert [passed.count(word) for word in ("before", "between", "after")] == [3, 2, 1]


def test_a_loop_asks_until_the_answer_will_do(run: Sync) -> None:
    def node(s: Any) -> dict[str, Any]:
        prompt = "age?"
        while not isinstance(answer := interrupt(prompt), int) or answer <= 0:
            prompt = f"{answer!r} is no age"
        return {"log": [answer]}

    graph = build({"n": node}, chain("n"), InMemorySaver())
    inputs: list[Any] = [{}, Command(resume="x"), Command(resume=-1)]
    shown = [run.invoke(graph, given, T)["__interrupt__"][0].value for given in inputs]
    assert shown == ["age?", "'x' is no age", "-1 is no age"]
    assert run.invoke(graph, Command(resume=7), T)["log"] == [7]


def test_each_visit_of_a_cycle_asks_anew(run: Sync) -> None:
    graph = build(
        {"q": ask("q")}, chain("q"), InMemorySaver(), routers=[("q", lambda s: END if len(s["log"]) == 2 else "q")]
    )
    first = run.invoke(graph, {}, T)["__interrupt__"][0]
    second = run.invoke(graph, Command(resume=1), T)["__interrupt__"][0]
    assert first.id != second.id
    assert run.invoke(graph, Command(resume=2), T)["log"] == [("q", 1), ("q", 2)]


def test_none_shows_the_stored_question_again_without_running_anything(run: Sync) -> None:
    runs: list[Any] = []
    graph = build({"q": ask("q", runs)}, chain("q"), InMemorySaver())
    first = run.invoke(graph, {}, T)["__interrupt__"]
    assert [run.invoke(graph, None, T)["__interrupt__"] for _ in range(2)] == [first, first]
    assert runs == ["q"]
    assert len(run.history(graph, T)) == 2


def test_new_input_on_a_paused_thread_starts_over_with_one_question(run: Sync) -> None:
    graph = build({"q": ask("q"), "z": say("z")}, chain("q", "z"), InMemorySaver())
    old = run.invoke(graph, {"log": ["1"]}, T)["__interrupt__"][0]
    new = run.invoke(graph, {"log": ["2"]}, T)["__interrupt__"][0]
    assert old.id != new.id
    with pytest.raises(UnknownInterruptError):
        run.invoke(graph, Command(resume={old.id: "late"}), T)
    assert run.invoke(graph, Command(resume="R"), T)["log"] == ["1", "2", ("q", "R"), "z"]


def test_without_a_saver_a_question_is_shown_and_cannot_be_answered(run: Sync) -> None:
    graph = build({"q": ask("q")}, chain("q"))
    assert run.invoke(graph, {})["__interrupt__"][0].value == "q"
    with pytest.raises(RuntimeError, match="checkpointer"):
        run.invoke(graph, Command(resume=1))


def test_interrupt_outside_of_a_node_and_in_a_bare_thread_is_refused() -> None:
    with pytest.raises(RuntimeError, match="outside"):
        interrupt("q")

    def node(s: Any) -> dict[str, Any]:
        found: list[Any] = []

        def inner() -> None:
            try:
                interrupt("q")
            except RuntimeError as error:
                found.append(str(error))

        worker = threading.Thread(target=inner)
        worker.start()
        worker.join()
        return {"log": found}

    (message,) = build({"n": node}, chain("n")).invoke({})["log"]
    assert "outside" in message


def test_a_question_asked_in_a_helper_or_a_thread_of_asyncio_pauses() -> None:
    async def node(s: Any) -> dict[str, Any]:
        return {"log": [await asyncio.to_thread(interrupt, "q")]}

    graph = build({"n": node}, chain("n"), InMemorySaver())
    assert asyncio.run(graph.ainvoke({}, T))["__interrupt__"][0].value == "q"
    assert asyncio.run(graph.ainvoke(Command(resume="R"), T))["log"] == ["R"]


def test_a_skipped_question_gives_its_answer_to_the_next_by_call_order() -> None:
    state = {"skip": False}

    def node(s: Any) -> dict[str, Any]:
        return {"log": ["skipped" if state["skip"] else interrupt("x"), interrupt("y")]}

    graph = build({"n": node}, chain("n"), InMemorySaver())
    graph.invoke({}, T)
    state["skip"] = True
    assert graph.invoke(Command(resume="A"), T)["log"] == ["skipped", "A"]


# ------------------------------------------------------------------ the pause signal


def test_a_broad_except_lets_the_pause_through_and_finally_runs(run: Sync) -> None:
    passed: list[str] = []

    def node(s: Any) -> dict[str, Any]:
        try:
            return {"log": [interrupt("q")]}
        except Exception:
            return {"log": ["swallowed"]}
        finally:
            passed.append("finally")

    graph = build({"n": node}, chain("n"), InMemorySaver())
    assert run.invoke(graph, {}, T)["__interrupt__"][0].value == "q"
    assert run.invoke(graph, Command(resume="R"), T)["log"] == ["R"]
    assert passed == ["finally", "finally"]


def test_a_node_that_swallows_the_pause_fails_with_the_reason(run: Sync) -> None:
    def node(s: Any) -> dict[str, Any]:
        try:
            return {"log": [interrupt("q")]}
        except BaseException:
            return {"log": ["swallowed"]}

    graph = build({"n": node}, chain("n"), InMemorySaver())
    with pytest.raises(SwallowedInterruptError, match="'n'"):
        run.invoke(graph, {}, T)
    assert run.state(graph, T).next == ("n",)


def test_gathering_with_return_exceptions_swallows_and_is_told_so() -> None:
    async def question() -> Any:
        return interrupt("q")

    async def node(s: Any) -> dict[str, Any]:
        return {"log": await asyncio.gather(question(), return_exceptions=True)}

    graph = build({"n": node}, chain("n"), InMemorySaver())
    with pytest.raises(SwallowedInterruptError, match="return_exceptions"):
        asyncio.run(graph.ainvoke({}, T))


def test_a_node_that_replaces_the_pause_by_an_error_of_its_own_fails_with_that(run: Sync) -> None:
    def node(s: Any) -> dict[str, Any]:
        try:
            return {"log": [interrupt("q")]}
        except BaseException as pause:
            raise ValueError("mine") from pause

    graph = build({"n": node}, chain("n"), InMemorySaver())
    with pytest.raises(ValueError, match="mine"):
        run.invoke(graph, {}, T)
    assert run.state(graph, T).interrupts == ()


def test_a_pause_is_never_retried() -> None:
    from minigraph import RetryPolicy

    runs: list[Any] = []
    options = {"q": {"retry_policy": RetryPolicy(initial_interval=0, jitter=False, retry_on=lambda error: True)}}
    graph = build({"q": ask("q", runs)}, chain("q"), InMemorySaver(), options=options)
    graph.invoke({}, T)
    assert runs == ["q"]


# ------------------------------------------------------------------ answers find their questions


def test_one_plain_answer_for_several_questions_is_refused_and_nothing_is_written(run: Sync) -> None:
    graph = build({"a": ask("A"), "b": ask("B")}, fan("a", "b"), InMemorySaver())
    run.invoke(graph, {}, T)
    before = open_ids(graph, T)
    with pytest.raises(AmbiguousAnswerError) as caught:
        run.invoke(graph, Command(resume="x"), T)
    assert set(caught.value.ids) == set(before.values())
    assert open_ids(graph, T) == before


def test_partial_answers_run_only_their_own_tasks(run: Sync, saver: Saver) -> None:
    runs: list[Any] = []
    graph = build({"a": say("a", runs), "b": ask("B", runs), "d": ask("D", runs)}, fan("a", "b", "d"), saver)
    ids = {q.value: q.id for q in run.invoke(graph, {}, T)["__interrupt__"]}
    runs.clear()
    out = run.invoke(graph, Command(resume={ids["D"]: 4}), T)
    assert out["log"] == ["a", ("D", 4)]
    assert [(q.value, q.id) for q in out["__interrupt__"]] == [("B", ids["B"])]
    assert runs == ["D"]
    assert run.state(graph, T).next == ("b",)
    assert run.invoke(graph, Command(resume=2), T)["log"] == ["a", ("B", 2), ("D", 4)]
    assert runs == ["D", "B"]


def test_all_answers_at_once_in_any_order(run: Sync) -> None:
    graph = build({n: ask(n.upper()) for n in "abc"}, fan(*"abc"), InMemorySaver())
    run.invoke(graph, {}, T)
    ids = open_ids(graph, T)
    out = run.invoke(graph, Command(resume={ids["C"]: 3, ids["A"]: 1, ids["B"]: 2}), T)
    assert out["log"] == [("A", 1), ("B", 2), ("C", 3)]


def test_questions_come_in_task_order_whoever_asked_first(run: Sync) -> None:
    def slow(s: Any) -> dict[str, Any]:
        time.sleep(0.02)
        return {"log": [interrupt("A")]}

    graph = build({"a": slow, "b": ask("B")}, fan("a", "b"), InMemorySaver())
    assert [q.value for q in run.invoke(graph, {}, T)["__interrupt__"]] == ["A", "B"]


@pytest.mark.parametrize("make", [lambda ids: {"0" * 32: 1}, lambda ids: {ids["A"]: 1, "0" * 32: 1}])
def test_an_unknown_id_is_refused_as_a_whole(run: Sync, make: Any) -> None:
    graph = build({"a": ask("A"), "b": ask("B")}, fan("a", "b"), InMemorySaver())
    run.invoke(graph, {}, T)
    before = open_ids(graph, T)
    with pytest.raises(UnknownInterruptError, match=before["A"]) as caught:
        run.invoke(graph, Command(resume=make(before)), T)
    assert caught.value.ids == ("0" * 32,)
    assert open_ids(graph, T) == before


def test_an_answer_is_accepted_once(run: Sync, saver: Saver) -> None:
    graph = build({"n": lambda s: {"log": [interrupt("first"), interrupt("second")]}}, chain("n"), saver)
    run.invoke(graph, {}, T)
    first = open_ids(graph, T)["first"]
    run.invoke(graph, Command(resume={first: "A"}), T)
    with pytest.raises(UnknownInterruptError, match="answered already"):
        run.invoke(graph, Command(resume={first: "A"}), T)
    assert run.state(graph, T).values["log"] == []
    assert list(open_ids(graph, T)) == ["second"]
    run.invoke(graph, Command(resume="B"), T)
    with pytest.raises(UnknownInterruptError):
        run.invoke(graph, Command(resume="C"), T)
    assert run.state(graph, T).values["log"] == ["A", "B"]


def test_a_used_answer_is_not_handed_to_the_next_question(run: Sync) -> None:
    graph = build({"n": lambda s: {"log": [interrupt("x"), interrupt("y")]}}, chain("n"), InMemorySaver())
    run.invoke(graph, {}, T)
    run.invoke(graph, Command(resume="A"), T)
    assert run.invoke(graph, None, T)["__interrupt__"][0].value == "y"


def test_an_answer_on_a_thread_that_never_ran_is_refused(run: Sync) -> None:
    graph = build({"q": ask("q")}, chain("q"), InMemorySaver())
    with pytest.raises(UnknownInterruptError, match="never ran"):
        run.invoke(graph, Command(resume=1), thread("new"))
    assert run.history(graph, thread("new")) == []


def test_an_empty_command_is_empty_input(run: Sync) -> None:
    graph = build({"q": ask("q")}, chain("q"), InMemorySaver())
    run.invoke(graph, {}, T)
    with pytest.raises(EmptyInputError, match="resume="):
        run.invoke(graph, Command(), T)


def test_of_two_answers_at_the_same_moment_one_counts(run: Sync, saver: Saver) -> None:
    done: list[Any] = []

    def node(s: Any) -> dict[str, Any]:
        answer = interrupt("q")
        time.sleep(0.02)
        done.append(answer)
        return {"log": [answer]}

    graph = build({"n": node}, chain("n"), saver)
    run.invoke(graph, {}, T)
    barrier, refused = threading.Barrier(2), []

    def answer(value: int) -> None:
        barrier.wait()
        try:
            run.invoke(graph, Command(resume=value), T)
        except (ThreadConflictError, UnknownInterruptError) as error:
            refused.append(error)

    workers = [threading.Thread(target=answer, args=(value,)) for value in (1, 2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(refused) == 1
    assert run.state(graph, T).values["log"] == done
    assert len(done) == 1


def test_of_two_answers_in_one_loop_one_counts() -> None:
    async def node(s: Any) -> dict[str, Any]:
        answer = interrupt("q")
        await asyncio.sleep(0.01)
        return {"log": [answer]}

    graph = build({"n": node}, chain("n"), InMemorySaver())

    async def main() -> list[Any]:
        await graph.ainvoke({}, T)
        ended: list[Any] = await asyncio.gather(
            *(graph.ainvoke(Command(resume=i), T) for i in range(2)), return_exceptions=True
        )
        return ended

    results = asyncio.run(main())
    assert sum(isinstance(r, ThreadConflictError | UnknownInterruptError) for r in results) == 1
    assert sum(isinstance(r, dict) for r in results) == 1


@odd("unreachable-node")
def test_an_answer_together_with_an_update_and_a_goto(run: Sync) -> None:
    graph = build({"q": ask("q"), "z": say("z"), "x": say("x")}, chain("q", "z"), InMemorySaver())
    run.invoke(graph, {}, T)
    out = run.invoke(graph, Command(resume="R", update={"log": ["U"]}, goto="x"), T)
    # the update first; then the question's node and the goto in one step, by name; then what follows q
    assert out["log"] == ["U", ("q", "R"), "x", "z"]


def test_an_update_beside_an_open_question_keeps_it_open_with_its_id(run: Sync) -> None:
    graph = build({"q": ask("q")}, chain("q"), InMemorySaver())
    before = run.invoke(graph, {}, T)["__interrupt__"]
    out = run.invoke(graph, Command(update={"log": ["U"]}), T)
    assert out["__interrupt__"] == before
    assert run.invoke(graph, Command(resume={before[0].id: "R"}), T)["log"] == ["U", ("q", "R")]


# ------------------------------------------------------------------ questions in Sends, routers and beside failures


def test_each_send_asks_for_itself(run: Sync, saver: Saver) -> None:
    nodes = {"w": lambda x: {"log": [f"{x}{interrupt(x)}"]}}
    graph = build(nodes, [], saver, routers=[(START, lambda s: [Send("w", i) for i in range(3)])])
    ids = {q.value: q.id for q in run.invoke(graph, {}, T)["__interrupt__"]}
    assert len(set(ids.values())) == 3
    assert run.state(graph, T).next == ("w", "w", "w")
    run.invoke(graph, Command(resume={ids[1]: "b"}), T)
    assert run.invoke(graph, Command(resume={ids[0]: "a", ids[2]: "c"}), T)["log"] == ["0a", "1b", "2c"]


def test_a_router_may_ask_and_goes_where_the_answer_says(run: Sync) -> None:
    runs: list[Any] = []
    routers = [("a", lambda s: interrupt("where?"))]
    graph = build(words("a b c", runs), [(START, "a")], InMemorySaver(), routers=routers)
    assert run.invoke(graph, {}, T)["__interrupt__"][0].value == "where?"
    assert run.state(graph, T).next == ("a",)
    assert run.invoke(graph, Command(resume="c"), T)["log"] == ["a", "c"]


def test_a_node_and_its_router_ask_one_after_the_other(run: Sync) -> None:
    graph = build(
        {"a": ask("node"), "b": say("b")},
        [(START, "a")],
        InMemorySaver(),
        routers=[("a", lambda s: interrupt("router"))],
    )
    inputs: list[Any] = [{}, Command(resume=1)]
    shown = [run.invoke(graph, given, T)["__interrupt__"][0].value for given in inputs]
    assert shown == ["node", "router"]
    assert run.invoke(graph, Command(resume="b"), T)["log"] == [("node", 1), "b"]


def test_an_entry_router_may_ask(run: Sync) -> None:
    graph = build(words("a b"), [], InMemorySaver(), routers=[(START, lambda s: interrupt("where?"))])
    assert run.invoke(graph, {"log": ["i"]}, T)["__interrupt__"][0].value == "where?"
    assert run.invoke(graph, Command(resume="b"), T)["log"] == ["i", "b"]


def test_an_error_handler_may_ask(run: Sync) -> None:
    def fail(s: Any) -> None:
        raise ValueError("x")

    options = {"f": {"error_handler": lambda s: {"log": [interrupt("what now?")]}}}
    graph = build({"f": fail}, chain("f"), InMemorySaver(), options=options)
    assert run.invoke(graph, {}, T)["__interrupt__"][0].value == "what now?"
    assert run.invoke(graph, Command(resume="go on"), T)["log"] == ["go on"]


def test_a_sibling_that_failed_and_one_that_asks(run: Sync, saver: Saver, monkeypatch: pytest.MonkeyPatch) -> None:
    question_stored = threading.Event()
    put = saver.put

    def storing(write: Write) -> int:
        revision = put(write)
        if any(isinstance(result, Paused) for _, result in write.results):
            question_stored.set()
        return revision

    monkeypatch.setattr(saver, "put", storing)
    healthy = {"now": False}
    runs: list[Any] = []

    def fail(s: Any) -> dict[str, Any]:
        runs.append("f")
        if not healthy["now"]:
            assert question_stored.wait(10)
            raise ValueError("x")
        return {"log": ["f"]}

    graph = build({"f": fail, "q": ask("q", runs)}, fan("f", "q"), saver)
    with pytest.raises(ValueError, match="x"):
        run.invoke(graph, {}, T)
    assert set(run.state(graph, T).next) == {"f", "q"}
    healthy["now"] = True
    runs.clear()
    assert run.invoke(graph, Command(resume="R"), T)["log"] == ["f", ("q", "R")]
    assert sorted(runs) == ["f", "q"]


def test_an_answer_survives_a_failure_after_it(run: Sync, saver: Saver) -> None:
    tries: list[Any] = []

    def node(s: Any) -> dict[str, Any]:
        answer = interrupt("q")
        tries.append(answer)
        if len(tries) == 1:
            raise ValueError("after the answer")
        return {"log": [answer]}

    graph = build({"n": node}, chain("n"), saver)
    run.invoke(graph, {}, T)
    with pytest.raises(ValueError, match="after"):
        run.invoke(graph, Command(resume="R"), T)
    assert run.invoke(graph, None, T)["log"] == ["R"]
    assert tries == ["R", "R"]


def test_a_retry_uses_the_answers_again() -> None:
    from minigraph import RetryPolicy

    tries: list[Any] = []

    def node(s: Any) -> dict[str, Any]:
        answer = interrupt("q")
        tries.append(answer)
        if len(tries) < 3:
            raise ConnectionError
        return {"log": [answer]}

    options = {"n": {"retry_policy": RetryPolicy(initial_interval=0, jitter=False)}}
    graph = build({"n": node}, chain("n"), InMemorySaver(), options=options)
    graph.invoke({}, T)
    assert graph.invoke(Command(resume="R"), T)["log"] == ["R"]
    assert tries == ["R"] * 3


# ------------------------------------------------------------------ time travel


def test_a_replay_from_before_a_question_asks_again_and_the_new_answer_counts(run: Sync, saver: Saver) -> None:
    runs: list[Any] = []
    graph = build({"a": say("a", runs), "q": ask("q", runs), "z": say("z", runs)}, chain("a", "q", "z"), saver)
    run.invoke(graph, {}, T)
    run.invoke(graph, Command(resume="old"), T)
    runs.clear()
    out = run.invoke(graph, None, checkpoint_before(graph, T, "q"))
    assert out["__interrupt__"][0].value == "q"
    assert runs == ["q"]
    assert run.invoke(graph, Command(resume="new"), T)["log"] == ["a", ("q", "new"), "z"]


def test_an_answer_at_an_answered_checkpoint_makes_a_branch(run: Sync, saver: Saver) -> None:
    graph = build({"a": say("a"), "q": ask("q"), "z": say("z")}, chain("a", "q", "z"), saver)
    run.invoke(graph, {}, T)
    at = run.state(graph, T).config
    run.invoke(graph, Command(resume="old"), T)
    old_head = run.state(graph, T).config
    assert run.invoke(graph, Command(resume="new"), at)["log"] == ["a", ("q", "new"), "z"]
    assert run.state(graph, old_head).values["log"] == ["a", ("q", "old"), "z"]
    assert run.state(graph, T).values["log"] == ["a", ("q", "new"), "z"]
    assert "fork" in [source for source, _ in sources(graph, T)]


def test_a_branch_takes_over_what_a_node_gave_whose_router_failed() -> None:
    runs: list[Any] = []
    fail = [True]

    def router(state: Any) -> str:
        if fail:
            raise KeyError(fail.pop())
        return END

    saver = InMemorySaver()
    nodes = {**words("a", runs), "q": ask("q")}
    graph = build(nodes, fan("a", "q"), saver, routers=[("a", router)])
    with pytest.raises(KeyError):
        graph.invoke({}, T)
    before = graph.get_state(T)
    graph.invoke({}, T)
    again = graph.invoke(Command(resume={before.interrupts[0].id: "new"}), before.config)
    assert again["log"] == ["a", ("q", "new")]
    assert runs == ["a", "a"], "once for each input: on the branch its router alone runs again"
    (fork,) = [s for s in saver.history(T["configurable"]["thread_id"], "") if s.checkpoint.source == "fork"]
    assert {result.task_id for result in fork.results} == {task.id for task in fork.checkpoint.due}


def test_a_second_answer_given_anew_keeps_the_first(run: Sync) -> None:
    graph = build({"n": lambda s: {"log": [interrupt("x"), interrupt("y")]}}, chain("n"), InMemorySaver())
    run.invoke(graph, {}, T)
    at = run.state(graph, T).config
    ids = [run.state(graph, T).interrupts[0].id]
    run.invoke(graph, Command(resume="A"), T)
    ids.append(run.state(graph, T).interrupts[0].id)
    run.invoke(graph, Command(resume="B"), T)
    assert run.invoke(graph, Command(resume={ids[1]: "C"}), at)["log"] == ["A", "C"]
    assert run.invoke(graph, Command(resume={ids[0]: "D"}), at)["__interrupt__"][0].value == "y"
    assert run.invoke(graph, Command(resume="E"), T)["log"] == ["D", "E"]


def test_one_of_two_parallel_answers_given_anew_keeps_the_other(run: Sync) -> None:
    graph = build({"a": ask("A"), "b": ask("B")}, fan("a", "b"), InMemorySaver())
    run.invoke(graph, {}, T)
    at, ids = run.state(graph, T).config, open_ids(graph, T)
    run.invoke(graph, Command(resume={ids["A"]: 1, ids["B"]: 2}), T)
    assert run.invoke(graph, Command(resume={ids["B"]: 9}), at)["log"] == [("A", 1), ("B", 9)]


# ------------------------------------------------------------------ static breakpoints


def test_a_breakpoint_before_a_node_holds_and_none_goes_on(run: Sync, saver: Saver) -> None:
    graph = build(words("a b c"), chain(*"abc"), saver, interrupt_before=["b"])
    assert run.invoke(graph, {}, T) == {"log": ["a"]}
    state = run.state(graph, T)
    assert (state.next, state.interrupts) == (("b",), ())
    assert run.invoke(graph, None, T)["log"] == list("abc")


def test_a_breakpoint_before_one_node_holds_its_whole_step(run: Sync) -> None:
    graph = build(words("a b c"), fan("a", "b", "c"), InMemorySaver(), interrupt_before=["b"])
    assert run.invoke(graph, {}, T)["log"] == []
    assert run.invoke(graph, None, T)["log"] == list("abc")


def test_a_breakpoint_can_be_passed_with_any_answer(run: Sync) -> None:
    graph = build(words("a b"), chain(*"ab"), InMemorySaver(), interrupt_before=["b"])
    run.invoke(graph, {}, T)
    assert run.invoke(graph, Command(resume=None), T)["log"] == ["a", "b"]


def test_after_a_failure_an_answer_is_refused_and_a_branch_corrects_it(run: Sync, saver: Saver) -> None:
    taken: list[Any] = []

    def node(state: Any) -> dict[str, Any]:
        taken.append(interrupt("how many?"))
        if taken[-1] < 3:
            raise ArithmeticError
        return {"log": [taken[-1]]}

    graph = build({"n": node}, chain("n"), saver)
    (question,) = run.invoke(graph, {}, T)["__interrupt__"]
    with pytest.raises(ArithmeticError):
        run.invoke(graph, Command(resume=1), T)
    before = run.history(graph, T)
    for answer in (3, {question.id: 3}):
        with pytest.raises(UnknownInterruptError, match=r"step failed: resume\(config\).*graph\.fork\(failed\)"):
            run.invoke(graph, Command(resume=answer), T)
    with pytest.raises(UnknownInterruptError, match=r"graph\.fork\(failed\)"):
        graph.answer(T, 3)
    assert (run.history(graph, T), taken) == (before, [1])
    with pytest.raises(ArithmeticError):
        run.invoke(graph, None, T)
    failed = graph.get_state(T).config
    graph.fork(failed)
    assert graph.answer(failed, 3)["log"] == [3]
    assert graph.answer(failed, 4, question=question)["log"] == [4]
    assert taken == [1, 1, 3, 4]


def test_an_answer_before_anything_was_asked_is_refused_after_a_failure(run: Sync) -> None:
    tries: list[int] = []

    def node(state: Any) -> dict[str, Any]:
        tries.append(1)
        if len(tries) == 1:
            raise ArithmeticError
        return {"log": [interrupt("q")]}

    graph = build({"n": node}, chain("n"), InMemorySaver())
    with pytest.raises(ArithmeticError):
        run.invoke(graph, {}, T)
    with pytest.raises(UnknownInterruptError, match="step failed"):
        run.invoke(graph, Command(resume=1), T)
    assert len(tries) == 1
    assert run.invoke(graph, None, T)["__interrupt__"][0].value == "q"


def test_breakpoints_after_every_node_stop_once_each(run: Sync) -> None:
    graph = build(words("a b c"), chain(*"abc"), InMemorySaver(), interrupt_after="*", interrupt_before=["b"])
    inputs: list[Any] = [{}, None, None, None]
    logs = [run.invoke(graph, given, T)["log"] for given in inputs]
    assert logs == [["a"], ["a", "b"], ["a", "b", "c"], ["a", "b", "c"]]
    assert run.state(graph, T).next == ()


def test_breakpoints_before_every_node_stop_once_each(run: Sync) -> None:
    graph = build(words("a b"), chain(*"ab"), InMemorySaver(), interrupt_before="*")
    inputs: list[Any] = [{}, None, None, None]
    assert [run.invoke(graph, given, T)["log"] for given in inputs] == [
        [],
        ["a"],
        ["a", "b"],
        ["a", "b"],
    ]


def test_breakpoints_of_a_call_replace_those_of_the_graph(run: Sync) -> None:
    graph = build(words("a b c"), chain(*"abc"), InMemorySaver(), interrupt_before=["b"])
    assert run.invoke(graph, {}, T, interrupt_before=["c"])["log"] == ["a", "b"]
    assert run.invoke(graph, {}, thread("empty"), interrupt_before=[])["log"] == ["a"]  # nothing to replace them with


@pytest.mark.parametrize("where", ["interrupt_before", "interrupt_after"])
def test_a_breakpoint_at_no_node_is_refused(run: Sync, where: str) -> None:
    graph = build(words("alpha"), chain("alpha"), InMemorySaver())
    with pytest.raises(GraphDefinitionError, match="did you mean 'alpha'"):
        run.invoke(graph, {}, T, **{where: ["alhpa"]})


def test_a_breakpoint_shows_in_the_updates(run: Sync) -> None:
    graph = build(words("a b"), chain(*"ab"), InMemorySaver(), interrupt_before=["b"])
    assert run.stream(graph, {}, T) == [{"a": {"log": ["a"]}}, {"__interrupt__": ()}]


def test_an_edit_at_a_breakpoint_counts_and_lets_the_run_pass(run: Sync) -> None:
    graph = build(words("a b"), chain(*"ab"), InMemorySaver(), interrupt_before=["b"])
    run.invoke(graph, {}, T)
    run.update(graph, T, {"log": ["edit"]})
    assert run.state(graph, T).next == ("b",)
    assert run.invoke(graph, None, T)["log"] == ["a", "edit", "b"]


def test_a_breakpoint_in_a_loop_stops_each_time(run: Sync) -> None:
    graph = build(
        words("a"),
        [(START, "a")],
        InMemorySaver(),
        interrupt_before=["a"],
        routers=[("a", lambda s: END if len(s["log"]) > 2 else "a")],
    )
    inputs: list[Any] = [{}, None, None, None]
    assert [len(run.invoke(graph, given, T)["log"]) for given in inputs] == [0, 1, 2, 3]


def test_a_breakpoint_stops_a_run_without_a_saver_too(run: Sync) -> None:
    assert run.invoke(build(words("a b"), chain(*"ab"), interrupt_before=["b"]), {}) == {"log": ["a"]}


def test_a_breakpoint_before_a_question(run: Sync) -> None:
    graph = build({"q": ask("q")}, chain("q"), InMemorySaver(), interrupt_before=["q"])
    assert "__interrupt__" not in run.invoke(graph, {}, T)
    assert run.invoke(graph, None, T)["__interrupt__"][0].value == "q"
    assert run.invoke(graph, Command(resume="R"), T)["log"] == [("q", "R")]


def test_version_two_returns_the_value_and_the_questions_apart(run: Sync) -> None:
    graph = build({"a": say("a"), "q": ask("q")}, chain("a", "q"), InMemorySaver())
    out = run.invoke(graph, {}, T, version="v2")
    assert out.value == {"log": ["a"]}
    assert [q.value for q in out.interrupts] == ["q"]
    assert run.invoke(graph, Command(resume=1), T, version="v2").interrupts == ()


def test_a_bare_state_shows_its_questions_alone(run: Sync) -> None:
    builder = StateGraph(int).add_node("q", lambda s: s + interrupt("more?")).add_edge(START, "q")
    graph = builder.compile(InMemorySaver())
    assert list(run.invoke(graph, 1, T)) == ["__interrupt__"]
    assert run.invoke(graph, Command(resume=4), T) == 5


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_every_durability_can_be_answered(run: Sync, saver: Saver, durability: str) -> None:
    graph = build({"a": say("a"), "q": lambda s: {"log": [interrupt("x"), interrupt("y")]}}, chain("a", "q"), saver)
    run.invoke(graph, {}, T, durability=durability)
    run.invoke(graph, Command(resume=1), T, durability=durability)
    assert run.invoke(graph, Command(resume=2), T, durability=durability)["log"] == ["a", 1, 2]


def test_questions_of_a_state_with_own_node_names(run: Sync) -> None:
    graph = StateGraph(Log).add_node("a node", ask("q")).add_edge(START, "a node").compile(InMemorySaver())
    run.invoke(graph, {}, T)
    assert run.invoke(graph, Command(resume=1), T)["log"] == [("q", 1)]
