"""Stands in for Nsight Compute: runs the command behind its options, and writes a table of made-up counters.

FAKE_NCU says what happens: "ok", "refused" (no permission), "silent" (no kernels), or "broken" (it exits with 3).
FAKE_NCU_KERNELS is JSON: a list for each backend of [name, read bytes, write bytes].
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

HEAD = [
    "ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size", "Grid Size",
    "Device", "CC", "Section Name", "Metric Name", "Metric Unit", "Metric Value",
]  # fmt: skip


def main() -> int:
    args = sys.argv[1:]
    log = args[args.index("--log-file") + 1]
    cold = args[args.index("--cache-control") + 1] == "all"
    assert args[args.index("--clock-control") + 1] == "none"
    assert args[args.index("--profile-from-start") + 1] == "off"
    how = os.environ["FAKE_NCU"]
    if how == "broken":
        return 3
    command = args[args.index("--log-file") + 2 :]
    task = json.loads(Path(command[-2]).read_text(encoding="utf-8"))
    with open(command[-1], "w", encoding="utf-8") as answer:  # the worker's, which has no GPU here
        json.dump({"type": "done"}, answer)
    subprocess.run([command[0], "-c", "pass"], check=True)
    with open(log, "w", encoding="utf-8", newline="") as text:
        text.write("==PROF== Connected to process 7 (/usr/bin/python)\n")
        if how == "refused":
            text.write("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access counters.\n")
            return 1
        if how == "silent":
            text.write("==WARNING== No kernels were profiled.\n")
            return 0
        table = csv.writer(text, quoting=csv.QUOTE_ALL)
        table.writerow(HEAD)
        number = 0
        by_backend = json.loads(os.environ["FAKE_NCU_KERNELS"])
        for backend in task["backends"]:
            kernels = [["at::cuda::<unnamed>::spin_kernel(long)", 0, 0], *by_backend[backend]]
            for name, read, write in kernels:
                text.write("==PROF== Profiling a kernel: 0%....100% - 1 pass\n")
                more = 2 * read if cold else read
                for metric, value in (("dram__bytes_read.sum", more), ("dram__bytes_write.sum", write)):
                    table.writerow(
                        [number, 7, "python", "here", name, 1, 7, "(1, 1, 1)", "(1, 1, 1)", 0, "9.0",
                         "Command line profiler metrics", metric, "byte", f"{value:,}"]
                    )  # fmt: skip
                number += 1
        text.write("==PROF== Disconnected from process 7\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
