"""Threads: snapshots, history, edits, replays, forks, Commands as input, and what a saver keeps of them."""

from __future__ import annotations

import asyncio
import operator
from typing import Annotated, Any, TypedDict

import pytest
from conftest import Sync, ask, build, chain, checkpoint_before, fan, odd, say, sources, thread, words

from minigraph import END, START, Command, JoinNeverFiredWarning, Migration, Overwrite, Send, StateUpdate, interrupt
from minigraph.checkpoint import InMemorySaver, Saver
from minigraph.errors import (
    EmptyInputError,
    GraphChangedError,
    InvalidUpdateError,
    ThreadConflictError,
    UnknownCheckpointError,
    UnknownInterruptError,
    UnknownNodeError,
)

T = thread()


class Before(TypedDict, total=False):
    old: int


class After(Before, total=False):
    new: Annotated[list[Any], operator.add]


class Smaller(TypedDict, total=False):
    log: list[Any]


def nexts(run: Sync, graph: Any) -> list[tuple[str, ...]]:
    return [shot.next for shot in run.history(graph, T)]


# ------------------------------------------------------------------ snapshots and history


def test_history_tells_the_whole_run_newest_first(run: Sync, saver: Saver) -> None:
    graph = build(words("a b"), chain("a", "b"), saver)
    run.invoke(graph, {"value": 1}, T)
    shots = run.history(graph, T)
    assert [(s.metadata["source"], s.metadata["step"], s.next) for s in shots] == [
        ("loop", 2, ()), ("loop", 1, ("b",)), ("loop", 0, ("a",)), ("input", -1, ("__start__",)),
    ]  # fmt: skip
    assert [s.values for s in shots] == [
        {"log": ["a", "b"], "value": 1}, {"log": ["a"], "value": 1}, {"log": [], "value": 1}, {"log": []},
    ]  # fmt: skip
    ids = [s.config["configurable"]["checkpoint_id"] for s in shots]
    assert ids == sorted(ids, reverse=True)
    assert [s.parent_config for s in shots] == [*(s.config for s in shots[1:]), None]
    assert [t.result for s in shots[1:] for t in s.tasks] == [{"log": ["b"]}, {"log": ["a"]}, {"value": 1}]
    assert all(s.created_at for s in shots)


def test_history_limit_before_and_filter(run: Sync, saver: Saver) -> None:
    graph = build(words("a b"), chain("a", "b"), saver)
    run.invoke(graph, {}, T)
    everything = run.history(graph, T)

    def steps(**options: Any) -> list[int]:
        return [s.metadata["step"] for s in run.history(graph, T, **options)]

    assert [len(steps(limit=n)) for n in (0, 1, 99)] == [0, 1, 4]
    assert steps(limit=2) == [2, 1]
    assert steps(before=everything[1].config) == [0, -1]
    assert steps(before=everything[-1].config) == []
    assert steps(filter={"source": "input"}) == [-1]
    assert steps(filter={"step": 1}) == [1]
    assert steps(filter={"source": "loop"}, limit=1, before=everything[0].config) == [1]
    assert run.history(graph, everything[1].config) == [everything[1]]


def test_history_at_an_unknown_id_is_an_error(run: Sync) -> None:
    graph = build(words("a"), chain("a"), InMemorySaver())
    run.invoke(graph, {}, T)
    wrong = {"configurable": {"thread_id": "t", "checkpoint_id": "f" * 32}}
    with pytest.raises(UnknownCheckpointError):
        run.history(graph, wrong)
    with pytest.raises(UnknownCheckpointError):
        run.history(graph, T, before=wrong)


def test_a_thread_that_never_ran_is_empty_and_stays_unknown(run: Sync, saver: Saver) -> None:
    graph = build(words("a"), chain("a"), saver)
    state = run.state(graph, T)
    assert (state.values, state.next, state.tasks, state.config) == (
        {},
        (),
        (),
        {"configurable": {"thread_id": "t", "checkpoint_ns": ""}},
    )
    assert run.history(graph, T) == []
    assert list(saver.list(None)) == []
    with pytest.raises(EmptyInputError):
        run.invoke(graph, None, T)


def test_own_metadata_is_stored_with_every_checkpoint_and_filters(run: Sync, saver: Saver) -> None:
    graph = build(words("a"), chain("a"), saver)
    for name, tenant in (("1", "acme"), ("2", "globex")):
        config = {"configurable": {"thread_id": name, "user": 7}, "metadata": {"my-key": tenant, "nested": {"x": 1}}}
        run.invoke(graph, {}, config)
    (shot, *_) = run.history(graph, thread("1"))
    assert {k: shot.metadata[k] for k in ("user", "my-key")} == {"user": 7, "my-key": "acme"}
    assert "nested" not in shot.metadata
    found = {t.config["configurable"]["thread_id"] for t in saver.list(None, filter={"my-key": "acme"})}
    assert found == {"1"}


def test_history_is_never_changed_by_later_in_place_edits(run: Sync, saver: Saver) -> None:
    def grow(s: Any) -> dict[str, Any]:
        items = s.get("value") or []
        items.append(len(items))
        return {"value": items}

    graph = build({"a": grow, "b": grow}, chain("a", "b"), saver)
    out = run.invoke(graph, {"value": []}, T)
    out["value"].append("caller")
    shots = run.history(graph, T)
    shots[0].values["value"].append("reader")
    assert [s.values.get("value") for s in run.history(graph, T)] == [[0, 1], [0], [], None]


def test_deep_edits_in_a_node_do_not_reach_back_in_time(saver: Saver) -> None:
    def edit(s: Any) -> dict[str, Any]:
        s["value"]["deep"].append(1)
        return {"value": s["value"]}

    graph = build({"a": edit, "b": edit}, chain("a", "b"), saver)
    graph.invoke({"value": {"deep": []}}, T)
    assert [s.values.get("value") for s in graph.get_state_history(T)] == [
        {"deep": [1, 1]},
        {"deep": [1]},
        {"deep": []},
        None,
    ]


def test_a_waiting_join_is_shown_while_it_waits(run: Sync, saver: Saver) -> None:
    edges = [*fan("a", "b"), ("b", "c"), (["a", "c"], "d")]
    graph = build(words("a b c d"), edges, saver, interrupt_before=["c"])
    run.invoke(graph, {}, T)
    assert run.state(graph, T).waiting == ("'d' waits for 'c' (seen: 'a')",)
    run.invoke(graph, None, T)
    assert run.state(graph, T).waiting == ()


# ------------------------------------------------------------------ going on


def test_none_on_a_finished_thread_returns_the_state_and_stores_nothing(run: Sync, saver: Saver) -> None:
    runs: list[Any] = []
    graph = build(words("a", runs), chain("a"), saver)
    run.invoke(graph, {}, T)
    before = run.history(graph, T)
    assert run.invoke(graph, None, T)["log"] == ["a"]
    assert run.invoke(graph, None, before[0].config)["log"] == ["a"]
    assert (runs, run.history(graph, T)) == (["a"], before)


def test_new_input_on_a_finished_thread_is_reduced_onto_the_state(run: Sync, saver: Saver) -> None:
    graph = build(words("a"), chain("a"), saver)
    run.invoke(graph, {"log": ["1"], "value": 1}, T)
    assert run.invoke(graph, {"log": ["2"]}, T) == {"log": ["1", "a", "2", "a"], "value": 1}
    assert sources(graph, T) == [("loop", 4), ("loop", 3), ("input", 2), ("loop", 1), ("loop", 0), ("input", -1)]
    assert run.invoke(graph, {}, T)["log"] == ["1", "a", "2", "a", "a"]


def test_the_heads_own_id_means_resume(run: Sync, saver: Saver) -> None:
    runs: list[Any] = []
    graph = build({"a": say("a", runs), "q": ask("q", runs)}, fan("a", "q"), saver)
    run.invoke(graph, {}, T)
    head = run.state(graph, T).config
    run.invoke(graph, None, head)
    assert run.invoke(graph, Command(resume="R"), head)["log"] == ["a", ("q", "R")]
    assert runs == ["a", "q", "q"]
    assert "fork" not in [source for source, _ in sources(graph, T)]


@pytest.mark.parametrize("given", [None, {}, {"log": ["x"]}, Command(resume=1), Command(goto="a")])
def test_an_unknown_checkpoint_is_an_error_for_every_input(run: Sync, given: Any) -> None:
    graph = build(words("a"), chain("a"), InMemorySaver())
    wrong = {"configurable": {"thread_id": "t", "checkpoint_id": "0" * 32}}
    for _ in range(2):  # on a thread that never ran, and on one that did
        with pytest.raises(UnknownCheckpointError, match="0000"):
            run.invoke(graph, given, wrong)
        run.invoke(graph, {}, T)
    with pytest.raises(UnknownCheckpointError):
        run.state(graph, wrong)
    with pytest.raises(UnknownCheckpointError):
        run.update(graph, wrong, {"log": []})


@pytest.mark.parametrize("wrong", [3, b"x", ["id"]])
def test_a_checkpoint_id_is_a_str(wrong: Any) -> None:
    with pytest.raises(ValueError, match="checkpoint_id"):
        build(words("a"), chain("a"), InMemorySaver()).invoke(
            {}, {"configurable": {"thread_id": "t", "checkpoint_id": wrong}}
        )


def test_a_graph_that_lost_a_pending_node_says_so_and_can_be_moved_on(run: Sync, saver: Saver) -> None:
    old = build(words("a b"), chain("a", "b"), saver, interrupt_before=["b"])
    run.invoke(old, {}, T)
    new = build(words("a c"), chain("a", "c"), saver)
    with pytest.raises(UnknownNodeError, match=r"'b'.*'a', 'c'") as caught:
        run.invoke(new, None, T)
    assert caught.value.node == "b"
    assert run.state(new, T).next == ("b",)
    run.update(new, T, None, as_node=END)
    assert run.state(new, T).next == ()
    run.update(new, T, {"log": ["moved"]}, as_node="a")
    assert run.invoke(new, None, T)["log"] == ["a", "moved", "c"]


def test_a_key_declared_later_gets_its_initial_value(run: Sync, saver: Saver) -> None:
    first = build({"a": lambda s: {"old": 1}}, chain("a"), saver, state=Before)
    run.invoke(first, {}, T)
    second = build({"a": lambda s: {"new": [1]}}, chain("a"), saver, state=After)
    assert run.state(second, T).values == {"old": 1, "new": []}
    assert run.invoke(second, {}, T) == {"old": 1, "new": [1]}


def test_a_key_that_was_dropped_is_an_error_until_somebody_says_so(run: Sync, saver: Saver) -> None:
    run.invoke(build(words("a"), chain("a"), saver), {"value": 1}, T)
    nodes: dict[str, Any] = {"a": lambda s: {"log": [sorted(s)]}}
    smaller = build(nodes, chain("a"), saver, state=Smaller)
    with pytest.raises(GraphChangedError, match=r"holds the key 'value'.*has keys 'log'") as caught:
        run.invoke(smaller, {}, T)
    assert caught.value.keys == ("value",)
    assert run.state(smaller, T).values == {"log": ["a"]}
    smaller = build(nodes, chain("a"), saver, state=Smaller, migrations=[Migration(keys={"value": None})])
    assert run.invoke(smaller, {}, T) == {"log": [["log"]]}


# ------------------------------------------------------------------ Commands as input


def test_goto_and_update_on_a_finished_thread(run: Sync, saver: Saver) -> None:
    graph = build(words("a b c"), chain(*"abc"), saver)
    run.invoke(graph, {}, T)
    assert run.invoke(graph, Command(goto="b", update={"log": ["U"]}), T)["log"] == ["a", "b", "c", "U", "b", "c"]


def test_an_update_on_a_finished_thread_is_a_checkpoint_of_its_own(run: Sync, saver: Saver) -> None:
    graph = build(words("a"), chain("a"), saver)
    run.invoke(graph, {}, T)
    old = run.history(graph, T)
    assert run.invoke(graph, Command(update={"log": ["U"]}), T)["log"] == ["a", "U"]
    new = run.history(graph, T)
    assert new[1:] == old
    assert (new[0].metadata["source"], new[0].values["log"], new[0].next) == ("update", ["a", "U"], ())


@odd("unreachable-node")
@pytest.mark.parametrize("stored", [True, False])
def test_a_command_on_a_new_thread_is_applied_once(run: Sync, stored: bool) -> None:
    graph = build(words("a b"), [(START, "a")], InMemorySaver() if stored else None)
    config = T if stored else None
    assert run.invoke(graph, Command(update={"log": ["u"]}), config)["log"] == ["u", "a"]
    graph = build(words("a b"), [(START, "a")], InMemorySaver() if stored else None)
    assert run.invoke(graph, Command(update={"log": ["u"]}, goto="b"), config)["log"] == ["u", "a", "b"]


@odd("unreachable-node")
def test_goto_while_paused_adds_to_what_is_pending(run: Sync) -> None:
    graph = build(words("a b c d"), chain(*"abc"), InMemorySaver(), interrupt_before=["b"])
    run.invoke(graph, {}, T)
    assert run.invoke(graph, Command(goto="d"), T)["log"] == ["a", "b", "d", "c"]


@odd("unreachable-node")
def test_goto_may_be_a_send_or_a_list(run: Sync) -> None:
    graph = build({"a": say("a"), "w": lambda x: {"log": [x]}}, chain("a"), InMemorySaver())
    run.invoke(graph, {}, T)
    assert run.invoke(graph, Command(goto=[Send("w", 1), "a", Send("w", 2)]), T)["log"] == ["a", "a", 1, 2]


@pytest.mark.parametrize(
    ("command", "error"),
    [
        (Command(goto="nowhere"), ValueError),
        (Command(goto=Send("nowhere", 1)), ValueError),
        (Command(goto=Send(END, 1)), InvalidUpdateError),
        (Command(update={"nope": 1}), InvalidUpdateError),
        (Command(update="text"), InvalidUpdateError),
        (Command(graph=Command.PARENT, goto="a"), InvalidUpdateError),
        (Command(graph="other", goto="a"), InvalidUpdateError),
        (Command(), EmptyInputError),
        (Command(goto=[]), EmptyInputError),
        (Command(resume=1), UnknownInterruptError),
    ],
)
@pytest.mark.parametrize("ran", [True, False])
def test_a_command_that_makes_no_sense_is_refused_and_writes_nothing(
    run: Sync, command: Any, error: Any, ran: bool
) -> None:
    graph = build(words("a"), chain("a"), InMemorySaver())
    if ran:
        run.invoke(graph, {}, T)
    before = run.history(graph, T)
    with pytest.raises(error):
        run.invoke(graph, command, T)
    assert run.history(graph, T) == before


def test_a_command_at_an_older_checkpoint_makes_a_branch(run: Sync, saver: Saver) -> None:
    graph = build(words("a b c"), chain(*"abc"), saver)
    run.invoke(graph, {}, T)
    at = checkpoint_before(graph, T, "b")
    head = run.state(graph, T).config
    assert run.invoke(graph, Command(update={"log": ["U"]}), at)["log"] == ["a", "U", "b", "c"]
    assert run.state(graph, head).values["log"] == list("abc")


# ------------------------------------------------------------------ update_state


def test_an_update_counts_as_the_node_that_ran_last(run: Sync, saver: Saver) -> None:
    graph = build(words("a b c"), chain(*"abc"), saver)
    run.invoke(graph, {}, T)
    config = run.update(graph, T, {"log": ["U"]})
    state = run.state(graph, T)
    assert state.config == config
    assert (state.values["log"], state.next, state.metadata["source"]) == (["a", "b", "c", "U"], (), "update")
    run.update(graph, T, {"log": ["V"]}, as_node="a")
    assert run.state(graph, T).next == ("b",)
    assert run.invoke(graph, None, T)["log"] == ["a", "b", "c", "U", "V", "b", "c"]


def test_an_update_of_a_new_thread_counts_as_its_input(run: Sync, saver: Saver) -> None:
    graph = build(words("a"), chain("a"), saver)
    run.update(graph, T, {"log": ["s"]}, as_node=START)
    run.update(graph, T, {"log": ["t"]})
    assert run.state(graph, T).next == ("a",)
    assert sources(graph, T) == [("update", 1), ("update", 0)]
    assert run.invoke(graph, None, T)["log"] == ["s", "t", "a"]


@pytest.mark.parametrize(
    "values",
    [
        {"log": Overwrite(["new"])},
        Command(update={"log": Overwrite(["new"])}),
        [Command(update={"log": Overwrite(["new"])})],
    ],
)
def test_updates_take_what_nodes_return(run: Sync, values: Any) -> None:
    graph = build(words("a b"), chain("a", "b"), InMemorySaver())
    run.invoke(graph, {}, T)
    run.update(graph, T, values)
    assert run.state(graph, T).values["log"] == ["new"]


@odd("unreachable-node")
def test_an_update_with_a_goto(run: Sync) -> None:
    graph = build(words("a b"), [(START, "a")], InMemorySaver())
    run.invoke(graph, {}, T)
    run.update(graph, T, Command(goto="b"))
    assert run.state(graph, T).next == ("b",)


@pytest.mark.parametrize(
    ("values", "as_node"),
    [
        ({"nope": 1}, None),
        ({"log": []}, "nobody"),
        ("text", None),
        (3, None),
        ({"log": []}, END),
        ({"log": []}, "__copy__"),
    ],
)
def test_an_update_that_makes_no_sense_is_refused_and_writes_nothing(
    run: Sync, saver: Saver, values: Any, as_node: Any
) -> None:
    graph = build(words("a"), chain("a"), saver)
    run.invoke(graph, {}, T)
    before = run.history(graph, T)
    with pytest.raises(InvalidUpdateError):
        run.update(graph, T, values, as_node)
    assert run.history(graph, T) == before


def test_an_ambiguous_update_asks_which_node_it_is(run: Sync) -> None:
    graph = build(words("a b"), fan("a", "b"), InMemorySaver())
    run.invoke(graph, {}, T)
    with pytest.raises(InvalidUpdateError, match=r"'a', 'b'.*as_node="):
        run.update(graph, T, {"log": []})


def test_an_update_asks_the_routers_of_its_node(run: Sync) -> None:
    routers = [("a", lambda s: "c" if "U" in s["log"] else "b")]
    graph = build(words("a b c"), [(START, "a")], InMemorySaver(), routers=routers)
    run.update(graph, T, {"log": ["U"]}, as_node="a")
    assert run.state(graph, T).next == ("c",)


def test_an_update_as_a_node_that_routes_by_command_keeps_what_is_due(run: Sync) -> None:
    nodes = {"a": lambda s: Command(goto="z", update={"log": ["a"]}), "z": say("z")}
    graph = build(nodes, chain("a"), InMemorySaver(), options={"a": {"destinations": ["z"]}}, interrupt_before=["z"])
    run.invoke(graph, {}, T)
    run.update(graph, T, {"log": ["human"]}, as_node="a")
    assert run.invoke(graph, None, T)["log"] == ["a", "human", "z"]


def test_an_update_in_place_of_the_asking_node_goes_on_behind_it(run: Sync, saver: Saver) -> None:
    runs: list[Any] = []
    graph = build({"p": say("p"), "q": ask("q", runs), "z": say("z")}, chain("p", "q", "z"), saver)
    old = run.invoke(graph, {}, T)["__interrupt__"][0].id
    run.update(graph, T, {"log": ["U"]}, as_node="q")
    assert run.state(graph, T).next == ("z",)
    with pytest.raises(UnknownInterruptError):
        run.invoke(graph, Command(resume={old: 1}), T)
    assert run.invoke(graph, None, T)["log"] == ["p", "U", "z"]
    assert runs == ["q"]


def test_an_update_keeps_the_finished_siblings_and_the_join(run: Sync, saver: Saver) -> None:
    runs: list[Any] = []
    edges = [*fan("a", "q"), (["a", "q"], "z")]
    graph = build({"a": say("a", runs), "q": ask("q"), "z": say("z")}, edges, saver)
    run.invoke(graph, {}, T)
    run.update(graph, T, {"log": ["U"]}, as_node="q")
    assert (run.state(graph, T).values["log"], run.state(graph, T).next) == (["a", "U"], ("z",))
    assert run.invoke(graph, None, T)["log"] == ["a", "U", "z"]
    assert runs == ["a"]


def test_an_update_for_another_node_keeps_question_siblings_and_join(run: Sync, saver: Saver) -> None:
    runs: list[Any] = []
    edges = [(START, "p"), ("p", "a"), ("p", "q"), (["a", "q"], "z")]
    graph = build({"p": say("p"), "a": say("a", runs), "q": ask("q"), "z": say("z")}, edges, saver)
    question = run.invoke(graph, {}, T)["__interrupt__"][0]
    run.update(graph, T, {"log": ["U"]}, as_node="z")
    state = run.state(graph, T)
    assert (state.next, state.interrupts) == (("q",), (question,))
    assert run.invoke(graph, Command(resume="R"), T)["log"] == ["p", "U", "a", ("q", "R"), "z"]
    assert runs == ["a"]


def test_chained_updates_keep_what_the_first_made_due(run: Sync) -> None:
    graph = build(words("a b c d"), [*fan("a", "c"), ("a", "b"), ("c", "d")], InMemorySaver())
    run.update(graph, T, {"log": ["A"]}, as_node="a")
    run.update(graph, T, {"log": ["C"]}, as_node="c")
    assert set(run.state(graph, T).next) == {"b", "d"}
    assert run.invoke(graph, None, T)["log"] == ["A", "C", "b", "d"]


def test_an_update_for_one_send_task_by_its_id() -> None:
    nodes = {"w": lambda x: {"log": [f"{x}{interrupt(x)}"]}}
    graph = build(nodes, [], InMemorySaver(), routers=[(START, lambda s: [Send("w", i) for i in range(3)])])
    graph.invoke({}, T)
    tasks = graph.get_state(T).tasks
    graph.update_state(T, {"log": ["by hand"]}, "w", tasks[1].id)
    assert [task.id for task in graph.get_state(T).tasks] == [tasks[0].id, tasks[2].id]
    ids = {q.value: q.id for q in graph.get_state(T).interrupts}
    assert graph.invoke(Command(resume={ids[0]: "a", ids[2]: "c"}), T)["log"] == ["by hand", "0a", "2c"]
    with pytest.raises(InvalidUpdateError, match="task_id"):
        graph.update_state(T, {"log": []}, "w", "nobody")


def test_closing_a_step_keeps_what_has_finished_and_drops_the_rest(run: Sync, saver: Saver) -> None:
    graph = build({"a": say("a"), "q": ask("q"), "z": say("z")}, [*fan("a", "q"), ("a", "z"), ("q", "z")], saver)
    run.invoke(graph, {}, T)
    run.update(graph, T, None, as_node=END)
    assert (run.state(graph, T).values["log"], run.state(graph, T).next) == (["a"], ("z",))
    run.update(graph, T, None, as_node=END)
    assert run.state(graph, T).next == ()


def test_several_updates_in_one_call_are_steps_in_one_transaction(saver: Saver) -> None:
    graph = build(words("a b c"), chain(*"abc"), saver)
    graph.bulk_update_state(T, [[StateUpdate({"log": ["x"]}, "a")], [StateUpdate({"log": ["y"]}, "b")]])
    assert sources(graph, T) == [("update", 1), ("update", 0)]
    assert (graph.get_state(T).values["log"], graph.get_state(T).next) == (["x", "y"], ("c",))
    with pytest.raises(InvalidUpdateError):
        graph.bulk_update_state(T, [[StateUpdate({"log": ["z"]}, "c")], [StateUpdate({"nope": 1}, "b")]])
    assert len(sources(graph, T)) == 2
    empty: tuple[list[list[StateUpdate]], ...] = ([], [[]])
    for wrong in empty:
        with pytest.raises(InvalidUpdateError, match="at least one"):
            graph.bulk_update_state(T, wrong)


def test_several_updates_of_one_step_go_in_their_order(run: Sync) -> None:
    graph = build(words("a b c"), [*fan("a", "b"), (["a", "b"], "c")], InMemorySaver())
    graph.bulk_update_state(T, [[StateUpdate({"log": ["b"]}, "b"), StateUpdate({"log": ["a"]}, "a")]])
    assert graph.get_state(T).values["log"] == ["b", "a"]
    assert graph.get_state(T).next == ("c",)
    with pytest.raises(InvalidUpdateError, match="as_node"):
        graph.bulk_update_state(T, [[StateUpdate({"log": []}), StateUpdate({"log": []})]])


def test_an_update_that_was_overtaken_is_a_conflict(saver: Saver, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = build(words("a"), chain("a"), saver)
    graph.invoke({}, T)
    put = saver.put

    def overtaken(write: Any) -> int:
        monkeypatch.undo()
        graph.update_state(T, {"log": ["first"]})
        return put(write)

    monkeypatch.setattr(saver, "put", overtaken)
    with pytest.raises(ThreadConflictError):
        graph.update_state(T, {"log": ["second"]})
    assert graph.get_state(T).values["log"] == ["a", "first"]


# ------------------------------------------------------------------ replay and fork


def test_a_replay_runs_what_comes_after_on_a_branch(run: Sync, saver: Saver) -> None:
    runs: list[Any] = []
    graph = build(words("a b c", runs), chain(*"abc"), saver)
    run.invoke(graph, {}, T)
    before = run.history(graph, T)
    runs.clear()
    assert run.invoke(graph, None, checkpoint_before(graph, T, "b"))["log"] == list("abc")
    assert runs == ["b", "c"]
    assert sources(graph, T)[:3] == [("loop", 4), ("loop", 3), ("fork", 2)]
    assert run.history(graph, T)[3:] == before


def test_a_replay_without_changes_equals_the_original(run: Sync, saver: Saver) -> None:
    edges = [*fan("a", "b"), ("a", "c"), (["b", "c"], "d"), ("d", "e")]
    graph = build(words("a b c d e"), edges, saver)
    out = run.invoke(graph, {"value": (1, 2)}, T)
    for shot in run.history(graph, T):
        assert run.invoke(graph, None, shot.config) == out


def test_a_replay_from_the_input_applies_it_again(run: Sync) -> None:
    graph = build(words("a"), chain("a"), InMemorySaver())
    run.invoke(graph, {"log": ["i"]}, T)
    assert run.invoke(graph, None, checkpoint_before(graph, T, "__start__"))["log"] == ["i", "a"]


def test_a_replay_remembers_joins_and_sends_of_its_checkpoint(run: Sync) -> None:
    nodes = {
        "a": lambda s: [Command(update={"log": ["a"]}, goto=[Send("w", 1), Send("w", 2)])],
        "b": say("b"),
        "w": lambda x: {"log": [x]},
        "z": say("z"),
    }
    graph = build(nodes, [*fan("a", "b"), (["b", "w"], "z")], InMemorySaver())
    out = run.invoke(graph, {}, T)
    assert out["log"] == ["a", "b", 1, 2, "z"]
    assert run.invoke(graph, None, checkpoint_before(graph, T, "w", "w")) == out


def test_a_fork_edits_the_past_and_becomes_the_head(run: Sync, saver: Saver) -> None:
    graph = build(words("a b c"), chain(*"abc"), saver)
    run.invoke(graph, {}, T)
    at = checkpoint_before(graph, T, "b")
    fork = run.update(graph, at, {"log": ["F"]})
    assert run.state(graph, fork).parent_config == at
    assert (run.state(graph, T).values["log"], run.state(graph, T).next) == (["a", "F"], ("b",))
    assert run.invoke(graph, None, fork)["log"] == ["a", "F", "b", "c"]
    assert run.state(graph, at).values["log"] == ["a"]
    assert run.invoke(graph, {"log": ["next"]}, T)["log"] == ["a", "F", "b", "c", "next", "a", "b", "c"]


def test_new_input_at_an_older_checkpoint_starts_a_branch_there(run: Sync, saver: Saver) -> None:
    graph = build(words("a b"), chain("a", "b"), saver)
    run.invoke(graph, {}, T)
    at = checkpoint_before(graph, T, "b")
    assert run.invoke(graph, {"log": ["new"]}, at)["log"] == ["a", "new", "a", "b"]
    assert run.state(graph, at).values["log"] == ["a"]


def test_branches_of_branches(run: Sync) -> None:
    graph = build(words("a b"), chain("a", "b"), InMemorySaver())
    run.invoke(graph, {}, T)
    first = run.update(graph, checkpoint_before(graph, T, "b"), {"log": ["1"]})
    second = run.update(graph, first, {"log": ["2"]})
    third = run.update(graph, first, {"log": ["3"]})
    assert [run.state(graph, c).values["log"] for c in (first, second, third)] == [
        ["a", "1"],
        ["a", "1", "2"],
        ["a", "1", "3"],
    ]
    assert run.state(graph, T).config == third


def test_a_copied_checkpoint_is_a_sibling(run: Sync) -> None:
    graph = build(words("a b"), chain("a", "b"), InMemorySaver(), interrupt_before=["b"])
    run.invoke(graph, {}, T)
    copied = run.update(graph, run.state(graph, T).config, None, as_node="__copy__")
    assert run.state(graph, copied).metadata["source"] == "fork"
    assert run.invoke(graph, None, T)["log"] == ["a", "b"]


def test_a_replay_of_a_failed_step_can_succeed(run: Sync) -> None:
    healthy = {"now": False}

    def node(s: Any) -> dict[str, Any]:
        if not healthy["now"]:
            raise ValueError("x")
        return {"log": ["n"]}

    graph = build({"a": say("a"), "n": node}, chain("a", "n"), InMemorySaver())
    with pytest.raises(ValueError, match="x"):
        run.invoke(graph, {}, T)
    healthy["now"] = True
    assert run.invoke(graph, None, run.state(graph, T).config)["log"] == ["a", "n"]


# ------------------------------------------------------------------ thread ids and savers


@pytest.mark.parametrize("wrong", [None, 1, "", b"t", ["t"], True])
def test_a_thread_id_is_a_non_empty_str(run: Sync, wrong: Any) -> None:
    runs: list[Any] = []
    graph = build(words("a", runs), chain("a"), InMemorySaver())
    configs: tuple[Any, ...] = ({"configurable": {"thread_id": wrong}}, {"configurable": {}}, {}, None)
    for config in configs:
        with pytest.raises(ValueError, match="thread"):
            run.invoke(graph, {}, config)
    assert runs == []


@pytest.mark.parametrize("name", ["a|b", "a:b", "../x", "ü", " ", "'; drop table", "x" * 2000, "a\x00b"])
def test_odd_thread_ids_are_threads_of_their_own(run: Sync, saver: Saver, name: str) -> None:
    graph = build(words("a"), chain("a"), saver)
    run.invoke(graph, {}, thread(name))
    assert run.state(graph, thread(name)).values["log"] == ["a"]
    assert run.state(graph, thread(name[:1] + "?")).values == {}


@pytest.mark.parametrize("call", ["state", "history", "update"])
def test_looking_at_threads_needs_a_saver(run: Sync, call: str) -> None:
    graph = build(words("a"), chain("a"))
    arguments: tuple[Any, ...] = (T, {"log": []}) if call == "update" else (T,)
    with pytest.raises(ValueError, match="no checkpointer"):
        getattr(run, call)(graph, *arguments)


def test_delete_copy_and_prune_through_a_graph(run: Sync, saver: Saver) -> None:
    graph = build({"a": say("a"), "q": ask("q")}, chain("a", "q"), saver)
    question = run.invoke(graph, {}, T)["__interrupt__"][0]
    saver.copy_thread("t", "copy")
    saver.prune("copy", keep=1)
    assert len(run.history(graph, thread("copy"))) == 1
    assert run.invoke(graph, Command(resume={question.id: 1}), thread("copy"))["log"] == ["a", ("q", 1)]
    assert run.state(graph, T).next == ("q",)
    saver.delete_thread("t")
    assert run.state(graph, T).values == {}
    assert run.state(graph, thread("copy")).values["log"] == ["a", ("q", 1)]


def test_two_threads_do_not_see_each_other(run: Sync, saver: Saver) -> None:
    graph = build({"q": ask("q")}, chain("q"), saver)
    one, two = (run.invoke(graph, {}, thread(name))["__interrupt__"][0].id for name in ("1", "2"))
    assert one != two
    with pytest.raises(UnknownInterruptError):
        run.invoke(graph, Command(resume={one: 1}), thread("2"))
    assert run.invoke(graph, Command(resume=2), thread("2"))["log"] == [("q", 2)]
    assert run.state(graph, thread("1")).next == ("q",)


def test_a_join_in_progress_survives_new_input() -> None:
    """LangGraph keeps what a join has seen when new input comes; so a later pass may fire it alone."""
    graph = build(words("a b d"), [(["a", "b"], "d")], InMemorySaver(), routers=[(START, lambda s: s["value"])])
    with pytest.warns(JoinNeverFiredWarning):
        graph.invoke({"value": "a"}, T)
    assert graph.invoke({"value": "b"}, T)["log"] == ["a", "b", "d"]


def test_sync_and_async_calls_share_a_thread(saver: Saver) -> None:
    graph = build({"a": say("a"), "q": ask("q"), "z": say("z")}, chain("a", "q", "z"), saver)
    graph.invoke({}, T)
    assert asyncio.run(graph.aget_state(T)).next == ("q",)
    assert asyncio.run(graph.ainvoke(Command(resume=1), T))["log"] == ["a", ("q", 1), "z"]
    assert graph.invoke(None, T)["log"] == ["a", ("q", 1), "z"]


@pytest.mark.parametrize("wrong", [{"lgo": ["x"]}, "text", 3, ["x"]])
def test_refused_input_leaves_a_paused_thread_as_it_was(run: Sync, saver: Saver, wrong: Any) -> None:
    graph = build({"q": ask("q")}, chain("q"), saver)
    run.invoke(graph, {}, T)
    before = run.history(graph, T)
    with pytest.raises(InvalidUpdateError):
        run.invoke(graph, wrong, T)
    assert run.history(graph, T) == before
    assert run.invoke(graph, Command(resume="R"), T)["log"] == [("q", "R")]


def test_an_edit_as_input_starts_over_like_new_input(run: Sync, saver: Saver) -> None:
    graph = build(words("a b"), chain("a", "b"), saver)
    run.update(graph, T, {"log": ["1"]}, as_node="__input__")
    assert (run.state(graph, T).next, sources(graph, T)) == (("__start__",), [("input", -1)])
    assert run.invoke(graph, None, T)["log"] == ["1", "a", "b"]
    run.update(graph, T, {"log": ["2"]}, as_node="__input__")
    assert sources(graph, T)[0] == ("input", 3)
    assert run.invoke(graph, None, T)["log"] == ["1", "a", "b", "2", "a", "b"]
