"""Opens a model with ONNX Runtime and says truthfully what will compute it.

ONNX Runtime lists the providers that its build knows, not those that can run, and falls back to the CPU in silence.
So the provider is read from the session after it was made: `cuda` that did not come about is an error, `auto` logs
one line. Requires `onnxruntime` or `onnxruntime-gpu`, imported when a session is opened and not before.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import io
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from decider.binding import BindableSession, BoundRunner
from decider.errors import MissingPackageError, ModelFileError, ProviderError
from decider.onnx_header import read_header

PROVIDER_VARIABLE: Final = "DECIDER_PROVIDER"
CPU: Final = "CPUExecutionProvider"
CUDA: Final = "CUDAExecutionProvider"
# TF32 would round the products of float32 matrices: answers would differ from the CPU's in the third decimal.
CUDA_OPTIONS: Final = {"use_tf32": "0"}
# ONNX Runtime's severities.
WARNING: Final = 2
ERROR: Final = 3
FATAL: Final = 4

Provider = Literal["cpu", "cuda"]

_log = logging.getLogger("decider")

_BOTH_INSTALLED = "onnxruntime and onnxruntime-gpu are both installed and overwrite each other's files"
_REINSTALL = "pip uninstall -y onnxruntime onnxruntime-gpu, then pip install one of them"
_INSTALL_CUDA = "pip uninstall -y onnxruntime && pip install 'onnxruntime-gpu[cuda,cudnn]'"


class Runner(Protocol):
    """The one method of an ONNX Runtime session that answering needs."""

    def run(self, output_names: Sequence[str] | None, input_feed: Mapping[str, NDArray[np.int64]]) -> Sequence[object]:
        """Compute the outputs for one batch."""
        ...


class Session(Runner, BindableSession, Protocol):
    """What of an ONNX Runtime session is used here."""

    def get_providers(self) -> list[str]:
        """Return the providers in use, the preferred one first."""
        ...

    def get_inputs(self) -> Sequence[Any]:
        """Return the inputs with their names, types and shapes."""
        ...


@dataclass(frozen=True, slots=True)
class OpenSession:
    """A session with the provider that runs it, and, when CUDA was tried in vain, why.

    `runner` is the session itself, or runs it with bound buffers.
    """

    runner: Runner
    provider: Provider
    reason: str | None = None
    session: Session | None = None


def open_session(
    model_path: Path,
    provider: str = "auto",
    threads: int | None = None,
    ort: ModuleType | None = None,
    spinning: bool = False,
    bound: bool = True,
) -> OpenSession:
    """Open a model file with the provider "auto", "cpu" or "cuda".

    "auto" takes CUDA where it works and the CPU otherwise; the environment variable DECIDER_PROVIDER stands in for
    "auto". `threads` is the number of CPU threads of one pass (None: ONNX Runtime decides). With `spinning` they keep
    their cores busy between passes: quicker when passes follow each other at once, and a waste otherwise. `ort`
    replaces the onnxruntime module. On CUDA passes run in bound buffers (decider.binding) unless `bound` is False.
    Raises ProviderError when "cuda" cannot be had, MissingPackageError when ONNX Runtime is absent or broken,
    ModelFileError when it cannot open the file.
    """
    wanted = wanted_provider(provider)
    ort = ort if ort is not None else import_onnxruntime()
    both = both_packages_installed()
    if both:
        _log.warning("%s: %s", _BOTH_INSTALLED, _REINSTALL)
    options = session_options(ort, threads, spinning)
    if wanted == "cpu":
        return _on_cpu(ort, model_path, options)
    session, reason = _try_cuda(ort, model_path, options, both)
    if session is not None:
        fixed = isinstance(session.get_outputs()[0].shape[-1], int)  # else the size of the output is not known before
        runner = BoundRunner(session, ort) if bound and fixed else session
        return OpenSession(runner, "cuda", session=session)
    if wanted == "cuda":
        raise ProviderError("cuda", reason, f"Remedy: {_REINSTALL if both else _INSTALL_CUDA}; or ask for 'cpu'.")
    _log.info("decider runs on the CPU: %s", reason)
    return _on_cpu(ort, model_path, options, reason)


def session_options(ort: ModuleType, threads: int | None = None, spinning: bool = False) -> Any:
    """Return ONNX Runtime's SessionOptions as every model here needs them; see open_session."""
    if threads is not None and threads < 1:
        raise ValueError(f"threads is {threads}: give the number of CPU threads, at least 1")
    options = ort.SessionOptions()
    options.log_severity_level = ERROR
    options.inter_op_num_threads = 1
    if threads is not None:
        options.intra_op_num_threads = threads
    # Without this, weights in int8 also bring activations in int8: other answers than those that were measured, and
    # rounded by rules that differ between processors and releases.
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    # By default idle threads wait asleep: a program that asks now and then must not occupy its cores in between.
    options.add_session_config_entry("session.intra_op.allow_spinning", "1" if spinning else "0")
    return options


def wanted_provider(provider: str) -> str:
    """Return "auto", "cpu" or "cuda", with the environment variable in place of "auto"; raises ProviderError else."""
    wanted, source = provider, "the argument"
    if provider == "auto":
        wanted, source = os.environ.get(PROVIDER_VARIABLE, "") or "auto", f"the variable {PROVIDER_VARIABLE}"
    if wanted not in ("auto", "cpu", "cuda"):
        raise ProviderError(wanted, f"{source} names no known provider", "Write 'auto', 'cpu' or 'cuda'.")
    return wanted


def import_onnxruntime() -> ModuleType:
    """Return the onnxruntime module; raises MissingPackageError with the command that installs it."""
    try:
        ort = importlib.import_module("onnxruntime")
    except ImportError as error:
        raise MissingPackageError(
            "onnxruntime",
            f"it cannot be imported ({error})",
            "Install it: pip install onnxruntime, or for an NVIDIA GPU pip install 'onnxruntime-gpu[cuda,cudnn]'",
        ) from error
    if not hasattr(ort, "InferenceSession"):
        raise MissingPackageError("onnxruntime", "its files are incomplete", f"Install it anew: {_REINSTALL}")
    return ort


def both_packages_installed() -> bool:
    """Whether the CPU and the GPU package of ONNX Runtime are installed at once."""
    for name in ("onnxruntime", "onnxruntime-gpu"):
        try:
            importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            return False
    return True


def _on_cpu(ort: ModuleType, model_path: Path, options: object, reason: str | None = None) -> OpenSession:
    try:
        session = _session(ort, model_path, [CPU], options)
    except ModelFileError:
        raise
    except Exception as error:  # ONNX Runtime's own error classes differ between versions
        raise _cannot_open(ort, model_path, error) from error
    return OpenSession(session, "cpu", reason, session)


def _cannot_open(ort: ModuleType, path: Path, error: Exception) -> ModelFileError:
    """Say why ONNX Runtime cannot open a file, in words that lead to a remedy."""
    header = read_header(path)
    if header is None:
        return ModelFileError(path, "it is not an ONNX file, or not a whole one", "Export the model anew.")
    version = getattr(ort, "__version__", "here")
    opsets = ", ".join(f"{domain or 'ai.onnx'} {number}" for domain, number in sorted(header.opsets.items()))
    if "opset" in str(error) or "IR version" in str(error):
        return ModelFileError(
            path,
            f"ONNX Runtime {version} is too old for its opset ({opsets}; IR version {header.ir_version})",
            "Export it with opset 17, or upgrade ONNX Runtime.",
        )
    said = str(error).split("\n")[0]
    return ModelFileError(path, f"ONNX Runtime {version} cannot open it, opset {opsets} ({said})", "Export it anew.")


def _try_cuda(ort: ModuleType, model_path: Path, options: object, both: bool) -> tuple[Session | None, str]:
    if CUDA not in ort.get_available_providers():
        reason = "this build of ONNX Runtime has no CUDA"
        return None, f"{reason}; {_BOTH_INSTALLED}" if both else reason
    with _quiet(ort) as said:
        if hasattr(ort, "preload_dlls"):
            ort.preload_dlls()
        try:
            session = _session(ort, model_path, [(CUDA, CUDA_OPTIONS), CPU], options)
        except ModelFileError:
            raise
        except Exception as error:  # the file may be at fault; then the CPU cannot open it either, and says so
            return None, f"ONNX Runtime could not start CUDA ({error})"
    if session.get_providers()[0] == CUDA:
        return session, ""
    reason = "the build has CUDA, but it did not start; CUDA 13 and cuDNN 9 and a driver are needed"
    if lines := said.getvalue().split("\n")[0].strip():
        reason = f"{reason} ({lines})"
    return None, f"{reason}; {_BOTH_INSTALLED}" if both else reason


def _session(ort: ModuleType, model_path: Path, providers: Sequence[object], options: object) -> Session:
    if not model_path.is_file():
        raise ModelFileError(model_path, "the model file is not there", "Check the path of the model folder.")
    session: Session = ort.InferenceSession(str(model_path), options, providers=list(providers))
    return session


@contextlib.contextmanager
def _quiet(ort: ModuleType) -> Iterator[io.StringIO]:
    """Keep ONNX Runtime's attempt to load CUDA off the terminal; what it printed is kept as the reason."""
    said = io.StringIO()
    ort.set_default_logger_severity(FATAL)
    try:
        with contextlib.redirect_stdout(said):
            yield said
    finally:
        ort.set_default_logger_severity(WARNING)
