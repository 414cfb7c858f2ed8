"""The public surface: what `import mlpfusion` promises, and what it costs."""

from __future__ import annotations

import pkgutil
import subprocess
import sys

import msgspec
import pytest

import mlpfusion
from mlpfusion import errors, records


@pytest.mark.parametrize("name", mlpfusion.__all__)
def test_every_promised_name_is_there(name: str) -> None:
    assert getattr(mlpfusion, name) is not None
    assert name in dir(mlpfusion)


def test_no_name_is_promised_twice_and_all_of_them_by_a_star() -> None:
    code = "from mlpfusion import *; import mlpfusion; print(*(n for n in mlpfusion.__all__ if n not in globals()))"
    assert len(set(mlpfusion.__all__)) == len(mlpfusion.__all__)
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == ""


def test_no_module_has_the_name_of_something_public() -> None:
    modules = {found.name for found in pkgutil.iter_modules(mlpfusion.__path__)}
    assert {"trace", "stages", "spec"} <= modules
    assert not modules & set(mlpfusion.__all__)


# Modules are imported whole before the names or after them, and the names in both orders.
ORDERS = {
    "modules, names": "modules(); names(public)",
    "names, modules": "names(public); modules(); names(public)",
    "names backwards, modules": "names(public[::-1]); modules(); names(public)",
}


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_a_name_is_the_same_in_every_order_of_imports(order: str) -> None:
    code = f"""
import importlib, pkgutil, types
import mlpfusion
public = list(mlpfusion.__all__)
found = {{}}
def modules():
    for each in pkgutil.walk_packages(mlpfusion.__path__, "mlpfusion."):
        if each.name != "mlpfusion.__main__":
            module = importlib.import_module(each.name)
            parent, _, last = each.name.rpartition(".")
            assert getattr(importlib.import_module(parent), last) is module, each.name
def names(wanted):
    for name in wanted:
        value = getattr(mlpfusion, name)
        assert not isinstance(value, types.ModuleType), name
        assert found.setdefault(name, value) is value, name
{order}
print(len(found))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stderr, done.stdout.strip()) == ("", str(len(mlpfusion.__all__)))


def test_every_record_is_importable_from_one_place() -> None:
    code = {each.name for each in pkgutil.iter_modules(records.__path__)}
    assert {"base", "profile", "trace"} <= code
    for name in sorted(code):
        module = __import__(f"mlpfusion.records.{name}", fromlist=[name])
        for each, value in vars(module).items():
            own = isinstance(value, type) and value.__module__ == module.__name__ and not each.startswith("_")
            if own and issubclass(value, msgspec.Struct):
                assert getattr(records, each) is value


def test_what_the_public_functions_raise_has_a_public_base() -> None:
    raised = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, Exception)]
    assert len(raised) > 3
    assert all(issubclass(each, mlpfusion.MlpfusionError) for each in raised)


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match="module 'mlpfusion' has no attribute 'fuse'"):
        _ = mlpfusion.fuse  # type: ignore[attr-defined]


def test_the_package_of_traces_is_no_function() -> None:
    code = "import mlpfusion.trace; assert not callable(mlpfusion.trace); import sys; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_importing_it_imports_nothing_slow() -> None:
    code = "import sys; before = set(sys.modules); import mlpfusion; print(*(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["mlpfusion"]


def test_records_are_read_without_torch() -> None:
    code = (
        "import sys; sys.modules['torch'] = None; import mlpfusion, mlpfusion.records; "
        "mlpfusion.Profile, mlpfusion.load, mlpfusion.render"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
