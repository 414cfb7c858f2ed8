"""Compiled rows against Inductor's own scheduler: where both agree, where they differ, and where nobody can say."""

from __future__ import annotations

import re
import sys
from contextlib import nullcontext
from pathlib import Path

import msgspec
import pytest
from support import inductor_caches, ledgers_made, rings
from support.in_this_process import run as in_this_process
from support.ledgers_made import SIZE, D, H, M

from mlpfusion import backend, reference
from mlpfusion.backends.compiled import _code_for
from mlpfusion.device import Device
from mlpfusion.records.profile import Row
from mlpfusion.records.traffic import Access, Buffer, Launch, Ledger, Run, ScheduledGraph
from mlpfusion.report.profile.data_flow import title
from mlpfusion.report.profile.notes import notes
from mlpfusion.spec import MLPSpec, Workload
from mlpfusion.traffic import annotate, inductor_check
from mlpfusion.traffic import row as row_traffic
from mlpfusion.traffic.recording import collect, host_memory, inductor_kernels, scheduler
from mlpfusion.traffic.round_trips import flow
from mlpfusion.workers import supervise, tasks

own_cache = inductor_caches.own_cache  # a fixture
HIDDEN, INPUT = M * H * SIZE, M * D * SIZE
CPU = Device(kind="cpu", name="a CPU")


def workload(mode, *, bias):
    spec = MLPSpec(hidden_size=D, intermediate_size=H, dtype="float32", bias=bias)
    return Workload(spec=spec, batch=2, seq=M // 2, mode=mode)


WORK = workload("training", bias=True)


@pytest.fixture(scope="module", params=rings.LONG)  # C++ of thirteen kernels
def training(tmp_path_factory):
    """A compiled forward and backward with biases, and the graphs of its compilation; both can be asked again."""
    made = ledgers_made.case("training", bias=True)
    with scheduler.watched(str(tmp_path_factory.mktemp("caches"))) as graphs:
        step = reference.step(backend.load("compile").bind(made.mlp), made)
        step()
        yield step, collect.names(made), tuple(graphs)


def asked(training):
    """What a worker answers."""
    step, named, graphs = training
    found = tuple(scheduler.account(graph) for graph in graphs)
    return tasks.Scheduled(graphs=found, ledger=collect.collect(step, named))


def row(ledger, **changes):
    """A row whose trace bore this ledger out."""
    found = flow(ledger)
    counted = msgspec.structs.replace(
        row_traffic.without_ledger(WORK, None),
        round_trips=len(found.intermediates),
        derived_bytes=found.derived_bytes,
        steps=found.steps,
        reasons={"scheduled": "of an earlier run", **changes},
    )
    return Row(backend="compile", status="ok", traffic=counted)


def compared(answer, ledger=None):
    return inductor_check.compared(row(ledger or answer.ledger), WORK, answer).traffic


# ---- code that was compiled just now ---------------------------------------------------------------------------------


def test_the_scheduler_bears_out_the_ledger_of_forward_and_backward(training):
    answer = asked(training)
    forward, backward = answer.graphs
    assert (forward.kernels, forward.intermediates) == (4, (HIDDEN,) * 3)
    # 6 products, one kernel for the sum of dy, one for dg, du and their two sums, one for dx; through memory go
    # dproduct, dg, du and the two parts of dx
    assert (backward.kernels, sorted(backward.intermediates)) == (9, [INPUT] * 2 + [HIDDEN] * 3)
    found = compared(answer)
    assert found.round_trips == 8
    assert [graph.kernels for graph in found.scheduled] == [4, 9]
    assert "scheduled" not in found.reasons
    assert "confirmed by Inductor's scheduler" in title("compile", found)


@pytest.mark.full  # it compiles all of it twice
def test_asking_changes_nothing_of_what_is_compiled(tmp_path):
    def source(context):
        _code_for.cache_clear()  # what this process compiled before is not taken again
        made = ledgers_made.case()
        step = reference.step(backend.load("compile").bind(made.mlp), made)
        with context as graphs:
            step()
            found = collect.collect(step, collect.names(made))
            (code,) = {launch.code for launch in found.launches}
            text = Path(sys.modules[inductor_kernels.PREFIX + code].__file__).read_text()
        with scheduler.watched(str(tmp_path)) as late:
            step()
        assert late == []  # compiled before: no scheduler runs
        return re.sub(r"# AOT ID: .*|(?<=graph_)\d+", "", text), found, graphs

    plain, ledger, _ = source(nullcontext())
    watched, again, graphs = source(scheduler.watched(str(tmp_path)))
    assert plain == watched
    assert flow(ledger) == flow(again)
    assert len(graphs) == 1  # although a cache had this code by now


# ---- broken on purpose -----------------------------------------------------------------------------------------------


@pytest.fixture
def unguarded(monkeypatch):
    """As on a GPU, whose memory nobody compares: there the scheduler alone tells that something was not seen."""
    monkeypatch.setattr(host_memory.Known, "_is_readable", lambda _: False)


def test_a_read_that_the_ledger_misses_is_found_out(training, unguarded, monkeypatch):
    real = inductor_kernels._cpp_kernels

    def without_one(module):
        return {name: pointers and pointers[1:] for name, pointers in real(module).items()}

    monkeypatch.setattr(inductor_kernels, "_cpp_kernels", without_one)
    answer = asked(training)
    assert len(flow(answer.ledger).intermediates) < 8
    found = compared(answer)
    assert found.round_trips is None
    assert found.derived_bytes is None
    assert found.steps == ()
    assert found.round_trips_at_least == len(flow(answer.ledger).intermediates)
    said = "Inductor's scheduler has 4 kernels and 3 values through memory (0.00288 MB), the ledger 4 kernels and 2"
    assert said in found.reasons["round_trips"]
    assert len(found.scheduled) == 2
    broken = msgspec.structs.replace(row(answer.ledger), traffic=found)
    assert any("Inductor's scheduler has" in note for note in notes([broken]))


def test_a_kernel_that_the_ledger_does_not_see_is_found_out(training, unguarded, monkeypatch):
    ledger = asked(training).ledger
    real = inductor_kernels._watcher
    hidden = "cpp_fused_add_view_2"
    monkeypatch.setattr(
        inductor_kernels,
        "_watcher",
        lambda ledgers, name, *rest: None if name == hidden else real(ledgers, name, *rest),
    )
    blind = asked(training)
    assert len(blind.ledger.launches) == len(ledger.launches) - 1
    assert "8 kernels" in compared(blind).reasons["round_trips"].rpartition("the ledger")[2]


def test_a_value_that_only_the_ledger_has_is_not_in_the_lower_bound(training):
    answer = asked(training)
    forward, backward = answer.graphs
    fewer = msgspec.structs.replace(
        answer, graphs=(msgspec.structs.replace(forward, intermediates=(HIDDEN,)), backward)
    )
    assert compared(fewer).round_trips_at_least == 6
    other = msgspec.structs.replace(forward, intermediates=(HIDDEN, HIDDEN, HIDDEN + 1))
    assert compared(msgspec.structs.replace(answer, graphs=(other, backward))).round_trips_at_least == 7


def test_a_difference_is_not_hidden_behind_a_graph_that_cannot_be_compared(training):
    answer = asked(training)
    forward = msgspec.structs.replace(answer.graphs[0], unknown="it is odd")
    backward = msgspec.structs.replace(answer.graphs[1], kernels=3)
    found = compared(msgspec.structs.replace(answer, graphs=(forward, backward)))
    assert found.round_trips is None
    assert "it is odd" in found.reasons["scheduled"]


# ---- where nobody can say --------------------------------------------------------------------------------------------


def test_what_cannot_be_compared_leaves_the_count_and_gives_the_reason(training):
    answer = asked(training)
    first, *rest = answer.ledger.launches

    def reason(made, ledger=answer.ledger):
        found = compared(made, ledger)
        assert found.round_trips == len(flow(ledger).intermediates)
        return found.reasons["scheduled"]

    def with_ledger(**changes):
        return msgspec.structs.replace(answer, ledger=msgspec.structs.replace(answer.ledger, **changes))

    odd = tuple(msgspec.structs.replace(graph, unknown="it is odd") for graph in answer.graphs)
    assert reason(msgspec.structs.replace(answer, graphs=odd)) == "not decidable from Inductor's scheduler: it is odd"
    assert "came from a cache" in reason(msgspec.structs.replace(answer, graphs=()))
    assert "failed: it crashed" in reason(tasks.Broken(kind="failed", reason="it crashed"))
    assert reason(msgspec.structs.replace(answer, ledger=None, no_ledger="it was shy")) == "it was shy"
    assert "not complete: half" in reason(with_ledger(faults=("half",)))
    unknown = (msgspec.structs.replace(first, unknown="who knows"), *rest)
    assert "not complete: aten::addmm: who knows" in reason(with_ledger(launches=unknown))
    others = tuple(one for one in answer.ledger.launches if one.source != "inductor")
    assert "other kernels" in reason(with_ledger(launches=others))
    foreign = tuple(msgspec.structs.replace(one, code=None) for one in answer.ledger.launches)
    assert "no launch" in reason(with_ledger(launches=foreign))
    twice = msgspec.structs.replace(answer.ledger, launches=answer.ledger.launches * 2)
    assert "several times" in reason(msgspec.structs.replace(answer, ledger=twice), twice)


def test_a_custom_operator_is_one_kernel_to_the_scheduler():
    def whole(buffer):
        return Access(buffer=buffer, runs=(Run(0, 8, 8, 1),))

    def launch(reads, writes, inside=None):
        return Launch(
            op="k",
            source="inductor",
            code="abc",
            inside=inside,
            reads=tuple(map(whole, reads)),
            writes=(whole(writes),),
        )

    inside = ("mine::op", 1)
    launches = (launch([0], 1), launch([1], 2, inside), launch([2], 3, inside), launch([3], 4))
    ledger = Ledger(launches=launches, buffers=(Buffer(bytes=8),) * 5)
    graph = ScheduledGraph(code="abc", kernels=3, intermediates=(8, 8))
    assert compared(tasks.Scheduled(graphs=(graph,), ledger=ledger)).scheduled == (graph,)


def test_copies_around_a_graphs_replay_are_not_the_schedulers():
    def launch(op, reads, writes):
        read, written = (Access(buffer=buffer, runs=(Run(0, 8, 8, 1),)) for buffer in (reads, writes))
        return Launch(op=op, source="operator", code="abc", reads=(read,), writes=(written,))

    launches = (launch("aten::copy_", 0, 1), launch("k", 1, 2), launch("k", 2, 3), launch("aten::_foreach_copy_", 3, 4))
    ledger = Ledger(launches=launches, buffers=(Buffer(bytes=8),) * 5, captured=True)
    graph = ScheduledGraph(code="abc", kernels=2, intermediates=(8,))
    assert compared(tasks.Scheduled(graphs=(graph,), ledger=ledger)).scheduled == (graph,)


# ---- in a profile ----------------------------------------------------------------------------------------------------


def test_a_worker_compiles_once_more_and_its_answer_travels(monkeypatch, tmp_path):
    spec = workload("inference", bias=False)
    asked_for = []

    def run(task, **rest):
        asked_for.append(task)
        _code_for.cache_clear()  # as in a process of its own
        return in_this_process(task, **rest)

    monkeypatch.setattr(supervise, "run", run)
    _code_for.cache_clear()  # the files of what other tests compiled are gone
    compile_row, told = row(ledgers_made.of_backend("compile")), []
    eager_row = msgspec.structs.replace(row(ledgers_made.of_backend("eager")), backend="eager")
    rows = [eager_row, compile_row]
    found, _ = annotate.weighed(
        rows, spec, CPU, counters=True, folder=tmp_path, seed=0, time_limit_s=900, tell=lambda *said: told.append(said)
    )
    assert [task.backend for task in asked_for] == ["compile"]
    assert found[0].traffic.scheduled == ()
    assert [(graph.kernels, graph.intermediates) for graph in found[1].traffic.scheduled] == [(4, (HIDDEN,) * 3)]
    assert ("schedule", "compile: compiled once more, with empty caches") in told
    assert list(tmp_path.iterdir()) == []


def test_without_being_asked_it_says_so_of_compiled_rows_alone(training, tmp_path):
    compiled_row = row(asked(training).ledger)
    others = [Row(backend="none", status="failed"), row(Ledger(launches=(), buffers=()))]
    found, _ = annotate.weighed(
        [compiled_row, *others], WORK, CPU, counters=False, folder=tmp_path, seed=0, time_limit_s=900, tell=print
    )
    assert found[0].traffic.reasons["scheduled"] == "not requested; --counters reads them"
    assert found[1:] == others
