"""The `quack` backend: what it says where it cannot run."""

from __future__ import annotations

import sys
from importlib import metadata, util
from typing import TYPE_CHECKING, Any

import pytest
from support import fake_quack
from support.quack_cases import H100, MI300, V100, case, spec

from mlpfusion.backends import quack as adapter
from mlpfusion.backends.quack import ACTIVATIONS, Quack
from mlpfusion.device import Device
from mlpfusion.errors import BackendUnavailableError

if TYPE_CHECKING:
    from support.fake_quack import Kernels

kernels = fake_quack.kernels  # a fixture


@pytest.fixture
def unloaded(monkeypatch: pytest.MonkeyPatch, kernels: Kernels) -> None:
    """Fail whatever imports the kernels."""

    def refuse() -> None:
        raise AssertionError("quack was imported")

    monkeypatch.setattr(adapter, "_kernels", refuse)


REASONS = [
    ({}, Device(kind="cpu", name="a CPU"), "need a GPU; this run is on the CPU"),
    ({}, V100, "compute capability 8 to 12; Tesla V100 has (7, 0)"),
    ({}, MI300, "for CUDA; AMD Instinct MI300X is a rocm device"),
    ({"activation": "gelu"}, H100, "no gated gelu; valid: gelu_tanh, silu, relu"),
    ({"dtype": "float32"}, H100, "float16 and bfloat16; these weights are float32"),
    ({"hidden_size": 36}, H100, "multiples of 8; hidden_size is 36"),
    ({"intermediate_size": 42}, H100, "multiples of 8; intermediate_size is 42"),
]


@pytest.mark.usefixtures("unloaded")
@pytest.mark.parametrize(("changes", "device", "text"), REASONS)
def test_limits_are_told_without_importing_quack(changes: dict[str, Any], device: Device, text: str) -> None:
    reason = Quack().unsupported(spec(**changes), device)
    assert reason is not None
    assert text in reason
    assert "\n" not in reason


@pytest.mark.usefixtures("unloaded")
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_what_quack_can_run_is_supported(activation: str, dtype: str) -> None:
    assert Quack().unsupported(spec(activation=activation, dtype=dtype, bias=True), H100) is None


@pytest.mark.usefixtures("unloaded")
@pytest.mark.parametrize(("version", "usable"), [("0.6.4", False), ("0.6.5", True), ("0.6.11", True), ("0.7", False)])
def test_other_versions_are_named(monkeypatch: pytest.MonkeyPatch, version: str, usable: bool) -> None:
    monkeypatch.setattr(metadata, "version", lambda _: version)
    reason = Quack().unsupported(spec(), H100)
    assert reason == (None if usable else f"quack-kernels {version} is installed, need quack-kernels>=0.6.5,<0.7")


def test_a_missing_package_is_named_as_pip_knows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(util, "find_spec", lambda _: None)
    assert "pip install 'mlpfusion[quack]'" in (Quack().unsupported(spec(), H100) or "")
    with pytest.raises(BackendUnavailableError, match=r"'quack'.*not installed"):
        Quack().bind(case().mlp)


def test_a_package_that_breaks_on_import_is_named(monkeypatch: pytest.MonkeyPatch, kernels: Kernels) -> None:
    monkeypatch.delattr(sys.modules["quack"], "gemm_interface")
    monkeypatch.setitem(sys.modules, "quack.gemm_interface", None)
    with pytest.raises(BackendUnavailableError, match=r"quack cannot be imported: \w*Error"):
        Quack().bind(case().mlp)
    assert kernels.calls == []
