"""The `hub` backend: where its kernel comes from, its reasons when it comes from nowhere, and both styles of layers."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest
import torch
from huggingface_hub import constants
from support import fake_hub, forked, liger_trees, rings
from support.paths import TESTS

from mlpfusion.backends import hub as hub_module
from mlpfusion.backends.hub import REPO, Hub
from mlpfusion.device import Device
from mlpfusion.errors import BackendUnavailableError, UsageError
from mlpfusion.module import GatedMLP
from mlpfusion.spec import MLPSpec

if TYPE_CHECKING:
    from pathlib import Path

CPU = Device(kind="cpu", name="a CPU")
H100 = Device(kind="cuda", name="NVIDIA H100 80GB HBM3", runtime="cuda", capability=(9, 0))
SPEC = MLPSpec(hidden_size=16, intermediate_size=40, dtype="float32")
TOLERANCE = 1e-5  # fp32 against fp64, relative to max(rms, |value|)

interpreted = pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") != "1", reason="runs in Triton's interpreter")


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No setting of the machine reaches these tests, and no kernel that was downloaded before."""
    for name in ("LOCAL_KERNELS", "MLPFUSION_HUB_REPO", "MLPFUSION_HUB_VERSION"):
        monkeypatch.delenv(name, raising=False)
    for name in [name for name in os.environ if name.startswith("HF_") or name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)  # for the processes that a test starts; this one has read them already
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", "https://huggingface.co")
    monkeypatch.setenv("KERNELS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What tried to reach a network; every attempt fails."""
    seen: list[Any] = []

    def refuse(*args: Any, **_: Any) -> None:
        seen.append(args)
        raise OSError("no network in this test")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    return seen


def use_tree(monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
    monkeypatch.setenv("LOCAL_KERNELS", f"{REPO}={directory}")


def ask(*pairs: tuple[dict[str, str], list[dict[str, Any]]]) -> list[list[dict[str, Any]]]:
    """The answers of hub_probe.py to requests under changes of the environment, each pair in a process of its own."""
    command = [sys.executable, str(TESTS / "support" / "hub_probe.py"), json.dumps(pairs)]
    done = forked.run(command)
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[{")]
    assert len(answers) == len(pairs)
    return answers


# ---- limits and settings ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "device", "text"),
    [
        ({}, CPU, "need a GPU; this run is on the CPU"),
        ({"activation": "gelu"}, H100, "no gated MLP with gelu"),
        ({"bias": True}, H100, "no biases"),
        ({"intermediate_size": 70000}, H100, "70000 is over 65536"),
        ({"intermediate_size": 70000, "activation": "silu"}, H100, "70000 is over 65536"),
    ],
)
def test_ligers_limits_come_first(
    changes: dict[str, Any],
    device: Device,
    text: str,
    connections: list[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "kernels", None)  # importing it fails
    fields = {"hidden_size": 16, "intermediate_size": 40, **changes}
    assert text in (Hub().unsupported(MLPSpec(**fields), device) or "")
    assert connections == []


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_module.util, "find_spec", lambda _: None)
    assert Hub().unsupported(SPEC, H100) == "kernels is not installed (pip install 'mlpfusion[hub]')"
    with pytest.raises(BackendUnavailableError, match=r"'hub'.*kernels is not installed"):
        Hub().bind(GatedMLP(SPEC))


@pytest.mark.parametrize("value", ["liger-kernels", "a/b/c", "/b", "a/", "a b/c", "a=b/c", ""])
def test_a_bad_repository_is_refused(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="MLPFUSION_HUB_REPO must be owner/name") as raised:
        Hub(repo=value)
    assert repr(value) in str(raised.value)
    monkeypatch.setenv("MLPFUSION_HUB_REPO", value)
    with pytest.raises(UsageError, match="MLPFUSION_HUB_REPO"):
        Hub()


@pytest.mark.parametrize("value", ["v1", "0", "-1", "1.0", "", "²", "one"])
def test_a_bad_version_is_refused(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLPFUSION_HUB_VERSION", value)
    with pytest.raises(UsageError, match="MLPFUSION_HUB_VERSION must be an integer from 1 to 2147483647") as raised:
        Hub()
    assert repr(value) in str(raised.value)


@pytest.mark.parametrize("value", [0, -3, True, 1.5])
def test_a_bad_version_argument_is_refused(value: Any) -> None:
    with pytest.raises(UsageError, match="an integer from 1"):
        Hub(version=value)


def test_arguments_win_over_the_environment_and_that_over_the_tutorial(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (Hub().repo, Hub().version) == ("kernels-community/liger-kernels", 1)
    monkeypatch.setenv("MLPFUSION_HUB_REPO", "someone/other")
    monkeypatch.setenv("MLPFUSION_HUB_VERSION", "3")
    assert (Hub().repo, Hub().version) == ("someone/other", 3)
    assert (Hub("a/b", 2).repo, Hub("a/b", 2).version) == ("a/b", 2)


# ---- LOCAL_KERNELS ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("style", "version"), [("v1", "version 1"), ("v2", "version 2 (requested: 1)")])
def test_a_local_tree_is_found_without_a_network(
    style: str, version: str, connections: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    liger_trees.build(tmp_path, style=style)
    use_tree(monkeypatch, tmp_path)
    hub = Hub()
    assert hub.unsupported(SPEC, H100) is None
    assert hub.origin == f"{REPO} {version}, from LOCAL_KERNELS"
    assert list(hub.loaded) == [REPO]
    assert hub.loaded[REPO].endswith(", from LOCAL_KERNELS")
    assert connections == []


@interpreted
@pytest.mark.parametrize("style", rings.only_first(liger_trees.STYLES))
def test_each_style_matches_fp64_forward_and_backward(style: str, tmp_path: Path) -> None:
    liger_trees.build(tmp_path, style=style)
    ((answer,),) = ask(({"LOCAL_KERNELS": f"{REPO}={tmp_path}"}, [{"bind": True}]))
    assert answer["reason"] is None
    assert answer["error"] < TOLERANCE


@interpreted
@pytest.mark.parametrize("style", liger_trees.STYLES)
def test_backward_runs_once_and_at_first_order(style: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    liger_trees.build(tmp_path, style=style)
    use_tree(monkeypatch, tmp_path)
    mlp = GatedMLP(SPEC)
    call = Hub().bind(mlp)
    geglu = sys.modules[f"{liger_trees.identifier(tmp_path, style)}.geglu"]
    # One launch of the kernels as they are would fail on the missing libdevice.tanh; the forward's values play no part.
    monkeypatch.setattr(geglu, "geglu_forward", lambda a, b: (a, b, a * b))
    monkeypatch.setattr(geglu, "geglu_backward", lambda a, b, dc: (a, b))
    x = torch.randn(2, 16, requires_grad=True)
    with pytest.raises(BackendUnavailableError, match=r"'hub'.*create_graph=True"):
        torch.autograd.grad(call(x).sum() + (x**3).sum(), x, create_graph=True)
    y = call(x).sum()
    y.backward(retain_graph=True)
    with pytest.raises(BackendUnavailableError, match=r"'hub'.*second backward"):
        y.backward()


def rename_build(tree: Path) -> None:
    (tree / "build" / liger_trees.VARIANT).rename(tree / "build" / "torch-rocm")


def in_build(change: str, tree: Path) -> None:
    build = tree / "build" / liger_trees.VARIANT
    match change:
        case "no metadata":
            (build / "metadata.json").unlink()
        case "torn metadata":
            (build / "metadata.json").write_text('{"id": ')
        case "no code":
            (build / "__init__.py").unlink()
        case "broken code":
            (build / "layers.py").write_text("raise RuntimeError('two\\nlines')")
        case "no layers":
            (build / "__init__.py").write_text("")
        case "another system's build":
            rename_build(tree)
        case "no build":
            shutil.rmtree(tree / "build")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ("no metadata", "metadata.json"),
        ("torn metadata", "EOF"),
        ("no code", "No kernel module found"),
        ("broken code", "two lines"),
        ("no layers", "has no layers.LigerGEGLUMLP"),
        ("another system's build", "torch-rocm: backend (rocm) does not match"),
        ("no build", "Cannot find a build variant"),
    ],
)
def test_a_broken_tree_is_described(
    change: str, text: str, connections: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    liger_trees.build(tmp_path)
    in_build(change, tmp_path)
    use_tree(monkeypatch, tmp_path)
    reason = Hub().unsupported(SPEC, H100)
    assert reason is not None
    assert text in reason
    assert "\n" not in reason
    with pytest.raises(BackendUnavailableError, match="'hub'"):
        Hub().bind(GatedMLP(SPEC))
    assert connections == []


def test_a_missing_layer_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    liger_trees.build(tmp_path, layers=("LigerSwiGLUMLP",))
    use_tree(monkeypatch, tmp_path)
    assert (Hub().unsupported(SPEC, H100) or "").endswith("has no layers.LigerGEGLUMLP")
    with pytest.raises(BackendUnavailableError, match=r"no layers\.LigerGEGLUMLP"):
        Hub().bind(GatedMLP(SPEC))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (f"{REPO}=nowhere", "LOCAL_KERNELS names nowhere for kernels-community/liger-kernels, which is no directory"),
        ("just-a-path", "LOCAL_KERNELS must be owner/name=DIRECTORY"),
        ("", "LOCAL_KERNELS must be owner/name=DIRECTORY"),
    ],
)
def test_a_bad_override_is_named(
    value: str, text: str, connections: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCAL_KERNELS", value)
    assert text in (Hub().unsupported(SPEC, H100) or "")
    assert connections == []


# ---- the cache and the Hub -------------------------------------------------------------------------------------------


def cache(directory: Path, commit: str, *, style: str = "v1") -> Path:
    snapshot = directory / "kernels--kernels-community--liger-kernels" / "snapshots" / commit
    liger_trees.build(snapshot, style=style)
    return snapshot


def test_a_cached_version_needs_no_network(empty_cache: Path, connections: list[Any]) -> None:
    cache(empty_cache, "c0ffee")
    hub = Hub()
    assert hub.unsupported(SPEC, H100) is None
    assert hub.origin == f"{REPO} version 1, revision c0ffee, from the cache"
    assert hub.loaded == {REPO: "version 1, revision c0ffee"}
    assert connections == []


def test_another_cached_version_does_not_do(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache(empty_cache, "c0ffee", style="v2")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert Hub().unsupported(SPEC, H100) == f"HF_HUB_OFFLINE is set and {REPO} version 1 is not in the local cache"
    assert Hub(version=2).unsupported(SPEC, H100) is None


def test_a_torn_download_is_passed_over(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, torn = cache(empty_cache, "aaaa"), cache(empty_cache, "bbbb")
    (torn / "build" / liger_trees.VARIANT / "swiglu.py").unlink()
    os.utime(whole, (1, 1))
    hub = Hub()
    assert hub.unsupported(SPEC, H100) is None
    assert "revision aaaa" in (hub.origin or "")
    shutil.rmtree(whole)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert "swiglu" in (Hub().unsupported(SPEC, H100) or "")


def test_no_network_is_the_reason_and_not_the_trust_check(connections: list[Any]) -> None:
    reason = Hub().unsupported(SPEC, H100)
    assert reason is not None
    assert reason.startswith("cannot reach https://")
    assert "no network in this test" in reason
    assert connections
    with pytest.raises(BackendUnavailableError, match="'hub' is unavailable: cannot reach"):
        Hub().bind(GatedMLP(SPEC))


def test_a_name_server_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: answered.wait())
    monkeypatch.setattr(hub_module, "ANSWER_S", 0.1)
    monkeypatch.setattr(hub_module, "LEAST_PROBE_S", 0.1)
    assert "did not answer within" in (Hub().unsupported(SPEC, H100) or "")
    assert not answered.is_set()  # it has not answered yet
    answered.set()


@pytest.mark.full  # two processes and a server
@interpreted
def test_the_hub_is_asked_and_its_kernel_downloaded_then_used_offline(tmp_path: Path) -> None:
    good, elsewhere = tmp_path / "good", tmp_path / "elsewhere"
    liger_trees.build(good)
    liger_trees.build(elsewhere)
    rename_build(elsewhere)
    repositories = {REPO: good, "stranger/liger-kernels": good, "kernels-community/elsewhere": elsewhere}
    requests: list[dict[str, Any]] = [
        {"repo": "kernels-community/absent"},
        {"repo": "kernels-community/elsewhere"},
        {"repo": "stranger/liger-kernels", "bind": True},
        {"version": 9},
        {"repo": "kernels-community/stalled", "answer_s": 1},
        {"bind": True},
    ]
    local = {"HF_HOME": str(tmp_path / "home"), "KERNELS_CACHE": str(tmp_path / "cache")}
    with fake_hub.serve(repositories) as address:
        online, offline = ask(
            ({**local, "HF_ENDPOINT": address}, requests),
            ({**local, "HF_HUB_OFFLINE": "1"}, [{"bind": True}, {"version": 2}]),
        )
    absent, other, stranger, version, stalled, loaded = online
    assert absent["reason"] == f"the repository does not exist on {address}, or is private"
    assert other["reason"].startswith(
        "no build of kernels-community/elsewhere version 1 fits this system: torch-rocm: "
    )
    assert "not trusted" in stranger["reason"]
    assert stranger["refusal"] == stranger["reason"]
    assert version["reason"] == f"{REPO} has no version 9; published: 1"
    assert stalled["reason"] == f"{address} did not answer within 1 s"
    assert loaded["reason"] is None
    assert loaded["error"] < TOLERANCE
    assert loaded["origin"] == f"{REPO} version 1, revision {fake_hub.COMMIT}, from the Hub"

    cached, absent = offline
    assert cached["reason"] is None
    assert cached["error"] < TOLERANCE
    assert cached["origin"] == f"{REPO} version 1, revision {fake_hub.COMMIT}, from the cache"
    assert absent["reason"] == f"HF_HUB_OFFLINE is set and {REPO} version 2 is not in the local cache"
