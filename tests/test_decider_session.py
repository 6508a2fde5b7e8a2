"""Provider selection, held against a stand-in for ONNX Runtime, since no machine has every broken installation."""

from __future__ import annotations

import importlib.metadata
import logging
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from numpy.typing import NDArray

from decider import Decider, MissingPackageError, ModelFileError, Noul, ProviderError
from decider import model as model_module
from decider import session as module
from decider.binding import BoundRunner
from decider.rows import collate
from decider.session import CPU, CUDA, OpenSession, Provider, open_session

TINY = Path(__file__).parent / "data" / "tiny_decider"


class FakeSession:
    columns: int | str = 2

    def __init__(self, providers: list[str]) -> None:
        self.providers = providers

    def get_providers(self) -> list[str]:
        return self.providers

    def get_outputs(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(name="logits", shape=["rows", "tokens", self.columns])]


class FakeOrt(ModuleType):
    """`listed` is what the build knows, `working` what starts."""

    def __init__(self, listed: list[str], working: list[str], error: Exception | None = None) -> None:
        super().__init__("onnxruntime")
        self.listed, self.working, self.error = listed, working, error
        self.entries: dict[str, str] = {}
        self.sessions: list[list[object]] = []
        self.options = SimpleNamespace(add_session_config_entry=self.entries.__setitem__)
        self.severities: list[int] = []

    def get_available_providers(self) -> list[str]:
        return self.listed

    def preload_dlls(self) -> None:
        print("Failed to load libcublasLt.so.13")

    def set_default_logger_severity(self, severity: int) -> None:
        self.severities.append(severity)

    def SessionOptions(self) -> SimpleNamespace:
        return self.options

    def InferenceSession(self, path: str, options: object, providers: list[object]) -> FakeSession:
        self.sessions.append(providers)
        names = [provider[0] if isinstance(provider, tuple) else provider for provider in providers]
        if self.error is not None and CUDA in names:
            raise self.error
        return FakeSession([str(name) for name in names if name in self.working])


GPU_BUILD = [CUDA, CPU]


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("DECIDER_PROVIDER", raising=False)
    monkeypatch.setattr(module, "both_packages_installed", lambda: False)
    path = tmp_path / "model.onnx"
    path.write_bytes(b"")
    return path


def test_auto_takes_cuda_where_it_works(model: Path) -> None:
    ort = FakeOrt(GPU_BUILD, GPU_BUILD)
    opened = open_session(model, ort=ort)
    assert (opened.provider, opened.reason) == ("cuda", None)
    assert isinstance(opened.runner, BoundRunner)
    assert ort.sessions == [[(CUDA, {"use_tf32": "0"}), CPU]]
    assert ort.severities == [4, 2]


def test_an_output_of_unknown_size_is_not_bound(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeSession, "columns", "columns")
    opened = open_session(model, ort=FakeOrt(GPU_BUILD, GPU_BUILD))
    assert opened.provider == "cuda"
    assert isinstance(opened.runner, FakeSession)


def test_auto_on_a_cpu_build_logs_one_line(model: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "decider"):
        opened = open_session(model, ort=FakeOrt([CPU], [CPU]))
    assert opened.provider == "cpu"
    assert [record.getMessage() for record in caplog.records] == [f"decider runs on the CPU: {opened.reason}"]


def test_cuda_that_is_listed_and_does_not_start_is_not_called_cuda(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    opened = open_session(model, ort=FakeOrt(GPU_BUILD, [CPU]))
    assert opened.provider == "cpu"
    assert "libcublasLt" in str(opened.reason)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "ort", [FakeOrt([CPU], [CPU]), FakeOrt(GPU_BUILD, [CPU]), FakeOrt(GPU_BUILD, [CPU], RuntimeError("no device"))]
)
def test_explicit_cuda_never_becomes_cpu(model: Path, ort: FakeOrt) -> None:
    with pytest.raises(ProviderError) as caught:
        open_session(model, "cuda", ort=ort)
    assert caught.value.provider == "cuda"
    assert "onnxruntime-gpu" in caught.value.remedy
    assert caught.value.reason


def test_an_error_while_starting_cuda_is_the_reason(model: Path) -> None:
    opened = open_session(model, ort=FakeOrt(GPU_BUILD, [CPU], RuntimeError("no device")))
    assert (opened.provider, "no device" in str(opened.reason)) == ("cpu", True)


def test_cpu_does_not_touch_cuda(model: Path) -> None:
    ort = FakeOrt(GPU_BUILD, GPU_BUILD)
    assert open_session(model, "cpu", threads=3, ort=ort).provider == "cpu"
    assert ort.sessions == [[CPU]]
    assert ort.options.intra_op_num_threads == 3
    assert ort.entries == {"session.disable_quant_qdq": "1", "session.intra_op.allow_spinning": "0"}
    assert (ort.options.log_severity_level, ort.options.inter_op_num_threads) == (3, 1)


def test_threads_stay_awake_only_when_asked_to(model: Path) -> None:
    ort = FakeOrt([CPU], [CPU])
    open_session(model, "cpu", ort=ort, spinning=True)
    assert ort.entries["session.intra_op.allow_spinning"] == "1"
    assert not hasattr(ort.options, "intra_op_num_threads")


def test_the_list_of_the_build_is_no_probe(model: Path) -> None:
    """A GPU build on a machine without a GPU: CUDA is listed, asking for it gives no error, and the CPU computes."""
    ort = FakeOrt([CUDA, CPU], [CPU])
    opened = open_session(model, "auto", ort=ort)
    assert ort.get_available_providers()[0] == CUDA
    assert ort.sessions == [[(CUDA, {"use_tf32": "0"}), CPU], [CPU]]
    assert opened.provider == "cpu"


def test_both_packages_are_reported(
    model: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "both_packages_installed", lambda: True)
    with pytest.raises(ProviderError) as caught:
        open_session(model, "cuda", ort=FakeOrt([CPU], [CPU]))
    assert "both installed" in caught.value.reason
    assert "pip uninstall -y onnxruntime onnxruntime-gpu" in caught.value.remedy
    assert "both installed" in caplog.text


def test_both_packages_are_named_even_where_cuda_is_listed(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "both_packages_installed", lambda: True)
    with pytest.raises(ProviderError, match="both installed"):
        open_session(model, "cuda", ort=FakeOrt(GPU_BUILD, [CPU]))


@pytest.mark.parametrize(
    ("installed", "both"),
    [
        ({"onnxruntime"}, False),
        ({"onnxruntime-gpu"}, False),
        ({"onnxruntime", "onnxruntime-gpu"}, True),
        (set(), False),
    ],
)
def test_both_packages_are_detected(monkeypatch: pytest.MonkeyPatch, installed: set[str], both: bool) -> None:
    def distribution(name: str) -> object:
        if name not in installed:
            raise importlib.metadata.PackageNotFoundError(name)
        return object()

    monkeypatch.setattr(importlib.metadata, "distribution", distribution)
    assert module.both_packages_installed() is both


def test_the_environment_stands_in_for_auto_only(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DECIDER_PROVIDER", "cuda")
    with pytest.raises(ProviderError):
        open_session(model, "auto", ort=FakeOrt([CPU], [CPU]))
    assert open_session(model, "cpu", ort=FakeOrt([CPU], [CPU])).provider == "cpu"


@pytest.mark.parametrize(("argument", "variable"), [("gpu", ""), ("auto", "tpu")])
def test_unknown_providers_are_refused(
    model: Path, monkeypatch: pytest.MonkeyPatch, argument: str, variable: str
) -> None:
    monkeypatch.setenv("DECIDER_PROVIDER", variable)
    with pytest.raises(ProviderError, match="'auto', 'cpu' or 'cuda'"):
        open_session(model, argument, ort=FakeOrt([CPU], [CPU]))


def test_without_onnxruntime_the_error_says_how_to_install_it(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingPackageError, match="pip install onnxruntime"):
        open_session(model)


def test_a_gutted_installation_is_recognised(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", ModuleType("onnxruntime"))
    with pytest.raises(MissingPackageError, match="files are incomplete"):
        open_session(model)


def test_a_missing_model_file_is_an_error_of_its_own(model: Path) -> None:
    with pytest.raises(ModelFileError):
        open_session(model.with_name("other.onnx"), ort=FakeOrt([CPU], [CPU]))


def test_an_emptied_folder_of_the_package_is_recognised(tmp_path: Path) -> None:
    """What uninstalling one of two clashing packages leaves behind: a folder that imports and holds nothing."""
    (tmp_path / "onnxruntime" / "capi").mkdir(parents=True)
    code = (
        "import sys; from decider.session import import_onnxruntime; from decider import MissingPackageError\n"
        f"sys.path[:] = [{str(tmp_path)!r}]\n"
        "try: import_onnxruntime()\n"
        "except MissingPackageError as error: print(error.problem, error.remedy)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "files are incomplete" in done.stdout
    assert "pip uninstall -y onnxruntime onnxruntime-gpu" in done.stdout


class ShiftedRunner:
    """Gives the logits of the tiny model, all of them moved."""

    def __init__(self, shift: float) -> None:
        self.runner = Decider.load(TINY, "cpu", threads=1)._runner
        self.shift = np.float32(shift)
        self.passes = 0

    def run(self, output_names: Sequence[str] | None, input_feed: Mapping[str, NDArray[np.int64]]) -> Sequence[object]:
        self.passes += 1
        return [np.asarray(self.runner.run(output_names, input_feed)[0]) + self.shift]


def load_with(monkeypatch: pytest.MonkeyPatch, runner: ShiftedRunner, provider: Provider, verify: bool) -> Decider:
    monkeypatch.setattr(model_module, "open_session", lambda *_, **__: OpenSession(runner, provider))
    return Decider.load(TINY, verify=verify)


@pytest.mark.parametrize("shift", [0.1, -0.1, float("nan")])
def test_cuda_that_does_not_give_the_golden_logits_is_refused(monkeypatch: pytest.MonkeyPatch, shift: float) -> None:
    with pytest.raises(ProviderError, match="golden") as caught:
        load_with(monkeypatch, ShiftedRunner(shift), "cuda", verify=False)
    assert caught.value.provider == "cuda"


@pytest.mark.parametrize(
    ("provider", "verify", "passes"), [("cuda", False, 1), ("cuda", True, 1), ("cpu", False, 0), ("cpu", True, 1)]
)
def test_cuda_is_always_warmed_up_against_the_golden_logits_and_the_cpu_on_demand(
    monkeypatch: pytest.MonkeyPatch, provider: Provider, verify: bool, passes: int
) -> None:
    runner = ShiftedRunner(1e-4)
    assert load_with(monkeypatch, runner, provider, verify).provider == provider
    assert runner.passes == passes


def test_a_cpu_that_is_verified_and_wrong_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ProviderError, match="golden") as caught:
        load_with(monkeypatch, ShiftedRunner(0.1), "cpu", verify=True)
    assert caught.value.provider == "cpu"


def test_the_silent_rewriting_of_int8_weights_is_switched_off() -> None:
    """Held against the graph as it stands in the file: ONNX Runtime's default rounds activations, ours does not."""
    decider = Decider.load(TINY, "cpu", threads=1)
    row = decider.encode("seats free: 3", {"q": Noul("Is it full?")}).request.rows[0]
    inputs = collate([row], decider.layout.graph.padding)
    ort = module.import_onnxruntime()

    def logits(options: object) -> NDArray[np.float32]:
        session = ort.InferenceSession(str(TINY / "model.onnx"), options, providers=[CPU])
        return np.asarray(session.run(["logits"], inputs)[0])

    as_written = ort.SessionOptions()
    as_written.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    exact = logits(as_written)
    assert np.abs(logits(module.session_options(ort)) - exact).max() < 1e-5
    assert np.abs(logits(ort.SessionOptions()) - exact).max() > 1e-3


def test_importing_the_package_does_not_import_onnxruntime() -> None:
    code = "import sys, decider; sys.exit('onnxruntime' in sys.modules or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
