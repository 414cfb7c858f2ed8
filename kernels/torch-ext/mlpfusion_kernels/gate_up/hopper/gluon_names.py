"""Gives operations of Gluon that differ between Triton's releases one name each."""

from __future__ import annotations

from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import tma

# Copies of a box between device and shared memory. Triton 3.8 renamed them; where both names are, the older one raises.
load_box = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared
store_box = getattr(tma, "async_store", None) or tma.async_copy_shared_to_global

# (memory, dtype, shape, layout): the same bytes seen as another block. Public since Triton 3.9.
_memory = gl.shared_memory_descriptor
reinterpreted = getattr(_memory, "reinterpret", None) or _memory._reinterpret
