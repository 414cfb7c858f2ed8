"""The public surface: what `import mlpfusion` promises, and what it costs."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import mlpfusion_kernels
import msgspec
import pytest
from support import forked, rings

import mlpfusion
from mlpfusion import errors, records

if TYPE_CHECKING:
    from types import ModuleType


@pytest.mark.parametrize("name", mlpfusion.__all__)
def test_every_promised_name_is_there(name: str) -> None:
    assert getattr(mlpfusion, name) is not None
    assert name in dir(mlpfusion)


def test_no_name_is_promised_twice() -> None:
    assert len(set(mlpfusion.__all__)) == len(mlpfusion.__all__)


@pytest.mark.full  # it imports PyTorch
def test_all_of_them_are_promised_by_a_star() -> None:
    code = "from mlpfusion import *; import mlpfusion; print(*(n for n in mlpfusion.__all__ if n not in globals()))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == ""


PACKAGES = [mlpfusion, mlpfusion_kernels]
each_package = pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)


@each_package
def test_no_module_has_the_name_of_something_else_that_is_public(package: ModuleType) -> None:
    modules = {found.name for found in pkgutil.iter_modules(package.__path__)}
    assert len(modules) > 2
    for name in modules & set(package.__all__):
        assert getattr(package, name) is importlib.import_module(f"{package.__name__}.{name}"), name


# Modules are imported whole before the names or after them, and the names in both orders.
ORDERS = {
    "modules, names": "modules(); names(public)",
    "names, modules": "names(public); modules(); names(public)",
    "names backwards, modules": "names(public[::-1]); modules(); names(public)",
}


alone = partial(subprocess.run, capture_output=True, text=True, check=False)
# Forks have imported PyTorch and some modules of ours, which are forgotten; it takes the operators of kernels once.
RUNS = {"mlpfusion, forked": (mlpfusion, forked.run)} | {each.__name__: (each, alone) for each in PACKAGES}


@pytest.mark.parametrize(("package", "run"), rings.only_first(RUNS.values()), ids=RUNS)
@pytest.mark.parametrize("order", rings.only_first(ORDERS.values()), ids=ORDERS)
def test_a_name_is_the_same_in_every_order_of_imports(package: ModuleType, order: str, run: Any) -> None:
    code = f"""
import importlib, pkgutil, sys, types
for name in [name for name in sys.modules if name.partition(".")[0] == "{package.__name__}"]:
    del sys.modules[name]
import {package.__name__} as package
public = list(package.__all__)
found = {{}}
def modules():
    for each in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not each.name.endswith(".__main__"):
            exec(f"import {{each.name}} as module", own := {{}})
            assert own["module"] is importlib.import_module(each.name), each.name
def names(wanted):
    for name in wanted:
        value = getattr(package, name)
        home = package.__name__ + "." + name
        assert not isinstance(value, types.ModuleType) or value.__name__ == home, name
        assert found.setdefault(name, value) is value, name
{order}
exec("from {package.__name__} import *", star := {{}})
assert star.keys() >= set(public)
print(len(found))
"""
    done = run([sys.executable, "-c", code])
    assert (done.stderr, done.stdout.strip()) == ("", str(len(package.__all__)))


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
