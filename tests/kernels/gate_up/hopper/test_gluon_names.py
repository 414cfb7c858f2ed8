"""Operations of Gluon under the names that different releases of Triton have for them."""

from __future__ import annotations

from importlib import util
from typing import TYPE_CHECKING, Any

import pytest
from mlpfusion_kernels.gate_up.hopper import gluon_names
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import tma

if TYPE_CHECKING:
    from types import ModuleType

OLD_TMA = ("async_copy_global_to_shared", "async_copy_shared_to_global")
NEW_TMA = ("async_load", "async_store")


def anew() -> ModuleType:
    """The module as it would be imported first now."""
    spec = util.spec_from_file_location("gluon_names_anew", gluon_names.__file__)
    assert spec is not None
    assert spec.loader is not None
    made = util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def have(monkeypatch: pytest.MonkeyPatch, place: Any, there: tuple[str, ...], absent: tuple[str, ...]) -> None:
    for name in there:
        monkeypatch.setattr(place, name, name, raising=False)
    for name in absent:
        monkeypatch.delattr(place, name, raising=False)


@pytest.mark.parametrize(
    ("there", "absent", "found"),
    [(OLD_TMA, NEW_TMA, OLD_TMA), (NEW_TMA, OLD_TMA, NEW_TMA), (OLD_TMA + NEW_TMA, (), NEW_TMA)],
)
def test_copies_have_the_newest_name_that_is_there(
    monkeypatch: pytest.MonkeyPatch, there: tuple[str, ...], absent: tuple[str, ...], found: tuple[str, ...]
) -> None:
    have(monkeypatch, tma, there, absent)
    made = anew()
    assert (made.load_box, made.store_box) == found


@pytest.mark.parametrize(
    ("there", "absent", "found"),
    [
        (("_reinterpret",), ("reinterpret",), "_reinterpret"),
        (("reinterpret",), ("_reinterpret",), "reinterpret"),
        (("reinterpret", "_reinterpret"), (), "reinterpret"),
    ],
)
def test_another_view_of_memory_has_the_public_name_where_there_is_one(
    monkeypatch: pytest.MonkeyPatch, there: tuple[str, ...], absent: tuple[str, ...], found: str
) -> None:
    have(monkeypatch, gl.shared_memory_descriptor, there, absent)
    assert anew().reinterpreted == found


def test_all_are_operations_of_this_triton() -> None:
    for operation in (gluon_names.load_box, gluon_names.store_box, gluon_names.reinterpreted):
        assert callable(operation)
        assert operation.__module__.startswith("triton.experimental.gluon")


def test_a_triton_that_has_neither_name_is_an_error_at_import(monkeypatch: pytest.MonkeyPatch) -> None:
    have(monkeypatch, tma, (), OLD_TMA + NEW_TMA)
    with pytest.raises(AttributeError, match="async_copy_global_to_shared"):
        anew()
