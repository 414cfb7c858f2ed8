"""Makes Triton's interpreter convert between float32 and bfloat16 as a GPU does, and launch faster."""

from __future__ import annotations

import inspect
import types
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_PATCHED: Final = "_patch_attr"  # the interpreter's function that makes what takes the place of a builtin in a launch


def round_to_nearest_even() -> None:
    """Replace the interpreter's conversions between float32 and bfloat16 in this process.

    Triton's interpreter (3.6 and 3.7) drops the low 16 bits, where compiled code rounds to nearest even, so that a
    right bfloat16 kernel shows a mean error of -0.5 ulp; and it reads bfloat16 subnormals as zero. Conversions that ask
    for truncation, and all other pairs of types, stay as they are. Calling it again changes nothing.

    Raises:
        RuntimeError: this Triton has no `_convert_float(input, input_dtype, output_dtype, rounding_mode)`.
    """
    import triton
    import triton.language as tl
    from triton._C.libtriton import ir
    from triton.runtime import interpreter

    original: Any = getattr(interpreter, "_convert_float", None)
    if getattr(original, "rounds_to_nearest_even", False):
        return
    names = None if original is None else list(inspect.signature(original).parameters)
    if names != ["input", "input_dtype", "output_dtype", "rounding_mode"]:
        raise RuntimeError(f"triton {triton.__version__}: its interpreter's _convert_float is not the one known here")

    def convert(input: Any, input_dtype: Any, output_dtype: Any, rounding_mode: Any) -> Any:
        narrows = input_dtype == tl.float32 and output_dtype == tl.bfloat16
        if narrows and rounding_mode != ir.ROUNDING_MODE.RTZ:
            return bfloat16_bits(input)
        if input_dtype == tl.bfloat16 and output_dtype == tl.float32:
            return float32_bits(input)
        return original(input, input_dtype, output_dtype, rounding_mode)

    convert.rounds_to_nearest_even = True  # type: ignore[attr-defined]
    interpreter._convert_float = convert


def list_builtins_once() -> None:
    """Have the interpreter of this process keep the list of Triton's builtins; calling it again changes nothing.

    At each launch, and at each call of another kernel in it, it looks for them among all names of `triton.language`,
    which takes 1.2 of the 4.4 ms of a launch of 2 programs (Triton 3.7.1; 1.8 of 6.1 ms in 3.6).
    """
    import triton.language as tl
    from triton.runtime import interpreter

    if not isinstance(interpreter.inspect, _Listing):
        interpreter.inspect = _Listing(tl.core.is_builtin)


class _Listing(types.ModuleType):
    """`inspect` for the interpreter, with a `getmembers` that names what is a builtin, and keeps the names."""

    def __init__(self, is_builtin: Callable[[object], bool]) -> None:
        super().__init__(inspect.__name__)
        vars(self).update((name, value) for name, value in vars(inspect).items() if name != "getmembers")
        self._is_builtin = is_builtin
        self._names: dict[tuple[int, int], list[str]] = {}

    def getmembers(self, of: Any) -> list[tuple[str, Any]]:
        """The builtins of a module or class that no launch has in hand; a module that gets a name is read again."""
        key = id(of), 0 if isinstance(of, type) else len(vars(of))  # a class gets some names in each launch
        if key not in self._names:
            every = inspect.getmembers(of)  # within a launch, what is patched is a builtin otherwise
            self._names[key] = [name for name, each in every if self._is_builtin(each) or _is_patched(each)]
        return [(name, member) for name in self._names[key] if self._is_builtin(member := getattr(of, name))]


def _is_patched(member: object) -> bool:
    return _PATCHED in getattr(member, "__qualname__", "")


def bfloat16_bits(values: Any) -> Any:
    """The uint16 bit patterns of a float32 NumPy array rounded to bfloat16, nearest even, nan kept quiet."""
    import numpy as np

    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    nan = (bits & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
    quiet = (bits >> np.uint32(16)) | np.uint32(0x0040)
    return np.where(nan, quiet, rounded).astype(np.uint16).reshape(np.shape(values))


def float32_bits(values: Any) -> Any:
    """The uint32 bit patterns of the float32 values that a NumPy array of bfloat16 bit patterns stands for."""
    import numpy as np

    bits = np.ascontiguousarray(values).view(np.uint16).astype(np.uint32) << np.uint32(16)
    return bits.reshape(np.shape(values))
