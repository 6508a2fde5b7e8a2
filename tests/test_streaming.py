"""What a stream shows, in which order and shape, and what becomes of a run whose stream is left early."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any

import pytest
from conftest import Sync, ask, build, chain, fan, say, sources, thread, words
from pydantic import BaseModel

from minigraph import (
    START,
    Command,
    GraphOutput,
    Overwrite,
    RetryPolicy,
    Runtime,
    Send,
    get_config,
    get_runtime,
    get_stream_writer,
)
from minigraph.checkpoint import InMemorySaver, Saver

T = thread()


# ------------------------------------------------------------------ values and updates


def test_values_show_the_state_after_the_input_and_after_each_step(run: Sync) -> None:
    graph = build({"a": say("a"), "b": lambda s: None, "c": say("c")}, chain("a", "b", "c"))
    shown = run.stream(graph, {"log": ["i"]}, stream_mode="values")
    assert shown == [{"log": ["i"]}, {"log": ["i", "a"]}, {"log": ["i", "a", "c"]}]


def test_updates_show_what_each_task_wrote(run: Sync) -> None:
    nodes = {
        "a": say("a"),
        "b": lambda s: None,
        "c": lambda s: [Command(update={"log": [1]}), {"log": [2], "value": 3}],
    }
    assert run.stream(build(nodes, chain("a", "b", "c")), {}) == [
        {"a": {"log": ["a"]}},
        {"b": None},
        {"c": [{"log": [1]}, {"log": [2]}, {"value": 3}]},
    ]


def test_updates_come_as_tasks_finish(run: Sync) -> None:
    def late(s: Any) -> dict[str, Any]:
        time.sleep(0.04)
        return {"log": ["a"]}

    graph = build({"a": late, "b": say("b")}, fan("a", "b"))
    assert [list(chunk) for chunk in run.stream(graph, {})] == [["b"], ["a"]]


def test_updates_arrive_while_the_step_still_runs() -> None:
    ended: list[str] = []

    def late(s: Any) -> None:
        time.sleep(0.1)
        ended.append("late")

    stream = build({"a": say("a"), "late": late}, fan("a", "late")).stream({})
    assert next(stream) == {"a": {"log": ["a"]}}
    assert ended == []
    assert list(stream) == [{"late": None}]


def test_several_modes_are_told_apart_and_keep_their_order(run: Sync) -> None:
    def node(s: Any) -> dict[str, Any]:
        get_stream_writer()({"progress": 1})
        return {"log": ["a"]}

    shown = run.stream(build({"a": node}, chain("a")), {"log": ["i"]}, stream_mode=["values", "updates", "custom"])
    assert shown == [
        ("values", {"log": ["i"]}),
        ("custom", {"progress": 1}),
        ("updates", {"a": {"log": ["a"]}}),
        ("values", {"log": ["i", "a"]}),
    ]


def test_an_overwrite_is_shown_as_it_was_written(run: Sync) -> None:
    graph = build({"a": lambda s: {"log": Overwrite(["new"])}}, chain("a"))
    shown = run.stream(graph, {"log": ["old"]}, stream_mode=["updates", "values"])
    assert shown[1] == ("updates", {"a": {"log": Overwrite(["new"])}})
    assert shown[2] == ("values", {"log": ["new"]})


@pytest.mark.parametrize("chunk", [None, 0, "", {}, object()])
def test_any_value_can_be_streamed_and_costs_nothing_unasked(run: Sync, chunk: Any) -> None:
    graph = build({"a": lambda s, writer: writer(chunk)}, chain("a"))
    assert run.stream(graph, {}, stream_mode="custom") == [chunk]
    assert run.stream(graph, {}) == [{"a": None}]


def test_a_writer_streams_at_once() -> None:
    seen: list[str] = []

    def node(s: Any) -> None:
        get_stream_writer()("first")
        time.sleep(0.05)
        seen.append("node ends")

    stream = build({"a": node}, chain("a")).stream({}, stream_mode="custom")
    assert next(stream) == "first"
    assert seen == []
    stream.close()  # type: ignore[attr-defined]


def test_a_resumed_run_shows_the_state_it_starts_from(run: Sync) -> None:
    graph = build(words("a b"), chain("a", "b"), InMemorySaver(), interrupt_before=["b"])
    run.invoke(graph, {}, T)
    assert run.stream(graph, None, T, stream_mode="values") == [{"log": ["a"]}, {"log": ["a", "b"]}]
    assert run.stream(graph, None, T, stream_mode="updates") == []


def test_questions_are_shown_in_updates_and_values(run: Sync) -> None:
    graph = build({"a": say("a"), "q": ask("q")}, fan("a", "q"), InMemorySaver())
    shown = run.stream(graph, {}, T, stream_mode=["updates", "values"])
    (question,) = graph.get_state(T).interrupts
    assert ("updates", {"__interrupt__": (question,)}) in shown
    assert ("values", {"log": [], "__interrupt__": (question,)}) in shown
    assert shown[-1] == ("values", {"log": ["a"]})  # what the sibling wrote


def test_every_attempt_streams_but_only_the_last_updates() -> None:
    tries: list[Any] = []

    def node(s: Any, writer: Any) -> dict[str, Any]:
        tries.append(1)
        writer(len(tries))
        if len(tries) < 3:
            raise ConnectionError
        return {"log": ["a"]}

    options = {"a": {"retry_policy": RetryPolicy(initial_interval=0, jitter=False)}}
    shown = list(build({"a": node}, chain("a"), options=options).stream({}, stream_mode=["custom", "updates"]))
    assert shown == [("custom", 1), ("custom", 2), ("custom", 3), ("updates", {"a": {"log": ["a"]}})]


def test_send_tasks_each_show_their_update(run: Sync) -> None:
    graph = build({"w": lambda x: {"log": [x]}}, [], routers=[(START, lambda s: [Send("w", 0), Send("w", 1)])])
    assert sorted(chunk["w"]["log"][0] for chunk in run.stream(graph, {})) == [0, 1]


# ------------------------------------------------------------------ tasks, checkpoints, debug


def test_tasks_show_start_and_result(run: Sync) -> None:
    start, result = run.stream(build(words("a"), chain("a")), {"log": ["i"]}, stream_mode="tasks")
    assert (start["name"], start["input"]) == ("a", {"log": ["i"]})
    assert (result["id"], result["name"], result["error"], result["result"], result["interrupts"]) == (
        start["id"], "a", None, {"log": ["a"]}, [],
    )  # fmt: skip


def test_tasks_show_a_failure_before_it_is_raised() -> None:
    error = ValueError("x")

    def node(s: Any) -> None:
        raise error

    stream = build({"n": node}, chain("n")).stream({}, stream_mode="tasks")
    assert [next(stream).get("error") for _ in range(2)] == [None, error]
    with pytest.raises(ValueError, match="x"):
        next(stream)


def test_tasks_show_questions(run: Sync) -> None:
    graph = build({"q": ask("q")}, chain("q"), InMemorySaver())
    assert [q["value"] for q in run.stream(graph, {}, T, stream_mode="tasks")[-1]["interrupts"]] == ["q"]


def test_checkpoints_show_what_is_stored(run: Sync) -> None:
    graph = build(words("a b"), chain("a", "b"), InMemorySaver())
    shown = run.stream(graph, {"log": ["i"]}, T, stream_mode="checkpoints")
    assert [(c["metadata"]["source"], c["metadata"]["step"], c["next"]) for c in shown] == [
        ("input", -1, ["__start__"]), ("loop", 0, ["a"]), ("loop", 1, ["b"]), ("loop", 2, []),
    ]  # fmt: skip
    assert [c["values"]["log"] for c in shown] == [[], ["i"], ["i", "a"], ["i", "a", "b"]]
    assert [c["config"] for c in shown] == [s.config for s in reversed(run.history(graph, T))]


def test_debug_is_checkpoints_and_tasks_in_envelopes(run: Sync) -> None:
    graph = build(words("a"), chain("a"), InMemorySaver())
    shown = run.stream(graph, {}, T, stream_mode="debug")
    assert [(c["type"], c["step"]) for c in shown] == [
        ("checkpoint", -1), ("checkpoint", 0), ("task", 1), ("task_result", 1), ("checkpoint", 1),
    ]  # fmt: skip
    assert all(set(c) == {"type", "step", "timestamp", "payload"} for c in shown)


# ------------------------------------------------------------------ shapes


def test_version_two_always_has_the_same_envelope(run: Sync) -> None:
    graph = build(words("a"), chain("a"))
    assert run.stream(graph, {}, stream_mode="updates", version="v2") == [
        {"type": "updates", "ns": (), "data": {"a": {"log": ["a"]}}}
    ]
    both = run.stream(graph, {}, stream_mode=["updates", "custom"], version="v2", subgraphs=True)
    assert both == [{"type": "updates", "ns": (), "data": {"a": {"log": ["a"]}}}]


class Model(BaseModel):
    value: int = 0


@dataclass
class Data:
    value: int = 0


@pytest.mark.parametrize("schema", [Model, Data])
def test_version_two_gives_the_schemas_type_back(run: Sync, schema: Any) -> None:
    graph = build({"a": lambda s: {"value": s.value + 1}}, chain("a"), state=schema)
    assert run.invoke(graph, {"value": 1}, version="v2") == GraphOutput(schema(value=2))


def test_a_stream_mode_of_invoke_returns_the_chunks(run: Sync) -> None:
    graph = build(words("a"), chain("a"))
    assert run.invoke(graph, {}, stream_mode="updates") == [{"a": {"log": ["a"]}}]
    assert run.invoke(graph, {"value": 1}, stream_mode=["updates", "values"]) == [
        ("values", {"log": [], "value": 1}),
        ("updates", {"a": {"log": ["a"]}}),
        ("values", {"log": ["a"], "value": 1}),
    ]


@pytest.mark.parametrize("wrong", ["value", "messages", ["updates", "value"], ""])
def test_an_unknown_mode_is_refused(run: Sync, wrong: Any) -> None:
    with pytest.raises(ValueError, match="unknown stream mode"):
        run.stream(build(words("a"), chain("a")), {}, stream_mode=wrong)


def test_an_unknown_version_is_refused(run: Sync) -> None:
    with pytest.raises(ValueError, match="version"):
        run.stream(build(words("a"), chain("a")), {}, version="v3")
    with pytest.raises(ValueError, match="version"):
        run.invoke(build(words("a"), chain("a")), {}, version="v3")


def test_no_modes_show_nothing(run: Sync) -> None:
    assert run.stream(build(words("a"), chain("a")), {}, stream_mode=[]) == []


# ------------------------------------------------------------------ children


def test_a_childs_events_come_with_its_namespace_if_asked(run: Sync) -> None:
    graph = build({"child": build(words("c"), chain("c"))}, chain("child"))
    inner, outer = run.stream(graph, {}, subgraphs=True)
    assert inner[0][0].startswith("child:")
    assert (inner[1], outer) == ({"c": {"log": ["c"]}}, ((), {"child": {"log": ["c"]}}))
    assert run.stream(graph, {}) == [{"child": {"log": ["c"]}}]
    (namespace, mode, _), *_ = run.stream(graph, {}, subgraphs=True, stream_mode=["updates"])
    assert (len(namespace), mode) == (1, "updates")


def test_namespaces_grow_with_the_depth(run: Sync) -> None:
    graph = build({"out": build({"in": build(words("c"), chain("c"))}, chain("in"))}, chain("out"))
    depths = [[part.split(":")[0] for part in namespace] for namespace, _ in run.stream(graph, {}, subgraphs=True)]
    assert depths == [["out", "in"], ["out"], []]


def test_a_childs_question_is_shown_once_without_and_in_both_with_subgraphs(run: Sync) -> None:
    graph = build({"child": build({"q": ask("q")}, chain("q"))}, chain("child"), InMemorySaver())
    assert [list(chunk) for chunk in run.stream(graph, {}, T)] == [["__interrupt__"]]
    shown = run.stream(graph, {}, thread("two"), subgraphs=True)
    assert [(len(namespace), list(chunk)) for namespace, chunk in shown] == [
        (1, ["__interrupt__"]),
        (0, ["__interrupt__"]),
    ]


# ------------------------------------------------------------------ leaving early


def test_a_stream_left_early_stops_the_run_and_goes_on_later(saver: Saver) -> None:
    runs: list[Any] = []
    graph = build(words("a b c", runs), chain("a", "b", "c"), saver)
    for chunk in graph.stream({}, T):
        if "b" in chunk:
            break
    time.sleep(0.01)
    assert "c" not in runs
    assert graph.invoke(None, T)["log"] == ["a", "b", "c"]
    assert runs.count("a") == 1


def test_an_async_stream_left_early_stops_the_run_and_goes_on_later(saver: Saver) -> None:
    runs: list[Any] = []
    graph = build(words("a b c", runs), chain("a", "b", "c"), saver)

    async def main() -> None:
        stream = graph.astream({}, T)
        async for chunk in stream:
            if "b" in chunk:
                break
        await stream.aclose()  # type: ignore[attr-defined]

    asyncio.run(main())
    assert "c" not in runs
    assert graph.invoke(None, T)["log"] == ["a", "b", "c"]


def test_leaving_early_ends_what_is_running() -> None:
    ended: list[str] = []

    async def slow(s: Any) -> None:
        try:
            await asyncio.sleep(5)
        finally:
            ended.append("slow")

    graph = build({"a": say("a"), "slow": slow}, fan("a", "slow"), InMemorySaver())

    async def main() -> None:
        stream = graph.astream({}, T)
        async for _ in stream:
            break
        await stream.aclose()  # type: ignore[attr-defined]

    asyncio.run(main())
    assert ended == ["slow"]
    assert graph.get_state(T).next in (("slow",), ("a", "slow"))


def test_leaving_early_with_a_running_thread_waits_for_it() -> None:
    ended: list[str] = []

    def slow(s: Any) -> dict[str, Any]:
        time.sleep(0.05)
        ended.append("slow")
        return {"log": ["slow"]}

    graph = build({"a": say("a"), "slow": slow}, fan("a", "slow"), InMemorySaver())
    stream = graph.stream({}, T)
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    assert ended == ["slow"]
    assert graph.invoke(None, T)["log"] == ["a", "slow"]


def test_a_stream_that_is_never_read_does_nothing() -> None:
    runs: list[Any] = []
    graph = build(words("a", runs), chain("a"), InMemorySaver())
    stream = graph.stream({}, T)
    stream.close()  # type: ignore[attr-defined]
    assert (runs, sources(graph, T)) == ([], [])


# ------------------------------------------------------------------ what a node can reach


def test_the_runs_settings_can_be_reached_from_anywhere_in_a_node(run: Sync) -> None:
    def node(s: Any) -> dict[str, Any]:
        return {"log": [get_config().get("configurable", {})["thread_id"], get_runtime().context]}

    assert run.invoke(build({"a": node}, chain("a"), InMemorySaver()), {}, T, context="c")["log"] == ["t", "c"]


@pytest.mark.parametrize("reach", [get_config, get_runtime, get_stream_writer])
def test_outside_of_a_node_there_is_nothing_to_reach(reach: Any) -> None:
    with pytest.raises(RuntimeError, match="outside"):
        reach()


def test_execution_info_names_the_place(run: Sync) -> None:
    infos: list[Any] = []

    def node(s: Any, runtime: Runtime[Any]) -> None:
        infos.append(runtime.execution_info)

    graph = build({"a": node}, chain("a"), InMemorySaver())
    run.invoke(graph, {}, T)
    (info,) = infos
    before = run.history(graph, T)[1]
    assert (info.thread_id, info.checkpoint_ns, info.node_attempt) == ("t", "", 1)
    assert info.checkpoint_id == before.config["configurable"]["checkpoint_id"]
    assert info.task_id == before.tasks[0].id
