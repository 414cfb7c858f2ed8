"""What kernels read and write, by their intermediate code: compiled here for a GPU that need not be here."""

from __future__ import annotations

import json
import os
import sys

import pytest
from support import forked
from support.paths import TESTS

from mlpfusion.traffic.recording import ttir

KERNELS = TESTS / "support" / "ttir_kernels.py"
HEAD = (
    "module {\n  tt.func public @k(%a: !tt.ptr<f32> loc(#loc1), %b: !tt.ptr<f32>, %n: i32) attributes {x = false} {\n"
)
TAIL = "    tt.return loc(#loc)\n  }\n}\n"


@pytest.fixture(scope="module")
def compiled():
    without = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = forked.run([sys.executable, str(KERNELS)], env=without, check=True)
    return json.loads(done.stdout)


def test_reads_and_writes_of_real_kernels(compiled):
    for name, (code, roles) in compiled.items():
        if roles is None:
            with pytest.raises(ttir.UnreadableError):
                print(name, ttir.touched(code))
            continue
        found = ttir.touched(code)
        said = ["r" * read + "w" * written for read, written in zip(found.reads, found.writes, strict=True)]
        assert said == roles, name


def touched(*body):
    return ttir.touched(HEAD + "".join(f"    {line}\n" for line in body) + TAIL)


def test_values_of_one_name_in_sibling_branches_are_apart():
    found = touched(
        "scf.if %n {",
        "%0 = tt.load %a : !tt.ptr<f32>",
        "} else {",
        "%0 = arith.constant 1.0 : f32",
        "tt.store %b, %0 : !tt.ptr<f32>",
        "}",
    )
    assert found == ((True, False), (False, True))


def test_a_pointer_that_a_loop_carries_is_followed_by_its_place():
    found = touched(
        "%c:2 = scf.for %i = %n to %n step %n iter_args(%p = %a, %q = %b) -> (!tt.ptr<f32>, !tt.ptr<f32>)  : i32 {",
        "%v = tt.load %p : !tt.ptr<f32>",
        "%next = tt.addptr %q, %n : !tt.ptr<f32>, i32",
        "scf.yield %p, %next : !tt.ptr<f32>, !tt.ptr<f32>",
        "}",
        "tt.store %c#1, %n : !tt.ptr<f32>",
    )
    assert found == ((True, False), (False, True))


def test_a_loop_that_swaps_its_pointers_touches_both():
    found = touched(
        "%c:2 = scf.for %i = %n to %n step %n iter_args(%p = %a, %q = %b) -> (!tt.ptr<f32>, !tt.ptr<f32>)  : i32 {",
        "%v = tt.load %p : !tt.ptr<f32>",
        "scf.yield %q, %p : !tt.ptr<f32>, !tt.ptr<f32>",
        "}",
    )
    assert found == ((True, True), (False, False))


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("%0 = tt.call @f(%a) : (!tt.ptr<f32>) -> f32", "tt.call"),
        ("tt.experimental_tensormap_create %a, %b : !tt.ptr<f32>", "tensormap_create"),
        ("ttng.async_tma_store %a : !tt.ptr<f32>", "ttng.async_tma_store"),
        ("%0 = ttg.local_alloc %a : !tt.ptr<f32>", "ttg.local_alloc"),
        ('%0 = tt.extern_elementwise %a {libname = "", pure = false} : f32', "extern_elementwise"),
        ("%0 = tt.load %n : !tt.ptr<f32>", "no pointer argument"),
        ("%0 = tt.load %nowhere : !tt.ptr<f32>", "%nowhere is not defined"),
        ("tt.new_way_to_store %a : !tt.ptr<f32>", "new_way_to_store"),
        ("^bb1(%x: i32):", "it has a block in"),
        ("scf.yield %a : !tt.ptr<f32>", "hands on"),
    ],
)
def test_what_cannot_be_followed_is_an_error(line, says):
    with pytest.raises(ttir.UnreadableError, match=says):
        touched(line)


@pytest.mark.parametrize("text", ["", "module {\n}\n", HEAD + TAIL + HEAD + TAIL])
def test_code_without_exactly_one_function_is_an_error(text):
    with pytest.raises(ttir.UnreadableError, match="functions"):
        ttir.touched(text)
