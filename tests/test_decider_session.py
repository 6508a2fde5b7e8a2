"""Provider selection, held against a stand-in for ONNX Runtime, since no machine has every broken installation."""

from __future__ import annotations

import importlib.metadata
import logging
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from decider import MissingPackageError, ModelFileError, ProviderError
from decider import session as module
from decider.session import CPU, CUDA, open_session


class FakeSession:
    def __init__(self, providers: list[str]) -> None:
        self.providers = providers

    def get_providers(self) -> list[str]:
        return self.providers


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
    assert ort.sessions == [[(CUDA, {"use_tf32": "0"}), CPU]]
    assert ort.severities == [4, 2]


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
    assert ort.entries["session.disable_quant_qdq"] == "1"


def test_both_packages_are_reported(
    model: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "both_packages_installed", lambda: True)
    with pytest.raises(ProviderError) as caught:
        open_session(model, "cuda", ort=FakeOrt([CPU], [CPU]))
    assert "both installed" in caught.value.reason
    assert "pip uninstall -y onnxruntime onnxruntime-gpu" in caught.value.remedy
    assert "both installed" in caplog.text


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


def test_importing_the_package_does_not_import_onnxruntime() -> None:
    code = "import sys, decider; sys.exit('onnxruntime' in sys.modules or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
