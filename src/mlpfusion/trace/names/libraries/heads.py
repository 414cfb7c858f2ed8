"""Finds what one head of an attention holds in the many spellings of attention kernels."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

# Head dimensions of models; another number at such a place is something else.
_POSSIBLE: Final = range(16, 1025)

_C: Final = r"cute::(?:C|Int)<(?:\(int\))?(\d{1,4})>"
_PATTERNS: Final[tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], int]], ...]] = (
    # FlashAttention 2: <head dimension, rows of a block, columns of a block, warps, …>
    (re.compile(r"[Ff]lash_(?:fwd|bwd)_kernel_traits<(\d{1,4})"), lambda found: int(found[1])),
    # FlashAttention 3: the tile of the loop is rows x columns x head dimension, behind the shape of the cluster.
    (re.compile(rf"CollectiveMainloop(?:Fwd|Bwd)Sm\d{{2,3}}<[^C]{{0,200}}?cute::tuple<[^A-Z]{{0,120}}(?:{_C}[^A-Z]{{0,9}}){{3}}>,"
                rf" ?cute::tuple<{_C}, ?{_C}, ?{_C} ?>"), lambda found: int(found[4])),
    # FlashInfer's prefill: 16 times the matrix instructions along a head; its decode: elements by threads.
    (re.compile(r"KernelTraits<\(flashinfer::MaskMode\)\d, ?\d+u, ?\d+u, ?\d+u, ?(\d{1,2})u"),
     lambda found: 16 * int(found[1])),
    (re.compile(r"DecodeWith\w{0,40}<\(flashinfer::PosEncodingMode\)\d, ?\d+u, ?\d+u, ?(\d{1,2})u, ?(\d{1,3})u"),
     lambda found: int(found[1]) * int(found[2])),
    # vLLM: <T, cache's T, head dimension, tokens of a page, threads>; for AMD: <…, tokens of a page, head dimension, …>
    (re.compile(r"paged_attention_v[12]\w{0,20}<[^<>,]{1,40}, ?[^<>,]{1,40}, ?(\d{1,4})"), lambda found: int(found[1])),
    (re.compile(r"paged_attention_ll4mi_QKV\w{0,20}<(?:[^<>,]{1,60}, ?){3,4}(?:8|16|32|64), ?(\d{1,4})"),
     lambda found: int(found[1])),
    (re.compile(r"paged_attention_ll4mi_reduce_kernel<[^<>,]{1,40}, ?[^<>,]{1,40}, ?(\d{1,4})"),
     lambda found: int(found[1])),
    # Composable Kernel: the last number of the tile is the head dimension of queries and keys.
    (re.compile(r"(?:TileFmha\w{0,20}Shape<ck_tile::sequence<|TileFmha\w{0,20}ShapeINS_8sequenceIJ)"
                r"(?:(?:Li)?\d{1,4}(?:, |E)){5}(?:Li)?(\d{1,4})(?:>|E)"), lambda found: int(found[1])),
    # NVIDIA's generated ones: `H128`, `HQk192HV128`; AITER's and others: `hd128`, `_d128_`.
    (re.compile(r"^fmhaSm\w{0,60}?H(?:Qk)?(\d{2,4})"), lambda found: int(found[1])),
    (re.compile(r"^fmha_v2_flash_attention_\w{2,8}?_\d{1,4}_\d{1,4}_S_\w{0,30}?_(\d{2,4})(?:x\d{2,4})?_"),
     lambda found: int(found[1])),
    (re.compile(r"(?<![a-z0-9])(?:hd|d|head_?dim|headdim_?|hdim_?)(\d{2,4})(?!\d)"), lambda found: int(found[1])),
)  # fmt: skip


def head_dim(name: str) -> tuple[str, int] | None:
    """The text that says it, and the head dimension; None where no spelling known here does."""
    for pattern, read in _PATTERNS:
        found = pattern.search(name)
        if found and read(found) in _POSSIBLE:
            return found[found.lastindex or 0], read(found)
    return None
