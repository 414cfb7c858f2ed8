"""What Ray is given to run on a machine that may lack our packages: it is sent as source, and brings them if it must.

Nothing of ours is imported here but in functions that run where it is installed.
"""

from __future__ import annotations

import importlib
import io
import os
import sys
import tempfile
import zipfile
from importlib import metadata, util
from pathlib import Path
from typing import Any

# "absent", or "other" with the version that is there, or "done" with what the function returned.
Answer = tuple[str, Any]


def run(name: str, wanted: str, packages: bytes | None, *arguments: object) -> Answer:
    """Call a function of `mlpfusion.stages.sweep.cluster.node`, of this version of ours alone."""
    with tempfile.TemporaryDirectory(prefix="mlpfusion-") as folder:
        if packages is not None:
            zipfile.ZipFile(io.BytesIO(packages)).extractall(folder)
            sys.path.insert(0, folder)
            rest = os.environ.get("PYTHONPATH")
            os.environ["PYTHONPATH"] = folder if not rest else os.pathsep.join((folder, rest))
            importlib.invalidate_caches()
        try:
            there = metadata.version("mlpfusion")
        except metadata.PackageNotFoundError:
            return "absent", None
        if there != wanted:
            return "other", there
        node = importlib.import_module("mlpfusion.stages.sweep.cluster.node")
        return "done", getattr(node, name)(*arguments)


def version() -> str:
    """The version that is installed here."""
    return metadata.version("mlpfusion")


def packed() -> bytes:
    """Our packages as they are here, with what names their versions and backends: a wheel to be unpacked."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as wheel:
        for package in ("mlpfusion", "mlpfusion_kernels"):
            found = util.find_spec(package)
            assert found is not None
            assert found.origin is not None
            root = Path(found.origin).parent
            for path in sorted(root.rglob("*")):
                if path.is_file() and "__pycache__" not in path.parts:
                    wheel.write(path, f"{package}/{path.relative_to(root)}")
        for name in ("mlpfusion", "mlpfusion-read"):
            there = metadata.distribution(name)
            for file in ("METADATA", "entry_points.txt"):
                text = there.read_text(file)
                if text is not None:
                    wheel.writestr(f"{name.replace('-', '_')}-{there.version}.dist-info/{file}", text)
    return made.getvalue()
