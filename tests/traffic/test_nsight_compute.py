"""Nsight Compute: its table of counters, whose kernels are whose, and why there is none."""

from __future__ import annotations

import msgspec
import pytest
from support.counted import CPU, GELU, GPU, TRACED

from mlpfusion.errors import MeasurementError
from mlpfusion.traffic import nsight_compute
from mlpfusion.traffic.nsight_compute import KernelBytes, by_backend, parse, same_kernel

HEAD = '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"'


def table(*rows: str) -> str:
    return "\n".join(["==PROF== Connected", HEAD, *rows, "==PROF== Disconnected"])


def lines(number: int, name: str, read: str, write: str, unit: str = "byte") -> list[str]:
    quoted = name.replace('"', '""')
    return [
        f'"{number}","{quoted}","{nsight_compute.READ}","{unit}","{read}"',
        f'"{number}","{quoted}","{nsight_compute.WRITE}","{unit}","{write}"',
    ]


def test_names_with_commas_and_quotes_and_thousands_are_read():
    text = table(*lines(0, GELU, "50,331,648", "1,024"), *lines(1, 'odd"name', "3.5", "0", "Kbyte"))
    assert parse(text) == [KernelBytes(GELU, 50331648, 1024), KernelBytes('odd"name', 3500, 0)]


def test_two_runs_of_one_kernel_are_two_kernels():
    assert [kernel.bytes for kernel in parse(table(*lines(0, "k", "1", "1"), *lines(1, "k", "2", "2")))] == [2, 4]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM", "NVreg_RestrictProfilingToAdminUsers=0"),
        ("==WARNING== No kernels were profiled.", "wrote no table: ==WARNING== No kernels were profiled."),
        ("", "wrote no table"),
        (table(*lines(0, "k", "1", "2", "parsec")), "counts in 'parsec'"),
        (table(*lines(0, "k", "n/a", "2")), "'n/a' where a number"),
        (table(lines(0, "k", "1", "2")[0]), "only one of two counters for 'k'"),
    ],
)
def test_what_is_no_table_of_both_counters_is_an_error(text, says):
    with pytest.raises(MeasurementError) as raised:
        parse(text)
    assert says in str(raised.value)


def test_markers_part_the_backends():
    marker = KernelBytes("void at::cuda::<unnamed>::spin_kernel(long)", 0, 0)
    a, b = KernelBytes("a", 1, 1), KernelBytes("b", 2, 2)
    found = by_backend([KernelBytes("before", 9, 9), marker, a, b, marker], ["one", "two"])
    assert found == {"one": (a, b), "two": ()}
    with pytest.raises(MeasurementError, match="saw 1 of 2 backends"):
        by_backend([marker, a], ["one", "two"])


def test_demanglers_may_spell_a_name_differently():
    assert same_kernel(GELU, TRACED)
    assert same_kernel("nvjet_sm90_tst_256x128_64x4", "nvjet_sm90_tst_256x128_64x4")
    assert not same_kernel("nvjet_sm90_tst_256x128_64x4", "nvjet_sm90_tst_192x128_64x5")
    assert not same_kernel(GELU, "void at::native::elementwise_kernel<128, 4>(int)")


@pytest.mark.parametrize(
    ("device", "ncu", "says"),
    [
        (CPU, "/bin/ncu", "need a GPU"),
        (msgspec.structs.replace(GPU, runtime="rocm"), "/bin/ncu", "does not know rocm"),
        (GPU, None, "no `ncu` on the PATH; install nsight-compute"),
    ],
)
def test_the_reason_says_what_to_do(device, ncu, says):
    assert says in nsight_compute.unavailable(device, ncu)


def test_it_is_found_on_the_path_or_where_installers_put_it(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(nsight_compute, "_ELSEWHERE", (str(tmp_path / "nsight" / "*" / "ncu"),))
    assert nsight_compute.find() is None
    for version in ("2024.1", "2025.3"):
        (tmp_path / "nsight" / version).mkdir(parents=True)
        (tmp_path / "nsight" / version / "ncu").touch()
    assert nsight_compute.find() == str(tmp_path / "nsight" / "2025.3" / "ncu")
