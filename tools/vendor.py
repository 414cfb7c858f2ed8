"""Fetches the scripts that draw the figures of a page, through npm, and refuses what is not of the digests on record.

python tools/vendor.py            (writes src/mlpfusion/report/page/vendored/ anew from vendored.json there)
python tools/vendor.py --record   (after a change of a version in vendored.json: records the digests of what npm gives)
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "src" / "mlpfusion" / "report" / "page" / "vendored"
LIST = FOLDER / "vendored.json"


def main(*, record: bool) -> int:
    """Write every file of the list; the number of those that are not as recorded."""
    packages = json.loads(LIST.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        wrong = sum(_fetched(each, Path(folder), record=record) for each in packages)
    if record:
        LIST.write_text(json.dumps(packages, indent=2) + "\n", encoding="utf-8")
    return wrong


def _fetched(package: dict[str, Any], folder: Path, *, record: bool) -> int:
    name = f"{package['name']}@{package['version']}"
    done = subprocess.run(["npm", "pack", "--silent", name], cwd=folder, capture_output=True, text=True, check=True)
    wrong = 0
    with tarfile.open(folder / done.stdout.split()[-1]) as archive:
        for each in package["files"]:
            member = archive.extractfile(f"package/{each['from']}")
            assert member is not None, f"{name} has no {each['from']}"
            data = member.read()
            digest = hashlib.sha256(data).hexdigest()
            if record:
                each["sha256"] = digest
            elif digest != each["sha256"]:
                sys.stderr.write(f"{name}: {each['from']} is {digest}, recorded is {each['sha256']}; not written\n")
                wrong += 1
                continue
            (FOLDER / each["to"]).write_bytes(data)
    return wrong


if __name__ == "__main__":
    sys.exit(main(record="--record" in sys.argv[1:]))
