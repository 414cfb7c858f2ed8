"""The worker's probes of who computes a result: launches, operators, late threads, and results of earlier calls."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from support.runs_made import run_of
from torch import Tensor
from triton.runtime.jit import JITFunction

from mlpfusion.stages.validate.channel import PATTERNS
from mlpfusion.stages.validate.worker import author_probes, guard, launches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

GIVEN = {
    "gate": torch.tensor([1.0, -2.0, 3.0]),
    "up": torch.tensor([2.0, 5.0, -1.0]),
    "dy": torch.tensor([1.0, 2.0, 4.0]),
}
RIGHT = GIVEN["gate"] * GIVEN["up"]


@pytest.fixture(autouse=True)
def _own_allocators() -> Iterator[None]:
    yield
    guard.restore()


# ---- launches and operators ------------------------------------------------------------------------------------------


@pytest.fixture
def launch(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """What stands for the launch of a Triton kernel: gate·up is written into `out`."""

    def run(gate: Tensor, up: Tensor, out: Tensor) -> None:
        out.copy_(gate * up)

    monkeypatch.setattr(JITFunction, "run", run)
    launches.install()
    return JITFunction.run


@pytest.mark.parametrize("captures", [False, True])
def test_a_replay_is_a_launch_too(launch: Callable[..., None], monkeypatch: pytest.MonkeyPatch, captures: bool) -> None:
    """Of a graph that was captured in the call, or in one before."""
    made: list[Any] = []
    monkeypatch.setattr(torch.cuda.CUDAGraph, "replay", lambda self: self[0].copy_(self[1]))
    launches.install()

    def replaying(gate: Tensor, up: Tensor) -> Tensor:
        out = torch.empty_like(gate)
        if captures and not made:
            launch(gate, up, torch.empty_like(gate))
            made.append(True)
        torch.cuda.CUDAGraph.replay((out, gate * up))  # type: ignore[arg-type]
        return out

    results, facts = author_probes.ablated(run_of(replaying), GIVEN, {})
    assert torch.equal(results["y"], RIGHT)
    assert (facts["launched"], facts["replays"], facts["operators"]) == (int(captures), 1, [])
    assert set(results) == {"y", *(f"without {pattern}" for pattern in PATTERNS if captures)}
    assert not any(torch.equal(value, RIGHT) for name, value in results.items() if name != "y")


def test_a_result_that_a_launch_made_is_another_without_it(launch: Callable[..., None]) -> None:
    def launching(gate: Tensor, up: Tensor) -> Tensor:
        out = torch.empty_like(gate)
        launch(gate, up, out)
        return out

    results, facts = author_probes.ablated(run_of(launching), GIVEN, {})
    assert facts == {"launched": 1, "tried": 1, "replays": 0, "operators": []}
    assert torch.equal(results["y"], RIGHT)
    assert set(results) == {"y", *(f"without {pattern}" for pattern in PATTERNS)}
    assert bool(results["without nan"].isnan().all())
    assert all(bool((results[f"without {name}"] == PATTERNS[name]).all()) for name in PATTERNS if name != "nan")


def test_a_launch_whose_result_is_not_used_changes_nothing(launch: Callable[..., None]) -> None:
    def decorated(gate: Tensor, up: Tensor) -> Tensor:
        for _ in range(2):
            launch(gate, up, torch.empty_like(gate))
        return gate * up

    results, facts = author_probes.ablated(run_of(decorated), GIVEN, {})
    assert (facts["launched"], facts["tried"]) == (2, 2)
    assert all(torch.equal(each, results["y"]) for each in results.values())


def test_what_is_multiplied_by_0_shows_in_one_of_the_patterns(launch: Callable[..., None]) -> None:
    def added(gate: Tensor, up: Tensor) -> Tensor:
        out = torch.empty_like(gate)
        launch(gate, up, out)
        return gate * up + 0 * out

    results, _ = author_probes.ablated(run_of(added), GIVEN, {})
    assert bool(results["without nan"].isnan().all())
    assert torch.equal(results["without odd"], results["y"])


def test_a_call_that_raises_without_its_launches_says_how(launch: Callable[..., None]) -> None:
    def checking(gate: Tensor, up: Tensor) -> Tensor:
        out = torch.zeros_like(gate)
        launch(gate, up, out)
        if not bool(out.any()):
            raise ZeroDivisionError
        return out

    results, facts = author_probes.ablated(run_of(checking), GIVEN, {})
    assert list(results) == ["y"]
    assert facts["raised"] == "ZeroDivisionError"


OTHERS = GIVEN | {"other:gate": torch.tensor([4.0, 0.5, 9.0]), "other:up": torch.tensor([3.0, 6.0, -2.0])}
OF_OTHERS = OTHERS["other:gate"] * OTHERS["other:up"]


def written(launch: Callable[..., None], gate: Tensor, up: Tensor) -> Tensor:
    out = torch.empty_like(gate)
    launch(gate, up, out)
    return out


def times_one(launch: Callable[..., None], gate: Tensor, up: Tensor) -> Tensor:
    one = torch.ones_like(gate)
    return gate * up * written(launch, one, one)


def asked_for(launch: Callable[..., None], gate: Tensor, up: Tensor) -> Tensor:
    if float(written(launch, torch.tensor(2.0), torch.tensor(3.0))) != 6:
        raise ZeroDivisionError
    return gate * up


def copied(launch: Callable[..., None], gate: Tensor, up: Tensor) -> Tensor:
    y = gate * up
    return written(launch, y, torch.ones_like(y))


@pytest.mark.parametrize("decoy", [times_one, asked_for, copied])
def test_what_launches_write_that_no_operand_changes_makes_no_result(launch: Callable[..., None], decoy: Any) -> None:
    results, _ = author_probes.ablated(run_of(lambda gate, up: decoy(launch, gate, up)), OTHERS, {})
    assert torch.equal(results["exchanged"], RIGHT)
    assert not any(torch.equal(each, RIGHT) for name, each in results.items() if name.startswith("without"))


@pytest.mark.parametrize("grad", [False, True])
def test_what_a_launch_makes_of_its_operands_is_that_of_the_others(launch: Callable[..., None], grad: bool) -> None:
    def launching(gate: Tensor, up: Tensor) -> Tensor:
        assert gate.requires_grad is grad
        assert torch.is_grad_enabled() is grad
        out = gate.detach().clone()
        launch(gate.detach(), up.detach(), out)
        return out

    results, _ = author_probes.ablated(run_of(launching), OTHERS, {"grad": grad})
    assert torch.equal(results["y"], RIGHT)
    assert torch.equal(results["exchanged"], OF_OTHERS)


@pytest.mark.parametrize("unknown", [2**40, SimpleNamespace(data_ptr=lambda: 0)])
def test_what_a_launch_does_by_addresses_is_not_known(monkeypatch: pytest.MonkeyPatch, unknown: Any) -> None:
    monkeypatch.setattr(JITFunction, "run", lambda gate, up, out, address: out.copy_(gate * up))
    launches.install()

    def launching(gate: Tensor, up: Tensor) -> Tensor:
        out = torch.empty_like(gate)
        JITFunction.run(gate, up, out, unknown)
        return out

    assert "exchanged" not in author_probes.ablated(run_of(launching), OTHERS, {})[0]


@pytest.mark.parametrize("captures", [False, True])
def test_what_a_graph_writes_is_not_known(
    launch: Callable[..., None], monkeypatch: pytest.MonkeyPatch, captures: bool
) -> None:
    """Beside a launch, or once a first call has captured it."""
    made: list[Any] = []
    monkeypatch.setattr(torch.cuda.CUDAGraph, "replay", lambda self: None)
    launches.install()

    def replaying(gate: Tensor, up: Tensor) -> Tensor:
        out = torch.empty_like(gate)
        if not captures or not made:
            launch(gate, up, out)
            made.append(out)
        torch.cuda.CUDAGraph.replay(None)  # type: ignore[arg-type]
        return out.copy_(gate * up)

    assert "exchanged" not in author_probes.ablated(run_of(replaying), OTHERS, {})[0]


def test_what_is_launched_in_the_first_call_alone_is_not_exchanged(launch: Callable[..., None]) -> None:
    made: list[Any] = []

    def packing(gate: Tensor, up: Tensor) -> Tensor:
        made.append(None if made else launch(gate, up, torch.empty_like(gate)))
        return gate * up

    results, facts = author_probes.ablated(run_of(packing), OTHERS, {})
    assert (facts["launched"], "exchanged" in results) == (1, False)


def test_calls_of_other_launches_cannot_be_exchanged(launch: Callable[..., None]) -> None:
    def launching(gate: Tensor, up: Tensor) -> Tensor:
        return written(launch, gate, up) if gate[0] > 3 else written(launch, gate[None], up[None])[0]

    assert "exchanged" not in author_probes.ablated(run_of(launching), OTHERS, {})[0]


def test_without_launches_the_operators_that_compute_are_named_once_and_those_that_move_are_not() -> None:
    def operators(gate: Tensor, up: Tensor) -> Tensor:
        both = torch.cat((gate, up)).view(2, 3).clone().contiguous()
        return both[0] * both[1] * torch.ones(3).tanh().tanh()

    facts = author_probes.ablated(run_of(operators), GIVEN, {})[1]
    assert (facts["launched"], facts["tried"]) == (0, 0)
    assert sorted(set(facts["operators"]) - {"ones"}) == ["mul", "tanh"]
    assert len(set(facts["operators"])) == len(facts["operators"])


@pytest.mark.parametrize(
    ("event", "shown"),
    [
        ("aten::gelu", "gelu"),
        ("aten::copy_", None),
        ("mine::act", "mine::act"),
        ("Torch-Compiled Region: 3/0", "a region compiled by torch.compile"),
        ("[memory]", None),
        ("autograd::engine::evaluate_function: MulBackward0", None),
        ("cudaLaunchKernel", None),
    ],
)
def test_events_of_a_profile_in_words(event: str, shown: str | None) -> None:
    assert author_probes._shown(event) == shown


# ---- late results ----------------------------------------------------------------------------------------------------


@pytest.fixture
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(author_probes, "LATE_S", 1e-3)


@pytest.mark.usefixtures("_quick")
@pytest.mark.parametrize("grad", [False, True])
def test_what_is_done_when_a_call_returns_stays_as_it_was(grad: bool) -> None:
    results, facts = author_probes.late(run_of(torch.mul), GIVEN, {"grad": grad})
    assert facts == {"threads": []}
    wanted = {"y": RIGHT} | ({"d:gate": GIVEN["dy"] * GIVEN["up"], "d:up": GIVEN["dy"] * GIVEN["gate"]} if grad else {})
    assert set(results) == {f"{when} {name}" for when in ("first", "last") for name in wanted}
    for name, right in wanted.items():
        for when in ("first", "last"):
            calls = author_probes.REPEATS * (2 if grad and name == "y" else 1)  # of which half train nothing
            assert torch.equal(results[f"{when} {name}"], right.expand(calls, 3))


def test_a_thread_that_writes_later_shows_in_the_last_results_and_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(author_probes, "LATE_S", 30.0)  # joined as soon as it ends
    monkeypatch.setattr(author_probes.time, "sleep", lambda seconds: None)

    def unfinished(gate: Tensor, up: Tensor) -> Tensor:
        out = torch.zeros_like(gate)
        begun = threading.Event()

        def work() -> None:
            begun.wait()
            out.copy_(gate * up)

        threading.Thread(target=work, name="late one", daemon=True).start()
        released.append(begun)
        return out

    released: list[threading.Event] = []
    taken = author_probes._taken

    def take(tensor: Tensor) -> Tensor:
        found = taken(tensor)
        for each in released:
            each.set()
        return found

    monkeypatch.setattr(author_probes, "_taken", take)
    results, facts = author_probes.late(run_of(unfinished), GIVEN, {"grad": False})
    assert facts == {"threads": ["late one"]}
    assert torch.equal(results["first y"], torch.zeros(author_probes.REPEATS, 3))
    assert torch.equal(results["last y"], RIGHT.expand(author_probes.REPEATS, 3))


@pytest.mark.parametrize(
    "tensor",
    [torch.arange(6.0).view(2, 3), torch.arange(6.0).view(2, 3).t(), torch.ones(0, 4), torch.tensor(3.0)],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_is_taken_is_a_copy(tensor: Tensor, dtype: torch.dtype) -> None:
    original = tensor.to(dtype)
    copy = author_probes._taken(original)
    assert torch.equal(copy, original)
    assert copy.dtype is dtype
    assert copy.data_ptr() != original.data_ptr() or not original.numel()


# ---- results of earlier calls ----------------------------------------------------------------------------------------

SETS = 3
MANY = {f"{index}:{name}": tensor + index for index in range(SETS) for name, tensor in GIVEN.items()}
OPTIONS = {"sets": SETS, "calls": 40, "seconds": 600.0, "seed": 1}


def test_a_function_of_its_operands_gives_each_set_its_result() -> None:
    results, facts = author_probes.many(run_of(torch.mul), MANY, OPTIONS)
    assert facts == {"done": 40}
    assert set(results) == {f"y:{index}" for index in range(SETS)}
    for index in range(SETS):
        assert torch.equal(results[f"y:{index}"], MANY[f"{index}:gate"] * MANY[f"{index}:up"])


def by_address(cache: dict[Any, Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """Results kept by the addresses of operands, whatever their values."""

    def call(gate: Tensor, up: Tensor) -> Tensor:
        key = gate.data_ptr(), gate._version
        return cache.setdefault(key, gate * up).clone()

    return call


def after(calls: int) -> Callable[[Tensor, Tensor], Tensor]:
    """Right for so many calls, then wrong."""
    done = []

    def call(gate: Tensor, up: Tensor) -> Tensor:
        done.append(1)
        return gate * up * (1.0 if len(done) <= calls else 1.5)

    return call


@pytest.mark.parametrize("calls", [5, 24])
def test_the_first_call_that_differs_is_told_with_its_set(calls: int) -> None:
    results, facts = author_probes.many(run_of(after(calls)), MANY, OPTIONS)
    assert facts["at"] == facts["done"] == calls + 1
    assert facts["moved"] is (calls % 5 == 4)
    torch.testing.assert_close(results["y"], 1.5 * results[f"y:{facts['index']}"])


def test_a_result_that_is_kept_by_an_address_is_found() -> None:
    results, facts = author_probes.many(run_of(by_address({})), MANY, OPTIONS)
    assert "at" in facts
    assert not torch.equal(results["y"], results[f"y:{facts['index']}"])


def test_without_time_each_set_is_still_called_once() -> None:
    results, facts = author_probes.many(run_of(torch.mul), MANY, OPTIONS | {"seconds": 0.0})
    assert facts == {"done": SETS}
    assert len(results) == SETS


LATER = GIVEN | {f"other:{name}": GIVEN[name] + 1 for name in ("gate", "up")}


@pytest.mark.parametrize("seconds", [600.0, 0.0])
def test_the_last_of_many_calls_is_given_and_one_on_new_values_in_their_places(seconds: float) -> None:
    seen = []

    def call(gate: Tensor, up: Tensor) -> Tensor:
        seen.append((gate.data_ptr(), up.data_ptr(), torch.is_grad_enabled()))
        return gate * up

    results, facts = author_probes.timed(run_of(call), LATER, {"calls": 7, "seconds": seconds})
    assert facts == {"calls": 7 if seconds else 1}
    assert len(seen) == facts["calls"] + 1
    assert len(set(seen)) == 1
    assert not seen[0][2]
    assert torch.equal(results["timed"], RIGHT)
    assert torch.equal(results["fresh"], LATER["other:gate"] * LATER["other:up"])


def test_a_last_timed_result_that_is_overwritten_later_is_as_it_was() -> None:
    out = torch.empty(3)
    results, _ = author_probes.timed(
        run_of(lambda gate, up: torch.mul(gate, up, out=out)), LATER, {"calls": 2, "seconds": 600.0}
    )
    assert torch.equal(results["timed"], RIGHT)
    assert not torch.equal(results["fresh"], RIGHT)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_results_are_alike_but_for_the_order_of_sums(dtype: torch.dtype) -> None:
    y = torch.tensor([1.0, -4.0, 0.0], dtype=dtype)
    eps = torch.finfo(dtype).eps
    assert author_probes._alike(y + 8 * eps, y)
    assert not author_probes._alike(y + torch.tensor([0.0, 0.0, 64 * eps], dtype=dtype), y)
    assert not author_probes._alike(y * float("nan"), y)
    assert not author_probes._alike(y[:2], y)
    assert not author_probes._alike(y.double(), y)
