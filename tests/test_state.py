"""State keys: reducers and plain keys, what nodes read and may return, schemas of every kind, special channels."""

from __future__ import annotations

import enum
import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple, NotRequired, Required, TypedDict

import msgspec
import pytest
from conftest import Log, Sync, build, chain, fan, odd, say, thread
from pydantic import BaseModel, Field, ValidationError

from minigraph import END, START, Command, Overwrite, Send, StateGraph, add_messages
from minigraph.channels import AnyValue, EphemeralValue, IsLastStep, RemainingSteps, Topic, UntrackedValue
from minigraph.checkpoint import InMemorySaver
from minigraph.errors import GraphDefinitionError, InvalidUpdateError
from minigraph.messages import REMOVE_ALL_MESSAGES, MessagesState


def once(node: Any, given: Any, state: Any = Log) -> Any:
    """The output of a graph with one node."""
    return build({"n": node}, chain("n"), state=state).invoke(given)


def keyed(**hints: Any) -> Any:
    """A state with these keys, none of them required."""
    return TypedDict("State", hints, total=False)  # type: ignore[operator]


# ------------------------------------------------------------------ reading and writing keys


def test_a_plain_key_is_replaced_and_a_reducer_key_starts_empty(run: Sync) -> None:
    assert run.invoke(build({"n": lambda s: {"value": 2}}, chain("n")), {"value": 1}) == {"log": [], "value": 2}


def test_input_and_updates_both_go_through_the_reducer(run: Sync) -> None:
    assert run.invoke(build({"n": say("n")}, chain("n")), {"log": ["given"]})["log"] == ["given", "n"]


def test_a_plain_key_that_nobody_wrote_is_absent() -> None:
    seen: list[Any] = []
    assert once(lambda s: seen.append(dict(s)), {"log": ["x"]}) == {"log": ["x"]}
    assert seen == [{"log": ["x"]}]


@pytest.mark.parametrize("falsy", [None, 0, False, "", [], {}, 0.0])
def test_a_falsy_value_is_a_write(run: Sync, falsy: Any) -> None:
    out = run.invoke(build({"n": lambda s: {"value": falsy}}, chain("n")), {"value": "before"})
    assert out["value"] == falsy
    assert type(out["value"]) is type(falsy)


@pytest.mark.parametrize("nothing", [None, {}, Command()])
def test_a_node_that_writes_nothing_still_leads_on(run: Sync, nothing: Any) -> None:
    graph = build({"n": lambda s: nothing, "after": say("after")}, chain("n", "after"))
    assert run.invoke(graph, {"value": 1}) == {"log": ["after"], "value": 1}


@pytest.mark.parametrize(
    "wrong", [[{"value": 1}], ("value", 1), "value", 3, [], {1, 2}, True, 1.5, object, ValueError()]
)
def test_a_return_value_that_is_no_update_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidUpdateError, match="'n' returned") as caught:
        once(lambda s: wrong, {"value": 0})
    assert caught.value.node == "n"


@pytest.mark.parametrize("wrong", ["text", 3, ["value"], [("value", 1)], True])
def test_input_that_is_no_mapping_of_keys_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidUpdateError, match="input"):
        once(say("n"), wrong)


def test_a_list_of_commands_and_dicts_is_applied_in_order() -> None:
    parts = [
        Command(update={"log": [1]}),
        {"log": [2]},
        Command(update=[("log", [3]), ("log", [4])]),
        Command(update={"value": 5}),
    ]
    assert once(lambda s: parts, {"log": [0]}) == {"log": [0, 1, 2, 3, 4], "value": 5}


def test_a_command_update_takes_pairs_objects_and_none() -> None:
    @dataclass
    class Edit:
        value: int

    assert once(lambda s: Command(update=Edit(7)), {})["value"] == 7
    assert once(lambda s: Command(update=[("value", 8)]), {})["value"] == 8
    assert once(lambda s: Command(update=None), {"value": 9})["value"] == 9
    with pytest.raises(InvalidUpdateError, match="str"):
        once(lambda s: Command(update="value"), {})


def test_returning_the_received_state_doubles_a_reducer_key() -> None:
    assert once(lambda s: s, {"log": [1], "value": 2}) == {"log": [1, 1], "value": 2}


@odd("conflicting-writes")
def test_two_writes_of_a_plain_key_in_one_step_conflict_even_when_equal(run: Sync) -> None:
    nodes = {"a": lambda s: {"value": 1}, "b": lambda s: {"value": 1}}
    with pytest.raises(InvalidUpdateError, match=r"'value' was written 2 times.*'a'.*'b'") as caught:
        run.invoke(build(nodes, fan("a", "b")), {})
    assert caught.value.key == "value"


def test_two_writes_of_a_plain_key_by_one_task_conflict_too() -> None:
    with pytest.raises(InvalidUpdateError, match="'value' was written 2 times"):
        once(lambda s: [Command(update={"value": 1}), {"value": 2}], {})


# ------------------------------------------------------------------ Overwrite


@pytest.mark.parametrize(
    "wrapped", [Overwrite(["z"]), {"__overwrite__": ["z"]}, {"type": "__overwrite__", "value": ["z"]}]
)
def test_overwrite_replaces_in_each_of_its_forms(run: Sync, wrapped: Any) -> None:
    assert run.invoke(build({"n": lambda s: {"log": wrapped}}, chain("n")), {"log": ["i"]})["log"] == ["z"]


def test_overwrite_beats_the_other_writes_of_its_step_whatever_the_order(run: Sync) -> None:
    replace = lambda s: {"log": Overwrite(["new"])}  # noqa: E731
    for name in ("a", "m", "z"):
        nodes = {other: say(other) for other in ("b", "y")} | {name: replace}
        assert run.invoke(build(nodes, fan(*nodes)), {"log": ["old"]})["log"] == ["new"]


def test_two_overwrites_in_one_step_conflict_and_name_both_nodes() -> None:
    nodes = {name: lambda s: {"log": Overwrite([])} for name in ("a", "b")}
    with pytest.raises(InvalidUpdateError, match=r"'log'.*'a', 'b'"):
        build(nodes, fan("a", "b")).invoke({})


def test_overwrite_works_in_the_input_and_on_a_plain_key(run: Sync) -> None:
    graph = build({"n": say("n")}, chain("n"), InMemorySaver())
    run.invoke(graph, {"log": ["old"], "value": Overwrite(1)}, thread())
    assert run.invoke(graph, {"log": Overwrite(["new"])}, thread()) == {"log": ["new", "n"], "value": 1}


@pytest.mark.parametrize("value", [None, [], 0])
def test_overwrite_with_a_falsy_value(value: Any) -> None:
    assert once(lambda s: {"log": Overwrite(value)}, {"log": ["old"]})["log"] == value


# ------------------------------------------------------------------ reducers


class Sum:
    """A reducer that is an object."""

    def __call__(self, old: int, new: int) -> int:
        return old + new


def with_default_argument(old: list[int], new: list[int], *, twice: bool = False) -> list[int]:
    return old + new


@pytest.mark.parametrize(
    ("hint", "writes", "expected"),
    [
        (Annotated[list, operator.add], [[1], [2]], [1, 2]),
        (Annotated[list[int], operator.add], [[1], [2]], [1, 2]),
        (Annotated[Sequence[int], operator.add], [[1], [2]], [1, 2]),
        (Annotated[set, operator.or_], [{1}, {1, 2}], {1, 2}),
        (Annotated[dict, operator.or_], [{"a": 1}, {"b": 2}], {"a": 1, "b": 2}),
        (Annotated[int, operator.add], [3, 4], 7),
        (Annotated[str, operator.add], ["x", "y"], "xy"),
        (Annotated[int, max], [3, 1], 3),
        (Annotated[int, Sum()], [3, 1], 4),
        (Annotated[list, with_default_argument], [[1], [2]], [1, 2]),
        (Annotated[int, "a remark", operator.add], [1, 2], 3),
        (Annotated[int | None, operator.add], [5, 2], 7),
        (NotRequired[Annotated[int, operator.add]], [5, 2], 7),
        (Required[Annotated[int, operator.add]], [5, 2], 7),
        (Annotated[NotRequired[int], operator.add], [5, 2], 7),
    ],
)
def test_reducers_of_many_shapes(hint: Any, writes: list[Any], expected: Any) -> None:
    state = keyed(k=hint)
    nodes = {name: lambda s, write=write: {"k": write} for name, write in zip("ab", writes, strict=True)}
    assert build(nodes, chain("a", "b"), state=state).invoke({}) == {"k": expected}


@pytest.mark.parametrize("wrong", [lambda a: a, lambda a, b, c: a, lambda *a: a, lambda a, b, c=0: a])
def test_a_reducer_of_the_wrong_shape_is_refused_at_once(wrong: Any) -> None:
    state = keyed(k=Annotated[int, wrong])
    with pytest.raises(GraphDefinitionError, match=r"'k'.*two positional"):
        StateGraph(state)


def test_metadata_that_is_not_last_or_not_callable_is_no_reducer() -> None:
    state = keyed(k=Annotated[int, operator.add, "a remark"])
    assert once(lambda s: {"k": 2}, {"k": 1}, state) == {"k": 2}


def test_the_first_write_of_a_key_without_an_empty_value_skips_the_reducer() -> None:
    calls: list[Any] = []

    def note(old: Any, new: Any) -> Any:
        calls.append((old, new))
        return new

    state = keyed(k=Annotated[int | None, note], other=int)
    graph = build({"a": lambda s: {"k": 1}, "b": lambda s: {"k": 2}}, chain("a", "b"), state=state)
    assert graph.invoke({}) == {"k": 2}
    assert calls == [(1, 2)]


def test_a_reducer_that_edits_in_place_changes_neither_caller_nor_history() -> None:
    def extend(old: list[Any], new: list[Any]) -> list[Any]:
        old.extend(new)
        return old

    state = keyed(k=Annotated[list, extend])
    nodes = {name: lambda s, name=name: {"k": [name]} for name in "ab"}
    graph = build(nodes, chain("a", "b"), InMemorySaver(), state=state)
    given = {"k": ["given"]}
    assert graph.invoke(given, thread())["k"] == ["given", "a", "b"]
    assert given == {"k": ["given"]}
    shots = [shot.values["k"] for shot in graph.get_state_history(thread())]
    assert shots == [["given", "a", "b"], ["given", "a"], ["given"], []]


def test_a_reducer_that_keeps_the_written_object_does_not_tie_steps_together() -> None:
    kept: list[Any] = ["x"]
    state = keyed(k=Annotated[list | None, lambda old, new: new])

    def second(s: Any) -> None:
        kept.append("later")

    graph = build({"a": lambda s: {"k": kept}, "b": second}, chain("a", "b"), InMemorySaver(), state=state)
    graph.invoke({}, thread())
    assert [shot.values.get("k") for shot in graph.get_state_history(thread())][1] == ["x"]


def test_a_reducer_that_raises_names_key_and_node(run: Sync) -> None:
    def refuse(old: Any, new: Any) -> Any:
        raise ZeroDivisionError("no")

    state = keyed(k=Annotated[int, refuse])
    with pytest.raises(ZeroDivisionError) as caught:
        run.invoke(build({"n": lambda s: {"k": 1}}, chain("n"), state=state), {})
    assert any("'k'" in note and "'n'" in note for note in caught.value.__notes__)


def test_keys_declared_twice_must_agree() -> None:
    plain = keyed(k=list)
    added = keyed(k=Annotated[list, operator.add])
    other = keyed(k=Annotated[list, lambda a, b: b])
    assert StateGraph(added, input_schema=plain, output_schema=added)  # a plain repeat keeps the reducer
    for first, second in (
        (plain, added),
        (added, other),
        (other, keyed(k=Annotated[list, lambda a, b: b])),
    ):
        with pytest.raises(GraphDefinitionError, match="'k'"):
            StateGraph(first, input_schema=second)


# ------------------------------------------------------------------ schemas


@dataclass
class Data:
    n: int
    text: str = "d"
    tags: Annotated[list[str], operator.add] = field(default_factory=list)


class Shape(msgspec.Struct):
    n: int
    text: str = "d"
    tags: Annotated[list[str], operator.add] = []


class Model(BaseModel):
    n: int
    text: str = "d"
    tags: Annotated[list[str], operator.add] = Field(default_factory=list)


class Row(NamedTuple):
    n: int
    text: str = "d"
    tags: Annotated[list[str], operator.add] = []  # noqa: RUF012  # never mutated


@pytest.mark.parametrize("schema", [Data, Shape, Model, Row])
def test_an_object_schema_gives_nodes_instances_and_the_caller_a_dict(run: Sync, schema: Any) -> None:
    seen: list[Any] = []

    def node(s: Any) -> dict[str, Any]:
        seen.append(s)
        return {"n": s.n + 1, "tags": [s.text]}

    out = run.invoke(build({"a": node, "b": node}, chain("a", "b"), state=schema), {"n": 1})
    assert out["n"] == 3
    assert out["tags"] == ["d", "d"]
    assert [type(s) for s in seen] == [schema, schema]
    assert [s.n for s in seen] == [1, 2]


@pytest.mark.parametrize("schema", [Data, Shape, Model, Row])
def test_an_instance_is_input_too_and_only_writes_its_fields(run: Sync, schema: Any) -> None:
    assert run.invoke(build({"a": lambda s: {"tags": ["x"]}}, chain("a"), state=schema), schema(n=4))["n"] == 4


def test_a_model_coerces_what_a_node_reads_and_refuses_what_does_not_fit(run: Sync) -> None:
    graph = build({"a": lambda s: {"n": s.n + 1}}, chain("a"), state=Model)
    assert run.invoke(graph, {"n": "41"})["n"] == 42
    with pytest.raises(ValidationError):
        run.invoke(graph, {"n": "many"})


def test_an_object_without_a_required_key_fails_in_its_own_node() -> None:
    with pytest.raises(TypeError, match="n") as caught:
        build({"a": lambda s: None}, chain("a"), state=Data).invoke({"text": "x"})
    assert any("'a'" in note for note in caught.value.__notes__)


class Colour(enum.Enum):
    RED = 1


@pytest.mark.parametrize(
    ("schema", "given", "node", "expected"),
    [
        (int, 1, lambda s: s + 1, 3),
        (str, "x", lambda s: s + "y", "xyy"),
        (dict, {"a": 1}, lambda s: {"b": len(s)}, {"b": 1}),
        (Annotated[list, operator.add], [1], lambda s: [len(s)], [1, 1, 2]),
        (Annotated[int, operator.add], 1, lambda s: s, 4),
        (Colour, Colour.RED, lambda s: s, Colour.RED),
    ],
)
def test_a_schema_of_one_bare_value(run: Sync, schema: Any, given: Any, node: Any, expected: Any) -> None:
    graph = build({"a": node, "b": node}, chain("a", "b"), state=schema)
    assert run.invoke(graph, given) == expected


def test_a_bare_state_is_stored_updated_and_read(run: Sync) -> None:
    graph = build({"a": lambda s: s + 1}, chain("a"), InMemorySaver(), state=int)
    assert run.invoke(graph, 1, thread()) == 2
    assert run.state(graph, thread()).values == 2
    run.update(graph, thread(), 10, as_node=START)
    assert run.invoke(graph, None, thread()) == 11
    assert run.invoke(graph, 0, thread()) == 1


def test_input_and_output_schemas_narrow_what_goes_in_and_out() -> None:
    class Question(TypedDict):
        q: str

    class Answer(TypedDict):
        a: str

    class Whole(Question, Answer):
        note: int

    seen: list[Any] = []

    def node(s: Any) -> dict[str, Any]:
        seen.append(dict(s))
        return {"a": "A", "note": 1}

    builder = StateGraph(Whole, input_schema=Question, output_schema=Answer).add_node("n", node).add_edge(START, "n")
    graph = builder.compile(InMemorySaver())
    assert graph.invoke({"q": "x"}, thread()) == {"a": "A"}
    assert seen == [{"q": "x"}]
    assert graph.get_state(thread()).values == {"q": "x", "a": "A", "note": 1}


class Private(TypedDict):
    hidden: int


def test_a_key_of_a_nodes_input_annotation_is_private_but_stored() -> None:
    def reader(s: Private) -> dict[str, Any]:
        return {"value": dict(s)}

    graph = build({"w": lambda s: {"hidden": 41}, "r": reader}, chain("w", "r"), InMemorySaver())
    assert graph.invoke({}, thread()) == {"log": [], "value": {"hidden": 41}}
    assert graph.get_state(thread()).values == {"log": [], "value": {"hidden": 41}, "hidden": 41}
    assert graph.invoke({}, thread(), output_keys=["hidden"]) == {"hidden": 41}


def test_explicit_input_schema_beats_the_annotation() -> None:
    class Small(TypedDict):
        value: int

    graph = build({"n": lambda s: {"log": [sorted(s)]}}, chain("n"), options={"n": {"input_schema": Small}})
    assert graph.invoke({"value": 1, "log": []})["log"] == [["value"]]


def test_only_the_first_parameter_says_what_a_node_reads() -> None:
    def node(state, config: Data) -> Log:  # type: ignore[no-untyped-def]
        return {"log": [sorted(state)]}

    assert once(node, {"value": 1})["log"] == [["log", "value"]]


def test_a_state_class_local_to_a_function_keeps_its_reducers_with_postponed_annotations() -> None:
    class Local(TypedDict):
        items: Annotated[list[Any], operator.add]

    def node(state: Local) -> Local:
        return {"items": ["n"]}

    assert once(node, {"items": ["x"]}, Local)["items"] == ["x", "n"]


@pytest.mark.parametrize("key", ["__interrupt__", "__root__x__", "__start__"])
def test_reserved_keys_are_refused(key: str) -> None:
    with pytest.raises(GraphDefinitionError, match="reserved"):
        StateGraph(TypedDict("state", {key: int}))  # type: ignore[operator]  # the key is known at run time


def test_a_node_may_have_the_name_of_a_state_key() -> None:
    assert build({"log": say("x")}, chain("log")).invoke({})["log"] == ["x"]


# ------------------------------------------------------------------ special channels


def show(key: str) -> Any:
    return lambda s: {"log": [s.get(key)]}


def test_an_ephemeral_key_lives_for_one_step() -> None:
    class State(TypedDict, total=False):
        e: Annotated[str, EphemeralValue]
        log: Annotated[list[Any], operator.add]

    graph = build({"a": lambda s: {"e": "x"}, "b": show("e"), "c": show("e")}, chain("a", "b", "c"), state=State)
    assert graph.invoke({}) == {"log": ["x", None]}


@odd("conflicting-writes")
def test_guarded_and_unguarded_ephemeral_keys() -> None:
    for channel, expected in (
        (EphemeralValue(str, guard=False), "b"),
        (AnyValue(str), "b"),
        (EphemeralValue(str), None),
    ):
        state = keyed(e=Annotated[str, channel])
        graph = build({n: lambda s, n=n: {"e": n} for n in "ab"}, fan("a", "b"), state=state)
        if expected is None:
            with pytest.raises(InvalidUpdateError, match="'e'"):
                graph.invoke({})
        else:
            assert graph.invoke({}) == {"e": expected}


def test_an_untracked_key_lives_with_the_run_and_is_never_stored() -> None:
    class State(TypedDict, total=False):
        u: Annotated[Any, UntrackedValue]
        log: Annotated[list[Any], operator.add]

    opened = object()  # could not be stored
    nodes = {
        "a": lambda s: {"u": opened},
        "b": lambda s: {"log": [s["u"] is opened]},
        "c": lambda s: {"log": ["u" in s]},
    }
    graph = build(nodes, chain("a", "b", "c"), InMemorySaver(), state=State, interrupt_before=["c"])
    assert graph.invoke({}, thread())["u"] is opened
    assert graph.get_state(thread()).values == {"log": [True]}
    assert graph.invoke(None, thread()) == {"log": [True, False]}


def test_an_untracked_key_of_a_paused_step_is_not_stored_either() -> None:
    from minigraph import interrupt

    class State(TypedDict, total=False):
        u: Annotated[Any, UntrackedValue]
        log: Annotated[list[Any], operator.add]

    graph = build(
        {"a": lambda s: {"u": object(), "log": ["a"]}, "q": lambda s: {"log": [interrupt("q")]}},
        fan("a", "q"),
        InMemorySaver(),
        state=State,
    )
    graph.invoke({}, thread())
    assert graph.invoke(Command(resume="R"), thread())["log"] == ["a", "R"]


def test_topics_flatten_and_last_or_accumulate() -> None:
    class State(TypedDict, total=False):
        once: Annotated[list[int], Topic(int)]
        ever: Annotated[list[int], Topic(int, accumulate=True)]
        log: Annotated[list[Any], operator.add]

    def read(s: Any) -> dict[str, Any]:
        return {"log": [(s.get("once"), s.get("ever"))]}

    nodes = {"a": lambda s: {"once": 1, "ever": [1, 2]}, "b": lambda s: {"once": [2], "ever": 3}, "c": read, "d": read}
    graph = build(nodes, [*fan("a", "b"), ("a", "c"), ("c", "d")], state=State)
    assert graph.invoke({})["log"] == [([1, 2], [1, 2, 3]), (None, [1, 2, 3])]


def test_remaining_steps_count_down_to_the_last_step() -> None:
    class State(TypedDict, total=False):
        left: RemainingSteps
        last: IsLastStep
        log: Annotated[list[Any], operator.add]

    read = lambda s: {"log": [(s["left"], s["last"])]}  # noqa: E731
    graph = build(dict.fromkeys("abc", read), chain(*"abc"), state=State)
    assert graph.invoke({}, {"recursion_limit": 3})["log"] == [(2, False), (1, False), (0, True)]


def test_a_managed_value_belongs_in_the_state_and_is_not_written() -> None:
    class State(TypedDict, total=False):
        left: RemainingSteps
        value: int

    with pytest.raises(GraphDefinitionError, match="left"):
        StateGraph(Log, input_schema=State)
    assert once(lambda s: s, {"value": 1}, State) == {"value": 1}  # the received state comes back: nothing to write


# ------------------------------------------------------------------ messages


def user(text: str, key: str) -> dict[str, Any]:
    return {"role": "user", "content": text, "id": key}


def test_messages_append_replace_and_get_ids() -> None:
    merged = add_messages([user("a", "1"), user("b", "2")], [user("A", "1"), ("assistant", "c"), "d"])
    assert [(m["role"], m["content"]) for m in merged] == [
        ("user", "A"),
        ("user", "b"),
        ("assistant", "c"),
        ("user", "d"),
    ]
    assert len({m["id"] for m in merged}) == 4


def test_the_same_id_twice_in_one_write_keeps_the_last() -> None:
    assert add_messages([], [user("x", "1"), user("y", "1")]) == [user("y", "1")]


def test_messages_are_removed_one_by_one_or_all_at_once() -> None:
    def drop(key: str) -> dict[str, Any]:
        return {"role": "remove", "id": key}

    two = [user("a", "1"), user("b", "2")]
    assert add_messages(two, drop("1")) == [user("b", "2")]
    assert add_messages(two, [user("x", "9"), drop(REMOVE_ALL_MESSAGES), user("c", "3")]) == [user("c", "3")]
    assert add_messages(two, [drop("2"), user("again", "2")]) == [user("a", "1"), user("again", "2")]
    with pytest.raises(InvalidUpdateError, match="'7'"):
        add_messages(two, drop("7"))


@pytest.mark.parametrize("wrong", [None, 3, {"content": "x"}, [None], ("a", "b", "c"), {"role": "remove"}])
def test_what_is_no_message_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidUpdateError, match="add_messages"):
        add_messages([], wrong)


def test_messages_state_in_a_graph(run: Sync) -> None:
    graph = build(
        {"n": lambda s: {"messages": ("assistant", s["messages"][-1]["content"] + "!")}},
        chain("n"),
        state=MessagesState,
    )
    out = run.invoke(graph, {"messages": "hello"})
    assert [(m["role"], m["content"]) for m in out["messages"]] == [("user", "hello"), ("assistant", "hello!")]


# ------------------------------------------------------------------ output


def test_output_keys_pick_and_unknown_ones_are_refused() -> None:
    graph = build({"n": say("n")}, chain("n"))
    assert graph.invoke({"value": 1}, output_keys="value") == 1
    assert graph.invoke({"value": 1}, output_keys=["log"]) == {"log": ["n"]}
    with pytest.raises(ValueError, match=r"'valeu'.*'value'"):
        graph.invoke({}, output_keys="valeu")


def test_empty_input_is_input() -> None:
    assert build({"n": lambda s: None}, chain("n")).invoke({}) == {"log": []}
    assert build({"n": lambda s: None}, chain("n"), state=keyed(k=int)).invoke({}) == {}


def test_a_graph_without_nodes_between_start_and_end_returns_its_input() -> None:
    assert build({}, [(START, END)]).invoke({"value": 1, "log": ["x"]}) == {"log": ["x"], "value": 1}


def test_send_attributes_are_no_state_keys() -> None:
    class State(TypedDict, total=False):
        node: str
        arg: int
        log: Annotated[list[Any], operator.add]

    out = build({"a": lambda s: Send("b", 3), "b": lambda x: {"log": [x]}}, chain("a"), state=State).invoke({})
    assert out == {"log": [3]}


def test_a_schema_of_one_value_does_not_stand_beside_keys() -> None:
    refused = r"<class 'int'> has no fields, and the state has keys"
    with pytest.raises(GraphDefinitionError, match=f"the input of node 'n': {refused}"):
        StateGraph(Log).add_node("n", lambda number: {"log": [number]}, input_schema=int)
    with pytest.raises(GraphDefinitionError, match=f"the input schema: {refused}"):
        StateGraph(Log, input_schema=int)
    with pytest.raises(GraphDefinitionError, match=f"the output schema: {refused}"):
        StateGraph(Log, output_schema=int)
