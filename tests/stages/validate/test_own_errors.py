"""An exception of the judge's own code is told from one of the target that it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from support.runs_made import run_of

from mlpfusion.stages.validate import own_errors
from mlpfusion.stages.validate.worker import guard
from mlpfusion.stages.validate.worker.probes import PROBES
from mlpfusion.stages.validate.worker.results import NoTensorError, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(autouse=True)
def _own_allocators() -> Iterator[None]:
    yield
    guard.restore()


def refuses(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    raise NotImplementedError("no such shape")


def allocates(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return torch.empty(-1)


def endless(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return endless(gate, up)


def product(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return gate * up


RAISED = (NotImplementedError, RuntimeError, NoTensorError, KeyError)
GIVEN = {"gate": torch.ones(3), "up": torch.ones(3)}


def asked(function: Any, probe: str = "forward") -> Callable[[], object]:
    return lambda: PROBES[probe](run_of(function), GIVEN, {})


def unwatchable() -> object:
    return guard.Watch(0.0).watched(torch.ones(2), lambda *args, **kwargs: torch.ones(1).to_sparse())


@pytest.mark.parametrize(
    ("call", "own"),
    [
        (asked(refuses), False),
        (asked(allocates), False),
        (asked(endless), False),
        (lambda: plain([]), False),  # raised on purpose
        (unwatchable, True),
        (asked(product, "backward"), True),  # it was given no dy, which no target is to blame for
    ],
)
def test_whose_exception_it_is(call: Callable[[], object], own: bool) -> None:
    with pytest.raises(RAISED) as caught:
        call()
    assert own_errors.is_own(caught.value) is own
