"""Stands in for a worker of a study, and is there at once: it answers, fails, dies or hangs by the number of tokens."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

KILLED, HANGS, FAILS, NO_JSON, LOST = 13, 14, 15, 16, 17


def say(kind: str, text: str = "") -> None:
    print(json.dumps([kind, text]), flush=True)


def main() -> None:
    template = json.loads(Path(os.environ["STUDY_TEMPLATE"]).read_text(encoding="utf-8"))
    lost = Path(os.environ["STUDY_TEMPLATE"]).with_name("lost")
    if lost.exists():
        sys.exit("the card is not there any more")
    deaf = lost.with_name("deaf")
    if deaf.exists():  # as one that imports
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        deaf.rename(lost.with_name("is-deaf"))
        time.sleep(600)
    say("ready")
    for line in sys.stdin:
        order, answer = json.loads(line)
        tokens = order["workload"]["seq"]
        with Path(os.environ["STUDY_TEMPLATE"]).with_name("log").open("a", encoding="utf-8") as log:
            log.write(f"{tokens}\n")
        say("step", "qualify eager")
        if tokens == LOST:
            lost.touch()
        if tokens in (KILLED, LOST):
            print("last words", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        if tokens == HANGS:
            time.sleep(600)
        if tokens == FAILS:
            say("failed", "out of memory")
            continue
        found = {**template, "workload": order["workload"], "host_clocks": order["host_clocks"]}
        Path(answer).write_text("{" if tokens == NO_JSON else json.dumps(found), encoding="utf-8")
        say("done")


if __name__ == "__main__":
    main()
