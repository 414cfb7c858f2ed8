"""Limits and counters put on rows, by the card's own rates, or the reason why there are none."""

from __future__ import annotations

from support import in_this_process

from mlpfusion import device
from mlpfusion.traffic import annotate


def test_ceilings_are_measured_on_the_device_at_hand(tmp_path, monkeypatch):
    monkeypatch.setattr(annotate.supervise, "run", in_this_process.run)
    here = device.detect("cpu")
    found = annotate.ceilings(
        "float32", [(64, 32, 16)], here, folder=tmp_path, time_limit_s=900, copies=[2**12, 2**16], calls=20
    )
    assert [one.bytes for one in found.copies] == [2**12, 2**16]
    assert all(one.bytes_per_second > 0 and one.n == 20 for one in found.copies)
    (product,) = found.products
    assert (product.m, product.n, product.k, product.samples) == (64, 32, 16, 20)
    assert list(tmp_path.glob("*.trace.json")) == []


def test_what_does_not_fit_into_memory_is_not_copied(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(
        annotate.supervise,
        "run",
        lambda task, **_: asked.append(task) or annotate.tasks.Broken(kind="failed", reason="no"),
    )
    here = device.Device(kind="cuda", name="a card", free_bytes=2**25)
    found = annotate.ceilings("bfloat16", [], here, folder=tmp_path, time_limit_s=1)
    assert asked[0].copies == (2**20, 2**22)
    assert found == "the card's ceilings could not be measured: no"


def test_without_memory_for_a_copy_there_are_no_ceilings(tmp_path, monkeypatch):
    monkeypatch.setattr(annotate.supervise, "run", lambda task, **_: annotate.tasks.Done())
    here = device.Device(kind="cuda", name="a card", free_bytes=0)
    assert "no memory for a copy" in annotate.ceilings("bfloat16", [], here, folder=tmp_path, time_limit_s=1)
