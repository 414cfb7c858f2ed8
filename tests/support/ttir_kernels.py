"""Kernels whose reads and writes are known, and their intermediate code: `python ttir_kernels.py` prints it as JSON.

Run without TRITON_INTERPRET; no GPU is needed to compile for one.
"""

from __future__ import annotations

import json
import sys

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def copy_add(a, b, out, n, B: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    m = o < n
    tl.store(out + o, tl.load(a + o, mask=m) + tl.load(b + o, mask=m), mask=m)


@triton.jit
def in_place(a, b, n, B: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    m = o < n
    tl.store(a + o, tl.load(a + o, mask=m) * tl.load(b + o, mask=m), mask=m)


@triton.jit
def matmul(a, b, c, M, N, K, B: tl.constexpr):
    rm = tl.program_id(0) * B + tl.arange(0, B)
    rn = tl.program_id(1) * B + tl.arange(0, B)
    rk = tl.arange(0, B)
    ap = a + rm[:, None] * K + rk[None, :]
    bp = b + rk[:, None] * N + rn[None, :]
    acc = tl.zeros((B, B), tl.float32)
    for _ in range(0, K, B):
        acc = tl.dot(tl.load(ap), tl.load(bp), acc)
        ap += B
        bp += B * N
    tl.store(c + rm[:, None] * N + rn[None, :], acc)


@triton.jit
def either(a, b, c, flag, n, B: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    p = a if flag > n else b
    tl.store(c + o, tl.load(p + o))


@triton.jit
def branches(a, b, c, d, flag, B: tl.constexpr):
    o = tl.arange(0, B)
    if flag > 0:
        tl.store(c + o, tl.load(a + o))
    else:
        tl.store(d + o, tl.load(b + o))


@triton.jit
def descriptors(a, out, M, N, B: tl.constexpr):
    d = tl.make_tensor_descriptor(a, [M, N], [N, 1], [B, B])
    e = tl.make_tensor_descriptor(out, [M, N], [N, 1], [B, B])
    i = tl.program_id(0)
    e.store([i * B, 0], d.load([i * B, 0]))


@triton.jit
def host_descriptors(a, out, B: tl.constexpr):
    i = tl.program_id(0)
    out.store([i * B, 0], a.load([i * B, 0]))


@triton.jit
def scatter(idx, out, n, B: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    tl.atomic_add(out + tl.load(idx + o), 1.0)


@triton.jit
def advancing(a, out, n, B: tl.constexpr):
    p = a + tl.arange(0, B)
    q = out + tl.arange(0, B)
    i = 0
    while i < n:
        tl.store(q, tl.load(p))
        p += B
        q += B
        i += B


@triton.jit
def split(a, gate, up, B: tl.constexpr):
    x = tl.load(a + tl.arange(0, 2 * B))
    g, u = tl.split(tl.reshape(x, (B, 2)))
    tl.store(gate + tl.arange(0, B), g)
    tl.store(up + tl.arange(0, B), u)


@triton.jit
def reduced(a, out, unused, n, B: tl.constexpr):
    tl.store(out, tl.sum(tl.load(a + tl.arange(0, B)), axis=0))


@triton.jit
def through_an_integer(a, out, B: tl.constexpr):
    o = tl.arange(0, B)
    q = out.to(tl.int64).to(tl.pointer_type(tl.float32))
    tl.store(q + o, tl.load(a + o))


@triton.jit
def waits(a, out, B: tl.constexpr):
    tl.inline_asm_elementwise("griddepcontrol.wait; // $0", "=r", [], tl.int32, is_pure=False, pack=1)
    o = tl.arange(0, B)
    tl.store(out + o, tl.load(a + o))


@triton.jit
def stores_by_assembly(a, out, B: tl.constexpr):
    o = tl.arange(0, B)
    tl.inline_asm_elementwise("st.global.b32 [$1], 0; mov.b32 $0, 0;", "=r,l", [out + o], tl.int32, False, 1)


@triton.jit
def from_a_number(a, address, B: tl.constexpr):
    o = tl.arange(0, B)
    q = address.to(tl.pointer_type(tl.float32))
    tl.store(q + o, tl.load(a + o))


@triton.jit
def through_a_table(table, out, B: tl.constexpr):
    p = tl.load(table).to(tl.pointer_type(tl.float32))
    tl.store(out + tl.arange(0, B), tl.load(p + tl.arange(0, B)))


@triton.jit(noinline=True)
def _store(p, v):
    tl.store(p, v)


@triton.jit
def calls(a, out):
    _store(out, tl.load(a))


P, N = "*fp32", "i32"
D = "tensordesc<fp32[32, 32]>"
# By kernel: the types of its arguments, and what it does with its pointers ("r", "w", "rw", "" for neither); None
# where that cannot be told.
KERNELS = {
    copy_add: ([P, P, P, N], ["r", "r", "w"]),
    in_place: ([P, P, N], ["rw", "r"]),
    matmul: ([P, P, P, N, N, N], ["r", "r", "w"]),
    either: ([P, P, P, N, N], ["r", "r", "w"]),
    branches: ([P, P, P, P, N], ["r", "r", "w", "w"]),
    descriptors: ([P, P, N, N], ["r", "w"]),
    host_descriptors: ([D, D], ["r", "w"]),
    scatter: (["*i32", P, N], ["r", "rw"]),
    advancing: ([P, P, N], ["r", "w"]),
    split: ([P, P, P], ["r", "w", "w"]),
    reduced: ([P, P, P, N], ["r", "w", ""]),
    through_an_integer: ([P, P], ["r", "w"]),
    waits: ([P, P], ["r", "w"]),
    stores_by_assembly: ([P, P], None),
    from_a_number: ([P, "i64"], None),
    through_a_table: (["*i64", P], None),
    calls: ([P, P], None),
}


def code(kernel, types):
    """The intermediate code of a kernel compiled for sm_90."""
    constants = {(len(types),): 32} if len(kernel.arg_names) > len(types) else {}
    signature = dict(zip(kernel.arg_names, [*types, "constexpr"], strict=False))
    return triton.compile(ASTSource(kernel, signature, constants), target=GPUTarget("cuda", 90, 32)).asm["ttir"]


if __name__ == "__main__":
    found = {kernel.__name__: [code(kernel, types), roles] for kernel, (types, roles) in KERNELS.items()}
    json.dump(found, sys.stdout)
