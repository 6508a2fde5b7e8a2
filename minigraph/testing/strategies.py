"""Hypothesis strategies: random graphs, inputs that fit a graph, and orders of finishing. It needs Hypothesis."""

from __future__ import annotations

import types
from random import Random
from typing import Annotated, Any, NotRequired, Required, Union, get_args, get_origin, get_type_hints

from minigraph.compiled import CompiledGraph
from minigraph.state import has_fields
from minigraph.testing.drawing import draw_program
from minigraph.testing.programs import Program
from minigraph.testing.scheduling import Schedule

try:
    from hypothesis import strategies as st
    from hypothesis.strategies import SearchStrategy
except ImportError as error:
    raise ImportError(
        "the strategies of minigraph.testing need Hypothesis: pip install 'minigraph[testing]'", name="hypothesis"
    ) from error


def graphs(*, size: int = 6, failing_routers: bool = False, deep_children: bool = False) -> SearchStrategy[Program]:
    """Random programs of 2 to `size` nodes: `build(program, minigraph_engine(), saver)` makes them graphs.

    `failing_routers` adds routers that fail the first time they are asked, `deep_children` children of child graphs.
    """

    def drawn(random: Random) -> Program:
        return draw_program(random, size=size, failing_routers=failing_routers, deep_children=deep_children)

    return st.builds(drawn, st.randoms(use_true_random=False))


def schedules() -> SearchStrategy[Schedule]:
    """Orders of finishing, forced by number."""
    return st.builds(Schedule, st.lists(st.integers(0, 11), min_size=1, max_size=12).map(tuple), st.booleans())


def inputs_for(graph: CompiledGraph, **keys: SearchStrategy[Any]) -> SearchStrategy[dict[str, Any]]:
    """Inputs that fit a graph's input schema, key by key from its type hints; any key may be left out.

    `keys` gives strategies for keys of your own choice, which are then always there. Raises TypeError for a state
    without keys, and ValueError for a key that the graph does not have.
    """
    schema = graph.builder.input_schema
    if not has_fields(schema):
        raise TypeError(f"the input of this graph is one value ({schema!r}) without keys; use st.from_type of it")
    hints = get_type_hints(schema, include_extras=True)
    known = graph.graph.input_view.keys
    for key in keys:
        if key not in known:
            raise ValueError(f"inputs_for: the input has no key {key!r}; the keys are {', '.join(known)}")
    found = {key: values_of(hints[key]) for key in known if key not in keys}
    return st.fixed_dictionaries(keys, optional=found)


def values_of(hint: Any) -> SearchStrategy[Any]:
    """Small values of a type that can be stored and compared: `Any` gives plain data, a float is never NaN."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Annotated, Required, NotRequired):
        return values_of(arguments[0])
    if hint is Any or hint is object:
        return _plain_data()
    if hint is float:
        return st.floats(allow_nan=False)
    if hint is str:
        return st.text(max_size=10)
    if (origin or hint) is list:
        return st.lists(values_of(arguments[0]) if arguments else _plain_data(), max_size=4)
    if (origin or hint) is dict:
        key, value = arguments or (str, Any)
        return st.dictionaries(st.text(max_size=5) if key is Any else values_of(key), values_of(value), max_size=3)
    if (origin or hint) in (set, frozenset):
        items = st.sets(values_of(arguments[0]) if arguments else st.integers(), max_size=4)
        return items if (origin or hint) is set else items.map(frozenset)
    if origin in (Union, types.UnionType):
        return st.one_of(*(values_of(argument) for argument in arguments))
    return st.from_type(hint)


def _plain_data() -> SearchStrategy[Any]:
    leaves = st.one_of(st.none(), st.booleans(), st.integers(-9, 9), st.text(max_size=5))
    return st.recursive(leaves, lambda inner: st.lists(inner, max_size=3), max_leaves=5)
