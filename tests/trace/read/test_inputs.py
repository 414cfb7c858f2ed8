"""Each row gets back the text that its entry had, in whatever order the rows are sorted and kept."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mlpfusion.trace.read.inputs import Gathered, Text

TEXTS = st.none() | st.sampled_from([Text(b"[[2, 3]]", b'["float"]'), Text(b"[[4]]", b""), Text(b"[[5]]", b'["int"]')])


@given(st.lists(TEXTS, min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_texts_follow_their_entries(texts: list[Text | None], random: object) -> None:
    gathered = Gathered()
    for number, text in enumerate(texts):
        if text is not None:
            gathered.add(number, text)
    order = list(range(len(texts)))
    random.shuffle(order)  # type: ignore[attr-defined]
    found = gathered.sorted(np.array(order, dtype=np.int32))
    every = np.arange(len(texts))
    by_row = [texts[number] for number in order]
    assert found.of(every) == by_row
    wanted = np.array([row % 2 == 0 for row in every])
    assert found.kept(wanted).of(np.arange(int(wanted.sum()))) == by_row[::2]
