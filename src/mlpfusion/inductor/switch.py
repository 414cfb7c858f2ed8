"""Turns the pass on and off: for the process, for a block, or for one model."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

from torch._inductor import config

from mlpfusion.errors import UsageError
from mlpfusion.inductor.ledger import LEDGER
from mlpfusion.inductor.passes import Pass
from mlpfusion.inductor.settings import settle

if TYPE_CHECKING:
    from mlpfusion.inductor.ledger import Report

_PASS: Final = "pre_grad_custom_pass"
# Since torch 2.13. Early, each graph is looked up in caches as the pass left it: so the pass sees it, and reports it,
# when what was compiled comes from a cache too. Until 2.12 it is always so.
_TIMING: Final = "pre_grad_pass_timing"


class Enabled:
    """The pass, turned on; the end of a `with` block turns it off."""

    def __enter__(self) -> Enabled:
        return self

    def __exit__(self, *error: object) -> None:
        disable()

    def __repr__(self) -> str:
        settings = _STATE.ours.settings
        return "<disabled>" if settings is None else f"<{settings.backend!r} from {settings.min_tokens} tokens on>"


class _State:
    """The one pass of the process, and what the settings of Inductor were before it."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.ours = Pass(None)
        self.was: dict[str, Any] = {}  # as this thread had it
        self.elsewhere: dict[str, Any] = {}  # as threads had it that set nothing themselves


_STATE: Final = _State()


def enable(backend: str = "fused", *, min_tokens: int = 0) -> Enabled:
    """Put `backend` in place of each gated MLP that Inductor compiles from now on, in every thread of the process.

    Args:
        backend: "fused", or "auto:FILE" of a choice, which says for which numbers of tokens; where another backend
            wins, and below `min_tokens`, a graph stays as it is.
        min_tokens: the least number of tokens, the product of all dimensions of x but the last.

    What is compiled already stays: `torch._dynamo.reset()` forgets it. The report begins anew.

    Raises:
        UsageError: a bad argument, or the pass is on already.
        BackendUnavailableError: the backend cannot be loaded.
    """
    settings = settle(backend, min_tokens)
    with _STATE.lock:
        if _STATE.ours.settings is not None:
            raise UsageError(f"mlpfusion.inductor is on already, for {_STATE.ours.settings.backend!r}; disable() first")
        before = tuple(each for each in _set_passes() if each is not _STATE.ours)
        LEDGER.clear()
        _STATE.ours.settings, _STATE.ours.before = settings, before
        changes: dict[str, Any] = {_PASS: _STATE.ours}
        if hasattr(config, _TIMING):
            changes[_TIMING] = "early"
        _STATE.was = {name: getattr(config, name) for name in changes}
        for name, value in changes.items():
            setattr(config, name, value)
            _STATE.elsewhere[name] = _everywhere(name, value)
    return Enabled()


def disable() -> None:
    """Take the pass back, and give Inductor the settings that it had; what is compiled already stays.

    Raises:
        UsageError: another pass was set since, which would be lost; give that back first.
    """
    with _STATE.lock:
        if _STATE.ours.settings is None:
            return
        held = getattr(config, _PASS)
        if held is not _STATE.ours and any(each is _STATE.ours for each in _set_passes()):
            raise UsageError("another pre_grad_custom_pass was set since enable(): give that one back first")
        for name, value in _STATE.was.items():
            if name != _PASS or held is _STATE.ours:  # another thread's setting is not this one's to change
                setattr(config, name, value)
            _everywhere(name, _STATE.elsewhere.pop(name))
        _STATE.ours.settings, _STATE.ours.before = None, ()


def options(backend: str = "fused", *, min_tokens: int = 0) -> dict[str, Any]:
    """Options by which one model gets the pass: `torch.compile(model, options=mlpfusion.inductor.options())`.

    Arguments and errors are as of `enable`, which it does not need. Passes that are set now run before it.
    """
    before = tuple(each for each in _set_passes() if each is not _STATE.ours)
    found: dict[str, Any] = {_PASS: Pass(settle(backend, min_tokens), before)}
    if hasattr(config, _TIMING):
        found[_TIMING] = "early"
    return found


def report() -> Report:
    """What the pass met since the last `enable`, in all threads and for all models: see `Report`."""
    return LEDGER.report()


def _set_passes() -> tuple[Any, ...]:
    """The passes that this thread has set: since torch 2.13 there may be several."""
    held = getattr(config, _PASS)
    if isinstance(held, list | tuple):
        return tuple(held)
    return () if held is None else (held,)


def _everywhere(name: str, value: Any) -> Any:
    """Set what a thread sees that sets nothing itself, and return what it was.

    Since torch 2.13 a setting is of one context, and a thread that starts later has the defaults. The value that a
    variable of the environment would give is the only one of the process that is no copy for each thread.
    """
    entry = config._config[name]  # type: ignore[attr-defined]
    was, entry.env_value_default = entry.env_value_default, value
    return was
