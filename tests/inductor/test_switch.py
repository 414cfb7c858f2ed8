"""On and off: for the process and all its threads, for a block, for one model; with real graphs of Inductor."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import pytest
import torch
import torch._inductor.config as config
from support.passed import Gated, an_input, assert_same, outcome
from torch._dynamo.utils import counters
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch._inductor.utils import fresh_cache
from torch.nn import functional

from mlpfusion import inductor
from mlpfusion.errors import UsageError
from mlpfusion.inductor.passes import Pass

TIMING = hasattr(config, "pre_grad_pass_timing")


@pytest.fixture(autouse=True)
def _off_afterwards():
    yield
    config.pre_grad_custom_pass = None
    inductor.disable()
    config.pre_grad_custom_pass = None


class Counting(CustomGraphPass):
    """A pass of somebody else's."""

    def __init__(self, uuid="counting"):
        self.seen, self._uuid = 0, uuid

    def __call__(self, graph):
        self.seen += 1

    def uuid(self):
        return self._uuid


def in_a_thread(function):
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join()
    return found[0]


def test_it_is_set_and_given_back():
    before = config.pre_grad_custom_pass, TIMING and config.pre_grad_pass_timing
    enabled = inductor.enable("eager", min_tokens=3)
    assert isinstance(config.pre_grad_custom_pass, Pass)
    assert repr(enabled) == "<'eager' from 3 tokens on>"
    inductor.disable()
    assert (config.pre_grad_custom_pass, TIMING and config.pre_grad_pass_timing) == before
    assert repr(enabled) == "<disabled>"
    inductor.disable()  # once more is nothing


def test_a_block_turns_it_off_again_whatever_happens_inside():
    with pytest.raises(KeyError), inductor.enable("eager"):
        _ = {}[config.pre_grad_custom_pass]
    assert config.pre_grad_custom_pass is None


def test_twice_is_refused_and_changes_nothing():
    inductor.enable("eager", min_tokens=3)
    with pytest.raises(UsageError, match="on already, for 'eager'; disable"):
        inductor.enable("fused")
    assert config.pre_grad_custom_pass.settings.min_tokens == 3


def test_a_bad_argument_changes_nothing():
    with pytest.raises(UsageError, match="unknown backend"):
        inductor.enable("nonsense")
    assert config.pre_grad_custom_pass is None


@pytest.mark.parametrize("many", [False, True])
def test_a_pass_that_was_set_runs_first_and_is_given_back(many):
    theirs = [Counting(), Counting("other")] if many else [Counting()]
    config.pre_grad_custom_pass = theirs if many else theirs[0]
    with inductor.enable("eager"):
        ours = config.pre_grad_custom_pass
        ours(torch.fx.Graph())
        assert ours.uuid()[2:] == tuple(each.uuid() for each in theirs)
    assert [each.seen for each in theirs] == [1] * len(theirs)
    assert config.pre_grad_custom_pass == (theirs if many else theirs[0])


def test_a_pass_without_a_uuid_leaves_none():
    config.pre_grad_custom_pass = lambda graph: None
    with inductor.enable("eager"):
        assert config.pre_grad_custom_pass.uuid() is None


def test_a_pass_that_was_set_since_would_be_lost_so_that_is_refused():
    inductor.enable("eager")
    ours = config.pre_grad_custom_pass
    config.pre_grad_custom_pass = [ours, Counting()]
    with pytest.raises(UsageError, match="another pre_grad_custom_pass was set since"):
        inductor.disable()
    config.pre_grad_custom_pass = ours
    inductor.disable()


def test_threads_of_before_and_after_see_it_and_see_it_go():
    go, seen = threading.Event(), []
    early = threading.Thread(target=lambda: (go.wait(), seen.append(config.pre_grad_custom_pass)))
    early.start()
    inductor.enable("eager")
    go.set()
    early.join()
    late = in_a_thread(lambda: (config.pre_grad_custom_pass, TIMING and config.pre_grad_pass_timing))
    assert seen == [late[0]] == [config.pre_grad_custom_pass]
    assert late[1] == (TIMING and "early")
    inductor.disable()
    assert in_a_thread(lambda: config.pre_grad_custom_pass) is None


def test_another_thread_may_turn_it_off():
    inductor.enable("eager")
    in_a_thread(inductor.disable)
    assert in_a_thread(lambda: config.pre_grad_custom_pass) is None
    held = config.pre_grad_custom_pass  # of this thread's context, which no other one can change
    assert held is None or held.settings is None


def test_it_can_be_on_again_with_something_else():
    for tokens in (1, 2):
        with inductor.enable("eager", min_tokens=tokens):
            assert config.pre_grad_custom_pass.settings.min_tokens == tokens
            assert config.pre_grad_custom_pass.before == ()


def test_options_are_for_one_model_and_change_nothing_else():
    theirs = config.pre_grad_custom_pass = Counting()
    found = inductor.options("eager", min_tokens=5)
    assert found["pre_grad_custom_pass"].before == (theirs,)
    assert found["pre_grad_custom_pass"].settings.min_tokens == 5
    assert config.pre_grad_custom_pass is theirs


# ---- through Inductor itself, which takes seconds: one run for all of these -----------------------------------------


class Step(NamedTuple):
    """A compilation, what it gave and what it met."""

    values: dict[str, torch.Tensor]
    report: Any
    hits: int


def _compiled(mlp, x, **options):
    torch._dynamo.reset()
    counters.clear()
    values = outcome(torch.compile(mlp, fullgraph=True, **options), mlp, x)
    return Step(values, inductor.report(), counters["aot_autograd"]["autograd_cache_hit"])


@pytest.fixture(scope="module")
def steps():
    mlp, x = Gated(lambda g, u: functional.silu(g) * u), an_input()
    with fresh_cache():
        found = {"right": outcome(mlp, mlp, x)}
        with inductor.enable("eager"):
            found["first"] = _compiled(mlp, x)
        with inductor.enable("eager"):
            found["from a cache"] = _compiled(mlp, x)
        with inductor.enable("eager"):
            found["in a thread"] = in_a_thread(lambda: _compiled(mlp, x))
        with inductor.enable("eager", min_tokens=10):
            found["another min_tokens"] = _compiled(mlp, x)
        found["options"] = _compiled(mlp, x, options=inductor.options("eager"))
        with inductor.enable("eager", min_tokens=11):
            found["off"] = _compiled(mlp, x)
    torch._dynamo.reset()
    return found


full = pytest.mark.full
PLACED = ["first", "from a cache", "in a thread", "another min_tokens", "options"]


@full
@pytest.mark.parametrize("name", [*PLACED, "off"])
def test_values_and_gradients_are_right(steps, name):
    assert_same(steps[name].values, steps["right"])


@full
@pytest.mark.parametrize("name", PLACED)
def test_the_report_lists_what_was_placed_from_a_cache_too(steps, name):
    (placed,) = steps[name].report.placed[-1:]
    assert (placed.module, placed.activation, placed.tokens, placed.training) == ("", "silu", 10, True)
    assert placed.backends == ("eager",)


@full
def test_equal_settings_hit_the_cache_and_others_do_not(steps):
    hits = {name: step.hits for name, step in steps.items() if name != "right"}
    assert hits == {name: int(name in {"from a cache", "in a thread", "options"}) for name in hits}


@full
def test_what_is_kept_is_listed(steps):
    (kept,) = steps["off"].report.kept
    assert kept.reason == "fewer tokens than min_tokens = 11"


def test_inductor_runs_the_operator():
    mlp, x = Gated(lambda g, u: functional.silu(g) * u), an_input(grad=False)
    with fresh_cache(), torch.no_grad(), inductor.enable("eager"):
        step = _compiled(mlp, x)
    assert [each.training for each in step.report.placed] == [False]
    assert_same(step.values, {"y": mlp(x).detach()})


def test_where_inductor_does_not_run_no_graph_is_seen():
    mlp, x = Gated(lambda g, u: functional.silu(g) * u), an_input()
    with inductor.enable("eager"):
        torch._dynamo.reset()
        torch.compile(mlp, backend="aot_eager")(x)
        assert inductor.report().graphs == 0
        assert str(inductor.report()).startswith("no graph seen: only Inductor runs the pass")
