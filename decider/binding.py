"""Runs passes on a device through buffers that stay there from one pass to the next.

ONNX Runtime's `run` takes new memory on the device for the inputs and the output of every pass. Here they are written
into buffers that were bound once for their shape. On the CPU that gains nothing (measured: no difference), so it is
used on CUDA alone.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

# The buffers of so many shapes are kept; the one that was not used for longest goes first.
SHAPES_KEPT: Final = 8
OUTPUT: Final = "logits"


class BindableSession(Protocol):
    """What of an ONNX Runtime session is needed to run with bound buffers."""

    def io_binding(self) -> Any:  # ONNX Runtime's own classes carry no types
        """Return a new, empty binding."""
        ...

    def run_with_iobinding(self, iobinding: Any) -> None:
        """Compute from the bound inputs into the bound output."""
        ...

    def get_outputs(self) -> Sequence[Any]:
        """Return the outputs with their names and shapes."""
        ...


@dataclass(frozen=True, slots=True)
class _Buffers:
    binding: Any
    inputs: Mapping[str, Any]
    output: Any


class BoundRunner:
    """Computes one pass after the other in bound buffers; safe to use from several threads, which take turns."""

    def __init__(self, session: BindableSession, ort: ModuleType, device: str = "cuda") -> None:
        self._session = session
        self._ort = ort
        self._device = device
        self._columns = int(session.get_outputs()[0].shape[-1])
        self._kept: OrderedDict[tuple[int, ...], _Buffers] = OrderedDict()
        self._turn = threading.Lock()

    def run(self, output_names: Sequence[str] | None, input_feed: Mapping[str, NDArray[np.int64]]) -> Sequence[object]:
        """Copy the inputs to the device, compute, and return the logits in memory of their own, as `run` does."""
        if output_names is not None and list(output_names) != [OUTPUT]:
            raise ValueError(f"the outputs {list(output_names)} were asked for and only [{OUTPUT!r}] is bound")
        shape = next(iter(input_feed.values())).shape
        with self._turn:
            buffers = self._buffers(shape, tuple(input_feed))
            for name, array in input_feed.items():
                buffers.inputs[name].update_inplace(np.ascontiguousarray(array))
            self._session.run_with_iobinding(buffers.binding)
            return [np.array(buffers.output.numpy())]

    def _buffers(self, shape: tuple[int, ...], names: Sequence[str]) -> _Buffers:
        if shape not in self._kept:
            self._kept[shape] = self._bind(shape, names)
            if len(self._kept) > SHAPES_KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(shape)
        return self._kept[shape]

    def _bind(self, shape: tuple[int, ...], names: Sequence[str]) -> _Buffers:
        binding = self._session.io_binding()
        inputs = {name: self._empty(shape, np.int64) for name in names}
        for name, value in inputs.items():
            binding.bind_ortvalue_input(name, value)
        output = self._empty((*shape, self._columns), np.float32)
        binding.bind_ortvalue_output(OUTPUT, output)
        return _Buffers(binding, inputs, output)

    def _empty(self, shape: tuple[int, ...], kind: type[np.generic]) -> Any:
        return self._ort.OrtValue.ortvalue_from_shape_and_type(shape, kind, self._device, 0)
