"""records.job: a job is JSON both ways, unknown ranks and times as null."""

from __future__ import annotations

import msgspec

from mlpfusion.records.job import Job, Late, Rank, RankSpread, Refused
from mlpfusion.records.trace import Share


def test_a_job_is_json_both_ways() -> None:
    times = (Share(name="call", us=950.0),)
    found = Job(
        ranks=(
            Rank(source="a.json", rank=0, by="trace", times=times, late=Late(us=3.0, held_us=2.0, last=1, of=2)),
            Rank(source="b.json", rank=None, by="unknown", incomplete="cut off"),
        ),
        world_size=4,
        missing=(2, 3),
        damaged=(Refused(source="c.json", rank=1, reason="empty"),),
        spreads=(RankSpread(name="call", low=1.0, low_rank=0, median=1.0, high=1.0, high_rank="b.json"),),
    )
    text = msgspec.json.encode(found)
    assert msgspec.json.decode(text, type=Job) == found
    document = msgspec.json.decode(text)
    assert (document["ranks"][1]["rank"], document["ranks"][1]["late"], document["ranks"][1]["times"]) == (
        None,
        None,
        [],
    )
