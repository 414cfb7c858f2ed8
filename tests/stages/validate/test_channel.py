"""The parts of a validation that need no worker: messages, watched memory, layouts, autotuners, verdict words."""

from __future__ import annotations

import math
import types
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given, settings
from hypothesis import strategies as st

from mlpfusion.errors import UsageError
from mlpfusion.records.validation import Checked, Verdict
from mlpfusion.report.validation import page as verdict_page
from mlpfusion.spec import DTYPES as DTYPES_ALL
from mlpfusion.stages.validate import channel
from mlpfusion.stages.validate.channel import PATTERNS
from mlpfusion.stages.validate.judge import baselines, bounds, examine
from mlpfusion.stages.validate.judge.checks import modes, registry
from mlpfusion.stages.validate.judge.exam import UndecidableError, shape_text
from mlpfusion.stages.validate.layouts import LAYOUTS, halves
from mlpfusion.stages.validate.worker import autotuners, emulation, guard, probes

if TYPE_CHECKING:
    from collections.abc import Iterator

DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.bool]


@settings(max_examples=40)
@given(
    shape=st.lists(st.integers(0, 5), max_size=4),
    dtype=st.sampled_from(DTYPES),
    seed=st.integers(0, 1000),
    transposes=st.booleans(),
)
def test_a_tensor_arrives_as_it_was_sent(shape: list[int], dtype: torch.dtype, seed: int, transposes: bool) -> None:
    generator = torch.Generator().manual_seed(seed)
    tensor = (torch.randn(shape, generator=generator) * 3).to(dtype)
    if transposes and tensor.dim() > 1:
        tensor = tensor.transpose(0, 1)
    message = channel.Ask(probe="forward", tensors=channel.pack({"x": tensor}), options={"times": 3})
    arrived = channel.decode_request(channel.encode(message))
    assert isinstance(arrived, channel.Ask)
    assert torch.equal(channel.unpack(arrived.tensors)["x"], tensor)
    assert arrived.options == {"times": 3}


def test_nan_payloads_and_subnormals_keep_their_bits() -> None:
    bits = torch.arange(2**16, dtype=torch.int32).to(torch.int16)
    for dtype in (torch.float16, torch.bfloat16):
        arrived = channel.unpack(channel.pack({"x": bits.view(dtype)}))["x"]
        assert torch.equal(arrived.view(torch.int16), bits)


@pytest.fixture(autouse=True)
def _own_allocators() -> Iterator[None]:
    yield
    guard.restore()


@pytest.mark.parametrize("pattern", ["nan", "odd"])
def test_watched_memory_is_filled_and_its_margin_counted(pattern: str) -> None:
    value = PATTERNS[pattern]
    with guard.watch(pattern) as watched:
        made = [torch.empty(3, 5), torch.empty_like(torch.ones(4)), torch.ones(2).new_empty(7)]
        integers = torch.empty(3, dtype=torch.int64)
        for tensor in made:
            assert (tensor.isnan() if math.isnan(value) else tensor == value).all()
            assert tensor.is_contiguous()
            assert tensor.storage_offset() == 0
        assert integers.shape == (3,)
        assert watched.overwritten() == {"behind": 0, "farthest": 0}
        first = made[0]
        torch.as_strided(first, (2,), (1,), 15).fill_(1.0)  # as a kernel does whose mask lets too much through
        assert watched.overwritten() == {"behind": 2, "farthest": 2}
    assert torch.empty(3).untyped_storage().nbytes() == 12  # nothing is watched any more


def test_a_watched_tensor_keeps_strides_and_gradients() -> None:
    with guard.watch("nan"):
        turned = torch.empty_like(torch.ones(3, 4).t())
        wants = torch.empty(3, requires_grad=True)
    assert turned.stride() == (1, 4)
    assert wants.requires_grad
    assert wants.is_leaf


def test_a_placed_operand_has_nan_behind_it() -> None:
    placed = guard.place(torch.arange(6.0).view(2, 3), torch.device("cpu"))
    assert torch.equal(placed, torch.arange(6.0).view(2, 3))
    assert torch.as_strided(placed, (4,), (1,), 6).isnan().all()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_keep_values_and_are_not_dense(layout: str) -> None:
    x = torch.arange(24.0).view((2, 2, 6) if layout == "permuted" else (4, 6))
    laid = LAYOUTS[layout](x)
    if layout == "expanded":
        assert torch.equal(laid, x[:1].expand(4, 6))
    elif layout == "expanded along its last dimension":
        assert torch.equal(laid, x[:, :1].expand(4, 6))
    elif layout == "one row of stride 1":
        assert torch.equal(laid, x[:1])
        assert laid.stride(0) == 1
    else:
        assert torch.equal(laid, x)
    assert not (laid.is_contiguous() and laid.storage_offset() == 0) or layout == "one row of stride 1"


def test_halves_of_one_tensor_share_it() -> None:
    gate, up = torch.arange(6.0).view(2, 3), torch.arange(6.0, 12.0).view(2, 3)
    first, second = halves(gate, up)
    assert torch.equal(first, gate)
    assert torch.equal(second, up)
    assert first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()
    assert first.stride() == second.stride() == (6, 1)


@triton.autotune(configs=[triton.Config({"BLOCK": 16}), triton.Config({"BLOCK": 32})], key=["n"])
@triton.jit
def tuned_kernel(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets, mask=offsets < n), mask=offsets < n)


class Launches(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return deeper(x)


def deeper(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    tuned_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel())
    return out


def calls_a_function(x: torch.Tensor) -> torch.Tensor:
    return Launches.apply(x)


def test_kernels_are_found_behind_functions_and_pinned() -> None:
    found = autotuners.reachable(calls_a_function)
    assert found == [tuned_kernel]
    assert autotuners.reachable(torch.nn.functional.gelu) == []
    pins = autotuners.Pins(found)
    assert pins.count == 2
    x = torch.arange(40.0)
    for index, block in enumerate(("16", "32")):
        pins.pin(index)
        assert f"BLOCK: {block}" in pins.said()
        assert torch.equal(calls_a_function(x), x)
    pins.pin(None)
    assert len(tuned_kernel.configs) == 2


@triton.jit
def four_kernel(g, u, o, count, B: tl.constexpr, ACT: tl.constexpr):
    pass


def test_a_bare_kernel_is_told_how_to_become_a_target() -> None:
    assert autotuners.jit_function(tuned_kernel) is tuned_kernel
    assert autotuners.jit_function(deeper) is None
    tuned = autotuners.wrapping(tuned_kernel)  # BLOCK is what its configurations set
    assert "tuned_kernel[lambda meta: (triton.cdiv(n, meta['BLOCK']),)](x=..., out=..., n=...); return out" in tuned
    plain = autotuners.wrapping(four_kernel)
    assert "four_kernel[(triton.cdiv(n, 1024),)](g=gate, u=up, o=out, count=n, B=1024, ACT=...)" in plain
    heuristic = autotuners.wrapping(triton.heuristics({"B": lambda args: 64, "ACT": lambda args: 0})(four_kernel))
    assert "four_kernel[lambda meta: (triton.cdiv(n, meta['B']),)](g=gate, u=up, o=out, count=n); " in heuristic


def test_errors_of_the_interpreter_are_its_own() -> None:
    from triton.runtime.errors import InterpreterError

    wrapped = ValueError("a launch failed")
    wrapped.__cause__ = InterpreterError("unsupported operand")
    assert emulation.is_limit(wrapped)
    assert emulation.is_limit(RuntimeError("0 active drivers ([]). There should only be one."))
    assert not emulation.is_limit(ValueError("gate and up differ"))


def test_faster_needs_the_whole_interval_and_one_percent() -> None:
    def word(*ratios: float) -> str:
        mine: list[float | None] = list(ratios)
        return baselines.verdict_on(baselines.ratio_of(mine, [1.0] * len(ratios), "eager"))

    assert word(*[0.9] * 20) == "faster"
    assert word(*[1.1] * 20) == "slower"
    assert word(*[0.995] * 20) == "same within noise"  # within the band of 1%
    assert word(*[0.8, 1.2] * 10) == "same within noise"
    with pytest.raises(UndecidableError, match="3 rounds are too few"):
        word(0.9, 0.9, 0.9)


def checked(name: str, status: str, *, hazard: bool = False) -> Checked:
    return Checked(name=name, looked_at="", status=status, sentence=f"of {name}", repro="", hazard=hazard)  # type: ignore[arg-type]


RIGHT = [checked("runs", "pass"), checked("elementwise", "pass")]
LOADED = channel.Loaded(kind="act_mul", described="a function")


@pytest.mark.parametrize(
    ("checks", "word", "headline"),
    [
        ([*RIGHT, checked("backward", "pass")], "valid", "every check passed"),
        ([*RIGHT, checked("backward", "not decidable here")], "not decidable here", "backward: of backward"),
        ([*RIGHT, checked("differentiable", "reported")], "valid", "every check passed; forward only"),
        (
            [*RIGHT, checked("differentiable", "reported"), checked("differentiable", "pass")],
            "not decidable here",
            "differentiable",
        ),
        ([checked("runs", "pass"), checked("elementwise", "not decidable here")], "not decidable here", "elementwise"),
        ([checked("elementwise", "fail"), checked("backward", "fail")], "not valid", "elementwise: of elementwise"),
        (
            [*RIGHT, checked("backward", "pass"), checked("saved-kept", "reported", hazard=True)],
            "valid with hazards",
            "saved-kept: of saved-kept",
        ),
        ([checked("runs", "reported"), checked("runs", "reported")], "not decidable here", "no dtype can be judged"),
        ([checked("elementwise", "fail"), checked("saved-kept", "reported", hazard=True)], "not valid", "elementwise"),
    ],
)
def test_the_word_of_a_verdict(checks: list[Checked], word: str, headline: str) -> None:
    found = examine.conclude(checks, LOADED, only=None)
    assert found[0] == word
    assert found[1].startswith(headline)


NARROW = ("store",)
IN_FLOAT32 = [msgspec.structs.replace(checked("runs", "pass"), dtype="float32")]


@pytest.mark.parametrize(
    ("checks", "only", "word", "headline"),
    [
        (IN_FLOAT32, ("runs",), "not decidable here", "it runs; none of the deciding checks was requested"),
        (IN_FLOAT32, NARROW, "not decidable here", "none of the requested checks is for float32"),
        (IN_FLOAT32, ("tf32",), "not decidable here", "none of the requested checks is for a function"),
        ([*IN_FLOAT32, checked("store", "not decidable here")], NARROW, "not decidable here", "store: of store"),
        ([*IN_FLOAT32, checked("store", "pass")], NARROW, "valid", "every check passed"),
        ([checked("runs", "fail")], ("runs",), "not valid", "runs: of runs"),
        ([checked("runs", "reported")], NARROW, "not decidable here", "no dtype can be judged"),
    ],
)
def test_the_word_where_a_few_checks_were_asked_for(
    checks: list[Checked], only: tuple[str, ...], word: str, headline: str
) -> None:
    assert examine.conclude(checks, LOADED, only=only)[0] == word
    assert examine.conclude(checks, LOADED, only=only)[1].startswith(headline)


def test_a_check_must_be_for_a_target_and_a_target_for_a_check() -> None:
    both = {"a.py:f": "act_mul", "b.py:g": "mlp"}
    registry.check_kinds(both, ("elementwise", "mlp-values"))  # type: ignore[arg-type]
    registry.check_kinds(both | {"directory": None}, ("function",))  # type: ignore[arg-type]
    registry.check_kinds({"b.py:g": "mlp", "directory": None}, ("mlp-values", "store"))
    with pytest.raises(UsageError, match=r"^check 'mlp-values' is for MLPs; a\.py:f is an act·mul$"):
        registry.check_kinds({"a.py:f": "act_mul"}, ("function", "mlp-values"))
    with pytest.raises(UsageError, match=r"^check 'store' is for act·muls; b\.py:g is an MLP$"):
        registry.check_kinds(both, ("store",))  # type: ignore[arg-type]


def test_every_check_has_a_name_of_its_own_and_says_what_it_looks_at() -> None:
    names = [check.name for check in registry.ALL]
    assert len(set(names)) == len(names)
    assert all(check.looks_at and check.run.__doc__ for check in registry.ALL)
    assert names[0] == "runs"
    with pytest.raises(UsageError, match="unknown check 'nope'; valid: runs, written"):
        registry.check_names(("nope",))


@pytest.mark.parametrize(
    ("judged", "taken", "asked"),
    [
        ("each", DTYPES_ALL, DTYPES_ALL),
        ("two", DTYPES_ALL, ("float32", "bfloat16")),
        ("two", ("float16",), ("float16",)),
        ("finest", DTYPES_ALL, ("float32",)),
        ("narrow", DTYPES_ALL, ("bfloat16", "float16")),
        ("narrow", ("float32",), ("float32",)),
        ("16-bit", DTYPES_ALL, ("bfloat16", "float16")),
        ("16-bit", ("float32",), ()),
        ("each", (), ()),
        ("two", (), ()),
    ],
)
def test_the_dtypes_that_a_check_is_asked_in(judged: str, taken: tuple[str, ...], asked: tuple[str, ...]) -> None:
    exam = types.SimpleNamespace(dtypes=taken, finest="float32" if "float32" in taken else (*taken, "")[0])
    assert registry.ALL[0]._replace(dtypes=judged).asked_in(exam) == asked  # type: ignore[arg-type]


def test_a_dtype_in_which_nothing_ran_has_no_word_in_the_table() -> None:
    one = msgspec.structs.replace(checked("saved-kept", "pass"), dtype="float32")
    page = verdict_page(
        Verdict(target="t", kind="act_mul", activation="silu", word="valid", headline="", checks=(one,))
    )
    line = next(line for line in page.splitlines() if "saved-kept" in line)
    assert line.split()[1:4] == ["–", "–", "pass"]


def test_shapes_are_written_as_they_are_typed() -> None:
    from mlpfusion.cli.validate import shape

    for each in ((), (0,), (7, 127), (1, 2, 3)):
        assert shape(shape_text(each)) == each
    for bad in ("", "7x", "x7", "-1", "7X8", "a"):
        with pytest.raises(UsageError, match="--shapes"):
            shape(bad)


# ---- reports ---------------------------------------------------------------------------------------------------------


def test_distances_are_in_steps_of_the_dtype_and_nan_is_infinitely_far() -> None:
    gate = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.bfloat16)
    up = torch.ones_like(gate)
    right = bounds.product(gate, up, "relu")  # the gates themselves
    step = bounds.ulp(right, "bfloat16")
    y = right + torch.tensor([0.0, 0.5, -1.0, math.nan]) * step
    assert bounds.ulps_off(y, gate, up, "relu", "bfloat16").tolist() == [0.0, 0.5, 1.0, math.inf]
    beyond = torch.tensor([torch.finfo(torch.bfloat16).max], dtype=torch.bfloat16)
    assert bounds.ulps_off(beyond, beyond, 2 * torch.ones_like(beyond), "relu", "bfloat16").numel() == 0


def test_numbers_that_become_float64_are_found_in_the_generated_code() -> None:
    code = """
    triton_meta={'signature': {'gate': '*bf16', 'factor': 'fp64', 'n': 'i32', 'BLOCK': 'constexpr'}, 'device': 0},
    triton_meta={'signature': {'in_ptr0': '*fp64', 'out_ptr0': '*fp32', 'xnumel': 'i32'}},
    triton_meta={'signature': {'bias': 'fp64'}}
    """
    assert probes.fp64_numbers(code) == ["bias", "factor"]
    assert probes.fp64_numbers("") == []


@pytest.mark.parametrize(("equal", "status"), [([1, 1, 1], "pass"), ([1, 0, 1], "reported")])
def test_a_row_whose_largest_element_is_not_found_again_is_reported(equal: list[int], status: str) -> None:
    found = modes.rows_equal(torch.tensor(equal).float())
    assert found.status == status
    assert ("in 1 of 3 rows" in found.sentence) == (status == "reported")
