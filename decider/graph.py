"""Holds the graph of a model against what its layout gives to it and reads of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

import numpy as np
from tokenizers import Tokenizer

from decider.errors import DeciderError, ModelFileError
from decider.manifest import MANIFEST_FILE
from decider.questions import Choice, Noul, Question
from decider.rows import AnyLayout, GraphInterface, collate
from decider.session import Session

INT64: Final = "tensor(int64)"
PROBE: Final[dict[str, Question]] = {"yes?": Noul("a"), "which?": Choice({"a": None, "b": None}, "a")}


class Port(Protocol):
    """An input or output of a graph, as ONNX Runtime describes it."""

    name: str
    type: str
    shape: Sequence[int | str | None]


def check_graph(path: Path, session: Session, layout: AnyLayout, tokenizer: Tokenizer) -> None:
    """Raise ModelFileError where the graph is not one that the layout can run and read with this tokenizer.

    One short pass is run, which also warms the session up.
    """
    check_ports(path, layout.graph, session.get_inputs(), session.get_outputs())
    probe(path, session, layout, max(tokenizer.get_vocab(with_added_tokens=True).values()))


def check_ports(path: Path, interface: GraphInterface, inputs: Sequence[Port], outputs: Sequence[Port]) -> None:
    """Raise ModelFileError where the graph's inputs or outputs are not those of its layout."""
    given = {port.name: port for port in inputs}
    for name in interface.padding:
        if name not in given:
            raise ModelFileError(
                path,
                f"the graph has no input {name!r}; it takes {', '.join(given)}",
                "Name its inputs in decider.json, or export it with this one.",
            )
    for name, port in given.items():
        if name not in interface.padding:
            cache = " without a cache of earlier keys and values" if name.startswith("past") else ""
            raise ModelFileError(
                path,
                f"the graph wants an input {name!r}, and the layout gives {', '.join(interface.padding)}",
                f"Name it in decider.json if the layout knows it, or export the model{cache} without it.",
            )
        if port.type != INT64:
            raise ModelFileError(
                path, f"its input {name!r} is {port.type}", f"Export it with {INT64} inputs, as token ids are."
            )
    if interface.output not in [port.name for port in outputs]:
        raise ModelFileError(
            path,
            f"the graph has no output {interface.output!r}; it gives {', '.join(port.name for port in outputs)}",
            "Name the output that is read in decider.json.",
        )


def probe(path: Path, session: Session, layout: AnyLayout, highest_token: int) -> None:
    """Run a short request with the tokenizer's highest token in it, and check the shape of what comes back.

    Raises ModelFileError where the run fails, as with a tokenizer of more tokens than the network knows, or where the
    output has another number of dimensions or columns than the layout reads.
    """
    try:
        batch = collate(layout.encode("a", PROBE).rows, layout.graph.padding)
    except DeciderError as error:
        raise ModelFileError(
            path.with_name(MANIFEST_FILE), f"not even a short question can be laid out ({error})", "Raise its limits."
        ) from error
    batch["input_ids"][0, 0] = highest_token
    try:
        (output,) = session.run([layout.graph.output], batch)
    except Exception as error:  # ONNX Runtime's own error classes differ between versions
        raise ModelFileError(
            path,
            f"it cannot be run with token {highest_token}, the tokenizer's highest ({_first_line(error)})",
            "Bring the tokenizer that belongs to the model, and inputs as the model was exported with.",
        ) from error
    _check_shape(path, layout.graph, np.shape(np.asarray(output)), batch["input_ids"].shape)


def _check_shape(path: Path, wanted: GraphInterface, shape: tuple[int, ...], tokens: tuple[int, ...]) -> None:
    leading = tokens if wanted.per_token else tokens[:1]
    described = "(rows, tokens, columns)" if wanted.per_token else "(rows, columns)"
    if len(shape) != len(leading) + 1 or shape[:-1] != leading:
        raise ModelFileError(
            path,
            f"its output {wanted.output!r} has shape {shape} for {tokens[0]} rows of {tokens[1]} tokens",
            f"The layout reads {described}: name another output, or another layout.",
        )
    most = wanted.most_columns
    if shape[-1] < wanted.least_columns or (most is not None and shape[-1] > most):
        allowed = f"{wanted.least_columns} or more" if most is None else f"{wanted.least_columns} to {most}"
        raise ModelFileError(
            path,
            f"its output {wanted.output!r} has {shape[-1]} columns and the layout reads {allowed}",
            "Correct the columns in decider.json, or bring the tokenizer that belongs to the model.",
        )


def _first_line(error: Exception) -> str:
    return str(error).split("\n")[0][:300]
