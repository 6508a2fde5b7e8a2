"""Reads what stands around the graph of an ONNX file: versions and who wrote it, without the package `onnx`.

An ONNX file is a protocol buffer: fields, each with a number and a length. The graph, which is nearly all of the file,
is stepped over.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, Final

# Fields of ModelProto and of OperatorSetIdProto.
IR_VERSION: Final = 1
PRODUCER: Final = 2
PRODUCER_VERSION: Final = 3
GRAPH: Final = 7
OPSET: Final = 8
OPSET_DOMAIN: Final = 1
OPSET_VERSION: Final = 2

VARINT: Final = 0
FIXED64: Final = 1
BYTES: Final = 2
FIXED32: Final = 5


@dataclass(frozen=True, slots=True)
class OnnxHeader:
    """`opsets` maps domains to versions; "" is ONNX's own domain."""

    ir_version: int
    producer: str
    opsets: dict[str, int]


def read_header(path: Path) -> OnnxHeader | None:
    """Return the header of a file, or None for a file that is not ONNX."""
    ir_version, producer, opsets, graphs = 0, ["", ""], {}, 0
    try:
        with path.open("rb") as file:
            for number, value in _fields(file, skipped=GRAPH):
                if number == IR_VERSION and isinstance(value, int):
                    ir_version = value
                elif number in (PRODUCER, PRODUCER_VERSION) and isinstance(value, bytes):
                    producer[number - PRODUCER] = value.decode()
                elif number == OPSET and isinstance(value, bytes):
                    entry = dict(_fields(BytesIO(value)))
                    domain, version = entry.get(OPSET_DOMAIN, b""), entry.get(OPSET_VERSION, 0)
                    if isinstance(domain, bytes) and isinstance(version, int):
                        opsets[domain.decode()] = version
                graphs += number == GRAPH
    except (ValueError, EOFError):  # UnicodeDecodeError is a ValueError
        return None
    if not graphs or not opsets:
        return None
    return OnnxHeader(ir_version, " ".join(producer).strip(), opsets)


def _fields(file: BinaryIO, skipped: int | None = None) -> Iterator[tuple[int, int | bytes]]:
    """Yield the number and the value of each field; the bytes of the field `skipped` are not read."""
    end = file.seek(0, os.SEEK_END)
    file.seek(0)
    while file.tell() < end:
        key = _varint(file)
        number, kind = key >> 3, key & 7
        if kind == VARINT:
            yield number, _varint(file)
            continue
        if kind not in (FIXED64, BYTES, FIXED32) or number == 0:
            raise ValueError(f"{kind} is no kind of field")
        length = {FIXED64: 8, FIXED32: 4}.get(kind) or _varint(file)
        if file.tell() + length > end:
            raise EOFError
        if number == skipped:
            file.seek(length, os.SEEK_CUR)
            yield number, b""
        else:
            yield number, file.read(length)


def _varint(file: BinaryIO) -> int:
    """Return a number of seven bits a byte, the lowest first."""
    value = 0
    for shift in range(0, 64, 7):
        byte = file.read(1)
        if not byte:
            raise EOFError
        value |= (byte[0] & 127) << shift
        if byte[0] < 128:
            return value
    raise ValueError("a number of more than 64 bits")
