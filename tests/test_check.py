"""Each finding of check(): a graph that has it, and the nearest right graph, which has none."""

from __future__ import annotations

import asyncio
import functools
import operator
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pydantic
import pytest
from conftest import describe

import minigraph
from minigraph import (
    END,
    START,
    Command,
    CompiledGraph,
    Finding,
    GraphWarning,
    Overwrite,
    Send,
    StateGraph,
    check,
    interrupt,
)
from minigraph.check import FINDINGS
from minigraph.checkpoint import InMemorySaver
from minigraph.errors import GraphDefinitionError, UnknownTargetError


class State(TypedDict):
    log: Annotated[list[Any], operator.add]
    value: Any
    other: Any


class Given(TypedDict, total=False):
    log: list[Any]


graph = functools.partial(describe, state=State)


def found(builder: StateGraph[Any, Any, Any, Any] | CompiledGraph) -> list[tuple[str, str]]:
    return [(finding.name, finding.place) for finding in check(builder)]


def say(state: Any) -> dict[str, Any]:
    return {"log": ["said"]}


def put(state: State) -> dict[str, Any]:
    return {"value": 1}


def put_too(state: State) -> dict[str, Any]:
    return {"value": 2, "log": ["too"]}


# ------------------------------------------------------------------------ keys


def reads_other(state: State) -> dict[str, Any]:
    return {"log": [state["other"]]}


def gets_other(state: State) -> dict[str, Any]:
    return {"log": [state.get("other")]}


def writes_other(state: State) -> dict[str, Any]:
    return {"other": 1}


async def writes_other_later(state: State) -> Command[Any]:
    return Command(update={"other": 1})


def writes_something(state: State) -> dict[str, Any]:
    return dict(state.items())


@pytest.mark.parametrize("reader", [reads_other, gets_other])
def test_a_key_that_nothing_writes(reader: Callable[..., Any]) -> None:
    edges = [(START, "a"), ("a", "b")]
    assert found(graph({"a": say, "b": reader}, edges, input_schema=Given)) == [("unwritten-key", "other")]
    for writer in (writes_other, writes_other_later, writes_something):
        assert found(graph({"a": writer, "b": reader}, edges, input_schema=Given)) == []
    assert found(graph({"a": say, "b": reader}, edges)) == []  # the input has every key


def test_a_router_reads_too() -> None:
    def route(state: State) -> str:
        return "a" if state["other"] else END

    [finding] = check(graph({"a": say}, [(START, "a")], [("a", route)], input_schema=Given))
    assert (finding.name, finding.place) == ("unwritten-key", "other")
    assert "router 'route' of 'a'" in finding.message


def test_a_misspelt_key_is_read_in_vain() -> None:
    def reads(state: State) -> dict[str, Any]:
        return {"log": [state["valeu"]]}  # type: ignore[typeddict-item]  # the mistake that is looked for

    def looks(state: Any) -> dict[str, Any]:
        if "valeu" not in state:
            return {}
        return {"log": [state["valeu"]]}

    def tries(state: Any) -> dict[str, Any]:
        try:
            return {"log": [state["valeu"]]}
        except KeyError:
            return {}

    [finding] = check(graph({"a": reads}, [(START, "a")]))
    assert (finding.name, finding.place) == ("unwritten-key", "valeu")
    assert "did you mean 'value'?" in finding.message
    for right in (looks, tries, lambda state: {"log": [state.get("valeu")]}):
        assert found(graph({"a": right}, [(START, "a")])) == []


def test_what_a_send_carries_is_no_state() -> None:
    def each(item: Any) -> dict[str, Any]:
        return {"log": [item["city"]]}

    def hand_out(state: State) -> list[Send]:
        return [Send("each", {"city": city}) for city in state["value"]]

    assert found(graph({"each": each}, [], [(START, hand_out)])) == []
    assert found(graph({"each": each}, [(START, "each")])) == [("unwritten-key", "city")]


@dataclass
class AsDataclass:
    log: Annotated[list[Any], operator.add]
    needed: int
    spare: int = 0


class AsStruct(msgspec.Struct):
    needed: int
    log: Annotated[list[Any], operator.add] = msgspec.field(default_factory=list)
    spare: int = 0


class AsModel(pydantic.BaseModel):
    needed: int
    log: Annotated[list[Any], operator.add] = pydantic.Field(default_factory=list)
    spare: int = 0


@pytest.mark.parametrize("schema", [AsDataclass, AsStruct, AsModel])
def test_class_schemas_are_read_by_attribute_and_may_have_defaults(schema: Any) -> None:
    def needs(state: Any) -> dict[str, Any]:
        return {"log": [state.needed]}

    def spares(state: Any) -> dict[str, Any]:
        return {"log": [state.spare]}

    def made(nodes: dict[str, Any]) -> StateGraph[Any, Any, Any, Any]:
        edges = list(zip((START, *nodes), nodes, strict=False))
        return graph(nodes, edges, state=schema, input_schema=Given)

    assert found(made({"a": needs})) == [("unwritten-key", "needed")]
    assert found(made({"a": spares})) == []
    assert found(made({"a": lambda state: {"needed": 1}, "b": needs})) == []
    assert found(made({"a": lambda state: schema(needed=1, log=[]), "b": needs})) == []


def test_an_undeclared_key() -> None:
    def writes(state: State) -> dict[str, Any]:
        update: dict[str, Any] = {"log": []}
        if state.get("value"):
            update["vlaue"] = 1
        return update

    [finding] = check(graph({"a": writes}, [(START, "a")]))
    assert (finding.name, finding.place) == ("undeclared-key", "a")
    assert "'vlaue'" in finding.message
    assert "did you mean 'value'?" in finding.message

    def command(state: State) -> Command[Any]:
        return Command(update={"vlaue": 1})

    def wide(state: State) -> dict[str, Any]:
        return {**say(state), "vlaue": 1}

    class Update(TypedDict, total=False):
        vlaue: int

    for wrong in (command, wide, lambda s: {"vlaue": 1}, lambda s: Update(vlaue=1)):
        assert found(graph({"a": wrong}, [(START, "a")])) == [("undeclared-key", "a")]


def test_keys_that_may_be_right_are_not_undeclared() -> None:
    def factory(kind: str) -> Callable[[Any], dict[str, Any]]:
        def node(state: Any) -> dict[str, Any]:
            if kind == "elsewhere":
                return {"only_there": 1}
            return {"value": 1}

        return node

    def reassigned(state: State) -> dict[str, Any]:
        result: dict[str, Any] = {"scratch": 1}
        result = {"value": result["scratch"]}
        return result

    def dynamic(state: State) -> dict[str, Any]:
        return {state["value"]: 1, **state}

    def inner(state: State) -> dict[str, Any]:
        def unused() -> dict[str, Any]:
            return {"scratch": 1}

        return {"value": unused()}

    def up(state: State) -> Command[Any]:
        return Command(graph=Command.PARENT, update={"of_the_parent": 1})

    for right in (factory("here"), reassigned, dynamic, inner, up):
        assert found(graph({"a": right}, [(START, "a")])) == []
    assert found(graph({"a": lambda n: {"anything": n}}, [(START, "a")], state=dict)) == []


# -------------------------------------------------------------------- one step


def test_two_nodes_of_one_step_and_a_plain_key() -> None:
    side = [(START, "a"), (START, "b")]
    assert found(graph({"a": put, "b": put_too}, side)) == [("conflicting-writes", "value")]
    assert found(graph({"a": put, "b": put_too}, [(START, "a"), ("a", "b")])) == []
    assert found(graph({"a": say, "b": say}, side)) == []  # a reducer takes both
    later = [(START, "x"), (START, "y"), ("x", "a"), ("y", "b")]
    assert found(graph({"x": say, "y": say, "a": put, "b": put_too}, later)) == [("conflicting-writes", "value")]
    uneven = [(START, "x"), (START, "b"), ("x", "a")]
    assert found(graph({"x": say, "a": put, "b": put_too}, uneven)) == []


def test_nodes_that_may_keep_off_a_key_do_not_conflict() -> None:
    def sometimes(state: State) -> dict[str, Any]:
        if state.get("other"):
            return {"value": 1}
        return {}

    def replaces(state: State) -> dict[str, Any]:
        return {"value": Overwrite(1)}

    def unclear(state: State) -> Any:
        return state["value"]

    for right in (sometimes, replaces, unclear):
        assert found(graph({"a": put, "b": right}, [(START, "a"), (START, "b")])) == []
    deferred = graph({"a": put, "b": put_too}, [(START, "a"), (START, "b")], options={"b": {"defer": True}})
    assert found(deferred) == []


def test_alternatives_of_a_router_do_not_conflict_but_a_list_of_targets_does() -> None:
    def one(state: State) -> str:
        return "a" if state["value"] else "b"

    def both(state: State) -> list[str]:
        return ["a", "b"]

    nodes = {"a": put, "b": put_too}
    assert found(graph(nodes, [], [(START, one)])) == []
    assert found(graph(nodes, [], [(START, both)])) == [("conflicting-writes", "value")]


def test_several_sends_to_a_node_that_writes_a_plain_key() -> None:
    def each(state: State) -> list[Send]:
        return [Send("a", item) for item in state["value"]]

    def twice(state: State) -> list[Send]:
        return [Send("a", 1), Send("a", 2)]

    def once(state: State) -> list[Send]:
        return [Send("a", 1)]

    def chosen(state: State) -> list[Send]:
        return [Send("a", item) for item in state["value"] if item == state["other"]]

    def gone(state: State) -> Command[Any]:
        return Command(goto=[Send("a", item) for item in state["value"]])

    for router in (each, twice):
        assert found(graph({"a": put}, [], [(START, router)])) == [("conflicting-writes", "value")]
    assert found(graph({"a": put, "g": gone}, [(START, "g")])) == [("conflicting-writes", "value")]
    for router in (once, chosen):
        assert found(graph({"a": put}, [], [(START, router)])) == []
    assert found(graph({"a": say}, [], [(START, each)])) == []


def test_child_graphs_side_by_side() -> None:
    def child(node: Any) -> CompiledGraph:
        return graph({"n": node}, [(START, "n")]).compile()

    side = [(START, "a"), (START, "b")]
    assert found(graph({"a": child(put), "b": child(put)}, side)) == [("conflicting-writes", "value")]
    assert found(graph({"a": child(put), "b": child(say)}, side)) == []


# --------------------------------------------------------------------- targets


def test_declared_targets_that_name_no_node_are_errors_of_compile() -> None:
    def hinted(state: State) -> Literal["a", "nowhere"]:
        return "a"

    def commands(state: State) -> Command[Literal["nowhere"]]:
        return Command(goto="nowhere")

    def either(state: State) -> Command[Literal["nowhere"]] | None:
        return None

    wrong = [
        graph({"a": say}, [(START, "a")], [("a", hinted)]),
        graph({"a": say}, [(START, "a")], [("a", lambda s: 1, {1: "nowhere"})]),
        graph({"a": say}, [(START, "a")], [("a", lambda s: END, ["nowhere"])]),
        graph({"a": say}, [(START, "a")], options={"a": {"destinations": ["nowhere"]}}),
        graph({"a": commands}, [(START, "a")]),
        graph({"a": either}, [(START, "a")]),
    ]
    for builder in wrong:
        for call in (builder.compile, functools.partial(check, builder)):
            with pytest.raises(GraphDefinitionError, match="there is no node 'nowhere'"):
                call()


TARGET = "nowhere"


def test_a_spelled_target_that_names_no_node() -> None:
    def told(state: State) -> str:
        return "nowhere" if state["value"] else END

    def sent(state: State) -> list[Send]:
        return [Send("nowhere", 1)]

    for wrong in (told, sent, lambda s: TARGET, lambda s: [END, "nowhere"]):
        [finding] = check(graph({"a": say}, [(START, "a")], [("a", wrong)]))
        assert finding.name == "unknown-target"
        assert finding.place == f"a->{wrong.__name__}"
        with pytest.raises(UnknownTargetError):
            graph({"a": say}, [(START, "a")], [("a", wrong)]).compile(ignore=["unknown-target"]).invoke({"value": 1})
    mapped = graph({"a": say}, [(START, "a")], [("a", told, {"somewhere": "a"})])
    assert found(mapped) == [("unknown-target", "a->told")]
    assert found(graph({"a": say}, [(START, "a")], [("a", told, {"nowhere": "a"})])) == []
    gone = graph({"a": lambda s: Command(goto="nowhere")}, [(START, "a")])
    assert found(gone) == [("unknown-target", "a")]
    assert found(graph({"a": lambda s: Command(goto="nowhere", graph=Command.PARENT)}, [(START, "a")])) == []


def test_a_target_that_may_be_right_is_not_reported() -> None:
    def first_guess(state: State) -> str:
        target = "unset"
        for name in ("a", END):
            target = name
        return target

    def second_guess(state: State) -> str:
        target = "unset"
        target = "a" if state else END
        return target

    for right in (first_guess, second_guess):
        assert found(graph({"a": say}, [(START, "a")], [("a", right)])) == []


# ----------------------------------------------------------------- unreachable


def test_a_node_that_no_run_reaches() -> None:
    nodes = {"a": say, "b": say, "c": say}
    assert found(graph(nodes, [(START, "a"), ("b", "c")])) == [("unreachable-node", "b"), ("unreachable-node", "c")]
    assert found(graph(nodes, [(START, "a"), ("a", "b"), ("b", "c")])) == []


def to_b(state: State) -> Command[Any]:
    return Command(goto="b")


class Router:
    def __init__(self, target: str) -> None:
        self.target = target

    def __call__(self, state: State) -> str:
        return self.target

    def method(self, state: State) -> str:
        return self.target

    @staticmethod
    def plain(state: State) -> str:
        return "b"


@pytest.mark.parametrize(
    "route",
    [
        lambda s: "b",
        lambda s: "b" if s["value"] else END,
        lambda s: [Send("b", 1)],
        Router("b"),
        Router("b").method,
        Router.plain,
        functools.partial(lambda more, s: "b", 1),
    ],
)
def test_what_leads_to_a_node(route: Callable[..., Any]) -> None:
    nodes = {"a": say, "b": say}
    builder = graph(nodes, [(START, "a")])
    builder.add_conditional_edges("a", route)
    assert found(builder) == []
    builder = graph({**nodes, "c": say}, [(START, "a")])
    builder.add_conditional_edges("a", route)
    assert found(builder) == [("unreachable-node", "c")]


def test_commands_and_handlers_lead_on_too() -> None:
    async def later(state: State) -> Command[Any]:
        await asyncio.sleep(0)
        return Command(update=[("log", [1])], goto=["b"])

    def parts(state: State) -> list[Any]:
        return [Command(goto="b"), {"log": []}]

    def hinted(state: State) -> Command[Literal["b"]]:
        return globals()["to_b"](state)  # type: ignore[no-any-return]  # something that cannot be read

    for node in (to_b, later, parts, hinted, lambda s: to_b(s)):
        assert found(graph({"a": node, "b": say}, [(START, "a")])) == []
        assert found(graph({"a": node, "b": say, "c": say}, [(START, "a")])) == [("unreachable-node", "c")]
    handled = graph({"a": say, "b": say}, [(START, "a")], options={"a": {"error_handler": to_b}})
    assert found(handled) == []


def unreadable(state: State) -> Any:
    return eval("Command(goto='b')")


scope: dict[str, Any] = {}
exec("def from_exec(state): return {'value': 1, 'typo': 2}", scope)


@pytest.mark.parametrize(
    "node",
    [unreadable, scope["from_exec"], operator.itemgetter("value"), functools.lru_cache(lambda s: None), int],
)
def test_what_cannot_be_read_is_taken_to_be_right(node: Callable[..., Any]) -> None:
    edges = [(START, "a"), (START, "p")]
    assert found(graph({"a": node, "p": put, "b": reads_other}, edges, input_schema=Given)) == []
    assert found(graph({"a": node}, [(START, "a"), ("a", "a")])) == (LOOP if node is scope["from_exec"] else [])


LOOP = [("endless-loop", "a")]


def test_a_child_that_may_speak_to_its_parent_leads_anywhere() -> None:
    def up(state: State) -> Command[Any]:
        return Command(graph=Command.PARENT, goto="b")

    def child(node: Any) -> CompiledGraph:
        return graph({"n": node}, [(START, "n")]).compile()

    speaks, keeps_quiet = child(up), child(say)

    def calls(state: State) -> dict[str, Any]:
        return {"log": [speaks.invoke({"log": []})]}

    for action in (speaks, calls):
        assert found(graph({"a": action, "b": say}, [(START, "a")])) == []
    assert found(graph({"a": keeps_quiet, "b": say}, [(START, "a")])) == [("unreachable-node", "b")]


# ----------------------------------------------------------------------- loops


def test_a_loop_of_single_edges_never_ends() -> None:
    nodes = {"a": say, "b": say, "c": say}
    [finding] = check(graph(nodes, [(START, "a"), ("a", "b"), ("b", "a"), ("b", "c")]))
    assert (finding.name, finding.place) == ("endless-loop", "a")
    assert "a -> b -> a" in finding.message  # the edge to c runs c besides, it does not end the loop
    back = [("b", lambda s: "a" if s["value"] else END)]
    assert found(graph({"a": say, "b": say}, [(START, "a"), ("a", "b")], back)) == []
    assert found(graph({"a": say}, [(START, "a"), (["a"], "a")])) == LOOP


def test_goto_end_does_not_end_a_loop_of_edges() -> None:
    stops = graph({"a": lambda s: Command(goto=END)}, [(START, "a"), ("a", "a")])
    assert found(stops) == [*LOOP, ("edges-and-goto", "a")]


def ask_someone(state: Any) -> Any:
    return interrupt("go on?")


def test_a_loop_that_pauses_is_a_conversation() -> None:
    def asks(state: State) -> dict[str, Any]:
        return {"log": [interrupt("next?")]}

    def helped(state: State) -> dict[str, Any]:
        return {"log": [ask_someone(state)]}

    class Desk:
        def node(self, state: State) -> dict[str, Any]:
            return {"log": [self.question()]}

        def question(self) -> Any:
            return interrupt("next?")

    loop = [(START, "a"), ("a", "b"), ("b", "a")]
    human: Any
    for human in (asks, helped, Desk().node):
        assert found(graph({"a": human, "b": say}, loop)) == []
    child = graph({"n": asks}, [(START, "n")]).compile()
    assert found(graph({"a": child, "b": say}, loop)) == []
    assert found(graph({"a": say, "b": say}, loop).compile(InMemorySaver(), interrupt_before=["b"])) == []
    assert found(graph({"a": say, "b": say}, loop)) == LOOP


def test_a_command_for_the_parent_leaves_a_loop() -> None:
    def leaves(state: State) -> Any:
        if state["value"]:
            return Command(graph=Command.PARENT, update={"value": 1})
        return None

    assert found(graph({"a": leaves}, [(START, "a"), ("a", "a")])) == []


def test_no_choice_leads_out() -> None:
    def stay(state: State) -> str:
        return "a" if state["value"] else "b"

    def leave(state: State) -> str:
        return "a" if state["value"] else END

    edges = [(START, "a"), ("b", "a")]
    [finding] = check(graph({"a": say, "b": say}, edges, [("a", stay)]))
    assert (finding.name, finding.place) == ("no-way-out", "a")
    assert found(graph({"a": say, "b": say}, edges, [("a", stay), ("b", leave)])) == [("no-way-out", "a")]
    assert found(graph({"a": say, "b": say}, [(START, "a")], [("a", stay), ("b", leave)])) == []
    flag = (lambda s: s["value"] > 3, {True: "a", False: "b"})
    assert found(graph({"a": say, "b": say}, edges, [("a", *flag)])) == [("no-way-out", "a")]
    unclear = (lambda s: s["value"], {"x": "a", "y": "b"})
    assert found(graph({"a": say, "b": say}, edges, [("a", *unclear)])) == []
    gone = {"a": to_b, "b": lambda s: Command(goto="a")}
    assert found(graph(gone, [(START, "a")])) == [("no-way-out", "a")]


# ----------------------------------------------------------------------- joins


def test_a_join_of_alternatives_never_fires() -> None:
    def one(state: State) -> str:
        return "a" if state["value"] else "b"

    def both(state: State) -> list[str]:
        return ["a", "b"]

    nodes = {"s": say, "a": say, "b": say, "j": say}
    edges: list[tuple[Any, str]] = [(START, "s"), (["a", "b"], "j")]
    assert ("join-never-fires", "j") in found(graph(nodes, edges, [("s", one)]))
    assert found(graph(nodes, edges, [("s", both)])) == []
    assert found(graph(nodes, [*edges, ("s", "b")], [("s", lambda s: "a" if s["value"] else END)])) == []
    again = [("s", one), ("a", lambda s: "s" if s["value"] else END)]
    assert found(graph(nodes, edges, again)) == []  # a, then b in the next round
    assert found(graph(nodes, [*edges, (START, "a"), (START, "b")])) == []


def test_a_join_that_waits_for_itself_or_for_nobody() -> None:
    nodes = {"a": say, "b": say, "j": say}
    waits = graph(nodes, [(START, "a"), (["a", "b"], "j"), ("j", "b")])
    assert ("join-never-fires", "j") in found(waits)
    assert found(graph(nodes, [(START, "a"), ("a", "b"), (["a", "b"], "j")])) == []


# -------------------------------------------------------------- edges and goto


def test_a_node_with_edges_and_a_goto() -> None:
    def hinted(state: State) -> Command[Literal["b"]]:
        return Command(goto=state["value"])

    nodes = {"b": say, "c": say}
    edges = [(START, "a"), ("a", "c")]
    node: Any
    for node in (to_b, hinted, lambda s: Command(goto=["b"])):
        assert found(graph({"a": node} | nodes, edges)) == [("edges-and-goto", "a")]
    assert found(graph({"a": to_b, "b": say}, [(START, "a")])) == []
    assert found(graph({"a": to_b, "b": say}, [(START, "a"), ("a", END)])) == []  # END adds nothing
    assert found(graph({"a": to_b, "b": say}, [(START, "a"), ("a", "b")])) == []  # the same node twice
    assert found(graph({"a": lambda s: Command(update={"value": 1}), "c": say}, edges)) == []


# --------------------------------------------------- effects before a question


class Mailer:
    def __init__(self) -> None:
        self.sent: list[str] = []

    def send(self, text: str) -> None:
        self.sent.append(text)


MAILER = Mailer()


def send_mail(text: str) -> str:
    Path("outbox").write_text(text)
    return "id"


def charge_for(nights: int) -> int:
    return nights * 80


def deliver(text: str) -> None:
    with open("outbox", "a") as outbox:
        outbox.write(text)


def sends_first(state: State) -> dict[str, Any]:
    number = send_mail("hello")
    return {"log": [number, interrupt("sent, all right?")]}


async def sends_first_too(state: State) -> dict[str, Any]:
    MAILER.send("hello")
    return {"log": [interrupt("sent, all right?")]}


def delivers_first(state: State) -> dict[str, Any]:
    if state["value"]:
        deliver("hello")
    answer = interrupt("sent, all right?")
    return {"log": [answer]}


def in_a_loop(state: State) -> dict[str, Any]:
    for item in state["value"]:
        if interrupt(item):
            deliver(item)
    return {}


def writes_a_file(state: State) -> dict[str, Any]:
    with open("draft", "w") as draft:
        draft.write("hello")
    return {"log": [interrupt("all right?")]}


@pytest.mark.parametrize("node", [sends_first, sends_first_too, delivers_first, in_a_loop, writes_a_file])
def test_an_effect_before_a_question(node: Callable[..., Any]) -> None:
    [finding] = check(graph({"a": node}, [(START, "a")]))
    assert (finding.name, finding.place) == ("effect-before-interrupt", "a")
    assert "once(" in finding.remedy
    line = int(re.findall(r"in line (\d+)", finding.message)[0])
    text = Path(__file__).read_text().splitlines()[line - 1]
    assert re.search(r"send_mail|MAILER|deliver|open", text)


def sends_after(state: State) -> dict[str, Any]:
    if interrupt("send it?"):
        send_mail("hello")
    return {}


def sends_or_asks(state: State) -> dict[str, Any]:
    if state["value"]:
        send_mail("hello")
        return {}
    return {"log": [interrupt("what now?")]}


def computes_first(state: State) -> dict[str, Any]:
    return {"log": [interrupt(charge_for(state["value"]))]}


def looks_first(state: State) -> dict[str, Any]:
    if not was_sent("hello"):
        send_mail("hello")
    return {"log": [interrupt("all right?")]}


def leaves_if_sent(state: State) -> dict[str, Any]:
    if was_sent("hello"):
        return {}
    send_mail("hello")
    return {"log": [interrupt("all right?")]}


def was_sent(text: str) -> bool:
    return Path("outbox").exists()


def records_first(state: State) -> dict[str, Any]:
    number = minigraph.once("mail", send_mail, "hello")
    return {"log": [number, interrupt("all right?")]}


def prepares(state: State) -> dict[str, Any]:
    def later() -> str:
        return send_mail("hello")

    items: list[int] = []
    items.append(1)
    print("asking", items)
    later_too = lambda: send_mail("x")  # noqa: E731
    return {"log": [interrupt("all right?"), later, later_too]}


@pytest.mark.parametrize(
    "node", [sends_after, sends_or_asks, computes_first, looks_first, leaves_if_sent, records_first, prepares]
)
def test_effects_that_do_not_happen_again(node: Callable[..., Any]) -> None:
    assert found(graph({"a": node}, [(START, "a")])) == []


# ------------------------------------------------- warnings, and silencing them


def lonely() -> StateGraph[Any, Any, Any, Any]:
    return graph({"a": put, "b": put_too, "c": say}, [(START, "a"), (START, "b")])


def test_compile_warns_of_each_finding_at_the_line_that_compiles() -> None:
    builder = lonely()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        builder.compile()
        here = Path(__file__).read_text().splitlines()
    assert [type(w.message) for w in caught] == [GraphWarning, GraphWarning]
    for warning in caught:
        assert warning.filename == __file__
        assert here[warning.lineno - 1].strip() == "builder.compile()"
        assert isinstance(warning.message, GraphWarning)
        finding = warning.message.finding
        assert str(warning.message) == str(finding)
        assert str(finding).startswith(f"[{finding.name}] ")
        assert "\n" not in str(finding)
    assert tuple(w.message.finding for w in caught if isinstance(w.message, GraphWarning)) == check(builder)


def test_a_filter_silences_one_finding_by_its_name() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", r"\[unreachable-node\]")
        with pytest.raises(GraphWarning, match=r"^\[conflicting-writes\]"):
            lonely().compile()


@pytest.mark.parametrize(
    "ignore",
    [
        FINDINGS,
        ["conflicting-writes", "unreachable-node"],
        ["conflicting-writes:value", "unreachable-node:c"],
    ],
)
def test_ignored_findings(ignore: Sequence[str]) -> None:
    assert check(lonely(), ignore=ignore) == ()
    lonely().compile(ignore=ignore)


def test_a_finding_is_ignored_at_its_place_only() -> None:
    [finding] = check(lonely(), ignore=["conflicting-writes:other", "unreachable-node:c"])
    assert finding.name == "conflicting-writes"
    routed = graph({"a": say}, [(START, "a")], [("a", Router.plain)])
    assert check(routed, ignore=["unknown-target:a->plain"]) == ()


def test_an_unknown_name_to_ignore_is_an_error() -> None:
    for call in (lonely().compile, functools.partial(check, lonely())):
        with pytest.raises(GraphDefinitionError, match="did you mean 'unreachable-node'") as caught:
            call(ignore=["unreachable-nodes"])
        assert all(name in str(caught.value) for name in FINDINGS)
    with pytest.raises(GraphDefinitionError, match="pass a list of names"):
        lonely().compile(ignore="unreachable-node")


def test_check_takes_a_builder_and_what_it_compiles_to() -> None:
    compiled = lonely().compile(ignore=FINDINGS)
    assert check(compiled) == check(lonely())
    assert all(isinstance(finding, Finding) and finding.remedy for finding in check(compiled))


def test_the_page_lists_the_findings_that_there_are() -> None:
    page = (Path(__file__).parent.parent / "docs" / "check.md").read_text(encoding="utf-8")
    assert tuple(re.findall(r"^\| `([a-z-]+)` \|", page, re.MULTILINE)) == FINDINGS


def test_what_was_read_is_read_again_when_a_name_means_something_else(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = graph({"a": say}, [(START, "a")], [("a", by_name)])
    assert found(builder) == [("unknown-target", "a->by_name")]
    monkeypatch.setitem(globals(), "TARGET", "a")
    assert found(builder) == [("no-way-out", "a")]


def by_name(state: State) -> str:
    return TARGET


@dataclass
class Tree:
    """A state with a key that nobody writes, read inside a comprehension of an async method."""

    log: Annotated[list[Any], operator.add] = field(default_factory=list)

    async def node(self, state: State) -> dict[str, Any]:
        return {"log": [item for item in [1] if state["other"]]}


def test_async_methods_and_comprehensions_are_read() -> None:
    assert found(graph({"a": Tree().node}, [(START, "a")], input_schema=Given)) == [("unwritten-key", "other")]
