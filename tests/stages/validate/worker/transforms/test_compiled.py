"""What the probes of compiled calls read in generated code."""

from __future__ import annotations

from mlpfusion.stages.validate.worker.transforms import compiled


def test_numbers_that_become_float64_are_found_in_the_generated_code() -> None:
    code = """
    triton_meta={'signature': {'gate': '*bf16', 'factor': 'fp64', 'n': 'i32', 'BLOCK': 'constexpr'}, 'device': 0},
    triton_meta={'signature': {'in_ptr0': '*fp64', 'out_ptr0': '*fp32', 'xnumel': 'i32'}},
    triton_meta={'signature': {'bias': 'fp64'}}
    """
    assert compiled.fp64_numbers(code) == ["bias", "factor"]
    assert compiled.fp64_numbers("") == []
