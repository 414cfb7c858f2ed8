"""What a cluster's machines are sent runs where our packages are, and brings them where they are not."""

from __future__ import annotations

import io
import subprocess
import sys
import zipfile
from importlib import metadata

import msgspec
import pytest

from mlpfusion.stages.sweep.cluster import errand, node


def test_a_function_is_called_where_our_version_is_installed(monkeypatch):
    monkeypatch.setattr(node, "describe", b"".join)
    assert errand.run("describe", errand.version(), None, [b"a", b"b"]) == ("done", b"ab")


@pytest.mark.parametrize(("installed", "answer"), [(None, ("absent", None)), ("0.0.9", ("other", "0.0.9"))])
def test_without_our_version_nothing_runs(monkeypatch, installed, answer):
    def version(name):
        if installed is None:
            raise metadata.PackageNotFoundError(name)
        return installed

    wanted = errand.version()
    monkeypatch.setattr(metadata, "version", version)
    assert errand.run("describe", wanted, None, []) == answer


def test_what_is_packed_is_our_packages_with_their_metadata_and_nothing_compiled():
    names = zipfile.ZipFile(io.BytesIO(errand.packed())).namelist()
    assert {name.partition("/")[0] for name in names} == {
        "mlpfusion",
        "mlpfusion_kernels",
        f"mlpfusion-{errand.version()}.dist-info",
        f"mlpfusion_read-{metadata.version('mlpfusion-read')}.dist-info",
    }
    assert {"mlpfusion/models/models.toml", "mlpfusion/stages/sweep/cluster/node.py"} < set(names)
    assert not [name for name in names if name.endswith(".pyc")]


ELSEWHERE = """
import sys
sys.path[:] = [each for each in sys.path if not each.endswith(("/src", "/torch-ext"))]
from importlib import metadata
ours = metadata.distribution
source = open(sys.argv[1]).read()
there = {"__name__": "sent"}
exec(compile(source, "sent", "exec"), there)
answer = there["run"]("describe", sys.argv[3], open(sys.argv[2], "rb").read(), ["eager"])
print(answer[0], sys.modules["mlpfusion"].__file__, answer[1].decode(), sep="\\n")
"""


@pytest.mark.full  # it imports torch in another process
def test_a_machine_without_our_packages_runs_those_that_are_brought(tmp_path):
    wheel = tmp_path / "packed.zip"
    wheel.write_bytes(errand.packed())
    command = [sys.executable, "-c", ELSEWHERE, errand.__file__, str(wheel), errand.version()]
    found = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    said, ours, described = found.stdout.splitlines()
    assert said == "done"
    assert "/mlpfusion-" in ours
    there, here = (msgspec.json.decode(each, type=node.Described) for each in (described, node.describe(["eager"])))
    assert there.holds == here.holds  # with the digest of the kernels
