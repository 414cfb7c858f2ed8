"""The kinds of files that scripts write are told apart from those that verbs write."""

from __future__ import annotations

from mlpfusion.records import bench
from mlpfusion.storage import results


def test_each_kind_has_one_reader() -> None:
    assert len(set(bench.KINDS)) == len(bench.KINDS)
    assert not {"profile", "choice", "choice plan", "proof", "validation", "self-test", "tuning"} & set(bench.KINDS)
    assert {results._KINDS[kind].record for kind in bench.KINDS} == {bench.Bench}
