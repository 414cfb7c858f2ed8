"""A validation from end to end, on the CPU: verdicts, their words, and what a target may do to its process."""

from __future__ import annotations

import shlex
import shutil
import textwrap
from typing import TYPE_CHECKING

import pytest
from support import rings
from support.paths import ROOT
from support.targets_made import verdict_of

from mlpfusion.cli.main import main
from mlpfusion.errors import UsageError
from mlpfusion.report.validation import page
from mlpfusion.stages.validate.judge import examine as examine_judge
from mlpfusion.stages.validate.judge import self_test
from mlpfusion.stages.validate.judge.checks import shapes
from mlpfusion.stages.validate.run import validate

if TYPE_CHECKING:
    from pathlib import Path

    from mlpfusion.records.validation import Checked, Verdict

EXAMPLE = ROOT / "examples" / "gelu_mul.py"
CONTROLS = self_test.folder()


def check(verdict: Verdict, name: str, dtype: str | None = None) -> Checked:
    return next(each for each in verdict.checks if each.name == name and dtype in {None, each.dtype})


def written(folder: Path, text: str, name: str = "mine.py") -> str:
    path = folder / name
    path.write_text("import torch\nimport torch.nn.functional as F\n\n\n" + textwrap.dedent(text), encoding="utf-8")
    return str(path)


# ---- the example -----------------------------------------------------------------------------------------------------


@pytest.mark.full  # all checks, in an interpreter: half a minute
def test_the_example_is_valid(bench: examine_judge.Bench) -> None:
    verdict = verdict_of(bench, f"{EXAMPLE}:gelu_mul")
    assert (verdict.word, verdict.headline, verdict.kind) == ("valid", "every check passed", "act_mul")
    assert {each.status for each in verdict.checks} == {"pass", "reported", "not decidable here"}
    assert check(verdict, "compile").status == "not decidable here"
    assert "rounds once" in check(verdict, "rounding", "bfloat16").sentence


EDITS = {
    "0.5": (
        "0.5 *",
        "0.6 *",
        "constants (float32): every value is 1.2 times",
        "the factor 0.5 in front of g·(1 + tanh) were 0.6",
    ),
    "0.0447": ("0.0447", "0.0547", "constants (float32): the cubic coefficient is 0.0547", "where 0.044715 belongs"),
    "mask": ("offsets < n", "offsets > n", "written (bfloat16): the mask is inverted", "elements behind its end are"),
}


@pytest.mark.parametrize("count", [1, -1], ids=["first", "all"])
@pytest.mark.parametrize("edit", rings.only_first(["mask", "0.5", "0.0447"]))  # "mask" fails the first check
def test_an_edit_of_the_example_is_named(bench: examine_judge.Bench, tmp_path: Path, edit: str, count: int) -> None:
    old, new, *words = EDITS[edit]
    text = EXAMPLE.read_text(encoding="utf-8")
    if edit != "mask":  # larger blocks, because an interpreter takes as long for small ones
        text = text.replace("\nBLOCK = 1024\n", "\nBLOCK = 8192\n")
    start = text.index("def gelu_mul_kernel")  # the docstring and tanh above have numbers of their own
    (tmp_path / "edited.py").write_text(text[:start] + text[start:].replace(old, new, count), encoding="utf-8")
    verdict = verdict_of(bench, f"{tmp_path / 'edited.py'}:gelu_mul", until_failure=True)
    assert verdict.word == "not valid"
    for each in words:
        assert each in verdict.headline


# ---- what a target may be --------------------------------------------------------------------------------------------

BRIEF = ("function", "elementwise", "mlp-values", "differentiable")


KINDS = {
    "act_mul": "act_mul",
    "mlp": "mlp",
    "Sized": "mlp",
    "named": "act_mul",
    "Product": "act_mul",
    "Mine": "mlp",
    "Borrowing": "mlp",
}


@pytest.mark.parametrize("name", rings.first_of_each(KINDS, lambda name: (name.islower(), KINDS[name])))
def test_every_kind_of_target(bench: examine_judge.Bench, tmp_path: Path, name: str) -> None:
    path = written(
        tmp_path,
        """
        def act_mul(gate, up):
            return F.gelu(gate, approximate="tanh") * up

        def named(gate, up, activation):
            assert activation == "gelu_tanh"
            return act_mul(gate, up)

        def mlp(x, wg, wu, wd):
            return F.linear(act_mul(F.linear(x, wg), F.linear(x, wu)), wd)

        class Mine:
            name = "mine"

            def unsupported(self, spec, device):
                return None

            def bind(self, module):
                return lambda x: module.down_proj(act_mul(module.gate_proj(x), module.up_proj(x)))

        class Product(torch.nn.Module):
            def forward(self, gate, up):
                return act_mul(gate, up)

        class Sized(torch.nn.Module):
            def __init__(self, hidden_size, intermediate_size):
                super().__init__()
                self.gate_proj = torch.nn.Linear(hidden_size, intermediate_size, bias=False)
                self.up_proj = torch.nn.Linear(hidden_size, intermediate_size, bias=False)
                self.down_proj = torch.nn.Linear(intermediate_size, hidden_size, bias=False)

            def forward(self, x):
                return self.down_proj(act_mul(self.gate_proj(x), self.up_proj(x)))

        class Borrowing(torch.nn.Module):
            def forward(self, x):
                return self.down_proj(act_mul(self.gate_proj(x), self.up_proj(x)))
        """,
    )
    verdict = verdict_of(bench, f"{path}:{name}", only=BRIEF, dtypes=("float32",))
    assert (verdict.word, verdict.kind) == ("valid", KINDS[name])


@pytest.mark.full  # every check of several targets, in an interpreter: a quarter of a minute
def test_a_hub_directory_is_its_functions_and_layers(bench: examine_judge.Bench) -> None:
    orders = examine_judge.expand(bench, [str(ROOT / "kernels")], None, time_limit_s=900)
    names = [order.target.rpartition(":")[2] for order in orders]
    assert "act_mul" in names
    assert "layers.MlpfusionSwigluMLP" in names
    order = next(order for order in orders if order.target.endswith("SwigluMLP"))
    verdict = verdict_of(bench, order.target, None, only=("function",), dtypes=("float32",))
    assert (verdict.word, verdict.activation) == ("valid", "silu")  # what it turns out to be


REFUSALS = [
    ("{example}:gelu_mul_kernel", "is a bare @triton.jit kernel; validate a function that launches it, such as: def"),
    ("{example}:nope", "there is no 'nope'; valid: "),
    ("{example}:BLOCK", "is a int; a target is"),
    ("nowhere.py:x", "'nowhere.py' does not exist"),
    ("no_such_module:x", "module 'no_such_module' of target"),
    ("no-such-backend", "registered backends: eager, compile"),
    ("{mine}:three", "takes (a, b, c); a target is"),
]


@pytest.mark.parametrize(("target", "words"), REFUSALS, ids=[words[:30] for _, words in REFUSALS])
def test_what_is_no_target_is_refused_in_words(
    bench: examine_judge.Bench, tmp_path: Path, target: str, words: str
) -> None:
    mine = written(tmp_path, "def three(a, b, c):\n    return a\n")
    with pytest.raises(UsageError) as refused:
        examine_judge.expand(bench, [target.format(example=EXAMPLE, mine=mine)], None, time_limit_s=900)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.full  # every shape of two checks in two dtypes
def test_a_verdict_knows_what_was_judged_and_what_was_refused(bench: examine_judge.Bench, tmp_path: Path) -> None:
    text = """
    def picky(gate, up):
        if gate.dtype is torch.float32 or gate.dim() != 2 or not gate.is_contiguous():
            raise ValueError("no")
        return F.gelu(gate, approximate="tanh") * up
    """
    verdict = verdict_of(bench, written(tmp_path, text) + ":picky", only=("elementwise", "layouts"))
    assert verdict.taken == ("bfloat16", "float16")
    flat = [each for each in (*shapes.SMALL, *shapes.WIDTHS, *shapes.LARGE, shapes.ROWS) if len(each) == 2]
    assert verdict.judged_for == {"M": max(m for m, _ in flat), "N": max(n for _, n in flat)}
    refused = set(check(verdict, "elementwise", "bfloat16").refused)
    assert {"scalar", "1031", "2x3x4x8"} <= refused
    assert not any(shape.count("x") == 1 for shape in refused)
    assert "8x256 transposed" in check(verdict, "layouts").refused


@pytest.mark.full  # the first ring judges good controls so
def test_a_quick_verdict_says_what_it_left_out(bench: examine_judge.Bench, tmp_path: Path) -> None:
    text = """
    def good(gate, up):
        return F.gelu(gate, approximate="tanh") * up
    """
    verdict = verdict_of(bench, written(tmp_path, text) + ":good", dtypes=("float32",), quick=True)
    assert verdict.word == "valid"
    assert set(verdict.left_out) >= {"check autocast", "check compile", "each operand alone in another layout"}
    assert "33x97" in verdict.left_out
    names = {each.name for each in verdict.checks}
    assert names >= {"written", "positions", "layouts", "function", "elementwise", "backward", "double-backward"}
    assert not any(f"check {name}" in verdict.left_out for name in names)
    assert "left out by --quick: " in page(verdict)


# ---- what a target may do --------------------------------------------------------------------------------------------


def test_a_worker_that_dies_costs_one_verdict(bench: examine_judge.Bench) -> None:
    """What is said of other ends than this one, the self-test shows."""
    verdict = verdict_of(bench, f"{CONTROLS / 'broken.py'}:crashes", until_failure=True)
    assert verdict.word == "not valid"
    assert "was killed by SIGSEGV" in verdict.headline
    started = bench.worker.started
    for _ in range(2):
        assert verdict_of(bench, f"{CONTROLS / 'good.py'}:eager", only=("function",)).word == "valid"
    assert bench.worker.started == started + 1  # one warm worker serves them all


def test_what_one_target_does_to_torch_does_not_reach_the_next(bench: examine_judge.Bench, tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """
        def meddles(gate, up):
            torch.set_default_dtype(torch.float64)
            torch.set_grad_enabled(False)
            torch.set_float32_matmul_precision("medium")
            return F.gelu(gate, approximate="tanh") * up
        """,
    )
    asked = {"only": ("mlp-values", "function"), "dtypes": ("float32",)}
    verdict_of(bench, f"{path}:meddles", **asked)
    assert verdict_of(bench, f"{CONTROLS / 'good.py'}:mlp", **asked).word == "valid"


def test_a_dtype_may_be_refused_unless_it_is_asked_for(bench: examine_judge.Bench, tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """
        def wide(gate, up):
            if gate.dtype is not torch.float32:
                raise TypeError("only float32 is written")
            return F.gelu(gate, approximate="tanh") * up
        """,
    )
    verdict = verdict_of(bench, f"{path}:wide", only=BRIEF)
    assert verdict.word == "valid"
    assert check(verdict, "runs", "bfloat16").sentence == "refused: TypeError: only float32 is written"
    asked = verdict_of(bench, f"{path}:wide", only=BRIEF, dtypes=("bfloat16",))
    assert (asked.word, "only float32 is written" in asked.headline) == ("not valid", True)


def test_a_backward_may_refuse_a_shape_or_a_dtype(bench: examine_judge.Bench, tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """
        class Picky(torch.autograd.Function):
            @staticmethod
            def forward(ctx, gate, up):
                ctx.save_for_backward(gate, up)
                return F.gelu(gate, approximate="tanh") * up

            @staticmethod
            def backward(ctx, dy):
                gate, up = ctx.saved_tensors
                if gate.shape[-1] % 8 or gate.dtype is torch.float32:
                    raise ValueError("16 bits and columns of a multiple of 8")
                dgate = torch.ops.aten.gelu_backward(dy * up, gate, approximate="tanh")
                return dgate, dy * F.gelu(gate, approximate="tanh")

        def picky(gate, up):
            return Picky.apply(gate, up)

        def never(gate, up):
            return Picky.apply(gate.float(), up.float()).to(gate.dtype)
        """,
    )
    only = ("differentiable", "backward", "layouts", "saved-kept")
    found = verdict_of(bench, f"{path}:picky", only=only)
    assert found.word == "valid"
    assert check(found, "differentiable", "bfloat16").status == check(found, "backward", "bfloat16").status == "pass"
    assert "no gradient in float32" in check(found, "differentiable", "float32").sentence
    assert check(found, "backward", "float32").status == "not decidable here"
    never = verdict_of(bench, f"{path}:never", only=only)
    assert "no gradient can be had: its backward raises ValueError: 16 bits" in never.headline


def test_the_shape_that_is_named_is_one_whose_gradients_are_wrong(bench: examine_judge.Bench, tmp_path: Path) -> None:
    text = """
    def wrong_in_one_shape(gate, up):
        y = F.gelu(gate, approximate="tanh") * up
        return y + (gate - gate.detach()) if gate.shape == (33, 97) else y
    """
    target = written(tmp_path, text) + ":wrong_in_one_shape"
    found = verdict_of(bench, target, only=("backward",), dtypes=("float32",), quick=False)
    assert check(found, "backward").shape == (33, 97)  # smaller ones are right


def test_a_shape_may_be_refused_unless_it_is_asked_for(bench: examine_judge.Bench, tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """
        def wide(gate, up):
            if gate.dim() < 2 or gate.shape[-1] % 16:
                raise ValueError("rows of a multiple of 16")
            return F.gelu(gate, approximate="tanh") * up
        """,
    )
    verdict = verdict_of(bench, f"{path}:wide", only=("elementwise", "written", "function", "specials", "positions"))
    assert verdict.word == "valid"
    assert "refused: scalar, 1, 0" in check(verdict, "elementwise", "float32").sentence
    assert check(verdict, "written").status == check(verdict, "positions").status == "pass"
    asked = verdict_of(bench, f"{path}:wide", only=("elementwise",), shapes=((4, 64), (7, 127)), dtypes=("float32",))
    assert (asked.word, "multiple of 16" in asked.headline) == ("not valid", True)


def test_constants_are_not_called_right_where_they_cannot_be_seen(bench: examine_judge.Bench, tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """
        def narrow(gate, up):
            if gate.dtype is not torch.bfloat16:
                raise TypeError("bfloat16 only")
            g = gate.float()
            return (0.5 * g * (1 + torch.tanh(0.7978 * (g + 0.044715 * g**3))) * up.float()).bfloat16()
        """,
    )
    found = check(verdict_of(bench, f"{path}:narrow", only=("constants", "function")), "constants")
    assert (found.status, "cannot be determined in bfloat16" in found.sentence) == ("not decidable here", True)


def test_arithmetic_in_bfloat16_is_not_judged_in_the_interpreter(bench: examine_judge.Bench, tmp_path: Path) -> None:
    text = EXAMPLE.read_text(encoding="utf-8").replace(
        "(gelu * u).to(out.dtype.element_ty)", "gelu.to(out.dtype.element_ty) * u.to(out.dtype.element_ty)"
    )
    (tmp_path / "narrow.py").write_text(text, encoding="utf-8")
    verdict = verdict_of(bench, f"{tmp_path / 'narrow.py'}:gelu_mul", only=("function", "elementwise"))
    assert check(verdict, "runs", "bfloat16").status == "not decidable here"
    assert "arithmetic on bfloat16" in check(verdict, "runs", "bfloat16").sentence
    assert check(verdict, "elementwise", "float16").status == "pass"


@pytest.mark.full  # products in an interpreter are slow
def test_products_of_bfloat16_are_not_judged_in_the_interpreter(bench: examine_judge.Bench, tmp_path: Path) -> None:
    text = """
        import triton
        import triton.language as tl

        @triton.jit
        def kernel(a, b, out, m, n, k, BLOCK: tl.constexpr):
            rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
            columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
            total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
            for start in range(0, k, BLOCK):
                inner = start + tl.arange(0, BLOCK)
                left = (rows[:, None] < m) & (inner[None, :] < k)
                right = (inner[:, None] < k) & (columns[None, :] < n)
                one = tl.load(a + rows[:, None] * k + inner[None, :], mask=left, other=0.0)
                other = tl.load(b + columns[None, :] * k + inner[:, None], mask=right, other=0.0)
                total = tl.dot(one, other, total, input_precision="ieee")
            kept = (rows[:, None] < m) & (columns[None, :] < n)
            tl.store(out + rows[:, None] * n + columns[None, :], total.to(out.dtype.element_ty), mask=kept)

        def linear(x, w):
            rows = x.reshape(-1, x.shape[-1]).contiguous()
            (m, k), n = rows.shape, w.shape[0]
            out = torch.empty(m, n, dtype=x.dtype)
            if m:
                kernel[(triton.cdiv(m, 64), triton.cdiv(n, 64))](rows, w.contiguous(), out, m, n, k, BLOCK=64)
            return out.view(*x.shape[:-1], n)

        def mlp(x, wg, wu, wd):
            return linear(F.gelu(linear(x, wg), approximate="tanh") * linear(x, wu), wd)
        """
    verdict = verdict_of(bench, written(tmp_path, text) + ":mlp", only=("mlp-values",))
    assert check(verdict, "runs", "bfloat16").status == "not decidable here"
    assert check(verdict, "mlp-values", "float16").status == "pass"
    assert check(verdict, "mlp-values", "float32").status == "pass"


def test_products_of_fewer_bits_in_one_layout_are_no_fault_of_the_layout(
    bench: examine_judge.Bench, tmp_path: Path
) -> None:
    text = """
import torch
from torch.nn.functional import gelu, linear

def mlp(x, wg, wu, wd):
    return linear(gelu(linear(x, wg), approximate="tanh") * linear(x, wu), wd)

def tf32(x, wg, wu, wd):  # as a library that has fast products for dense operands alone
    if x.is_contiguous():
        x = (x.view(torch.int32) & ~0x1FFF).view(torch.float32)
    return mlp(x, wg, wu, wd)

def dense(x, wg, wu, wd):  # reads whatever lies behind the first element
    return mlp(torch.as_strided(x, x.shape, torch.empty(x.shape).stride()), wg, wu, wd)
"""
    asked = {"dtypes": ("float32",), "only": ("layouts", "mlp-values"), "until_failure": False}
    few = verdict_of(bench, written(tmp_path, text, "products.py") + ":tf32", **asked)
    assert [one.name for one in few.failed] == ["mlp-values"]
    wrong = verdict_of(bench, str(tmp_path / "products.py") + ":dense", **asked)
    assert [one.name for one in wrong.failed] == ["layouts"]


@pytest.mark.usefixtures("bench")
def test_a_repro_line_runs_the_same_check_on_the_same_inputs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = tmp_path / "my kernels"
    shutil.copytree(CONTROLS, folder, ignore=shutil.ignore_patterns("__pycache__"))
    target = f"{folder / 'numeric.py'}:erf_for_tanh"
    found = validate([target], device="cpu", against=(), only=["elementwise"], dtypes=["float32"]).verdicts[0]
    wrong = check(found, "elementwise")
    command = shlex.split(wrong.repro)
    assert command[:2] == ["mlpfusion", "validate"]
    assert main([*command[1:], "--against", "none", "--format", "csv"]) == 1
    assert wrong.sentence.split(";")[1].strip() in capsys.readouterr().out
