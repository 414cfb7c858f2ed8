"""Every key and item of a TOML text has its line, whatever is written around it."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlpfusion.stages.sweep.places import places

TEXT = '''# models = ["none"]
models = [ # and [here]
  "a", "b # no comment",

  { name = "x", "hidden_size" = 1.5 },
]
text = """
tokens = [1]
[also]
"""
'quoted key' = 'a = "b"' # = [
a.b.c = [[1, 2], [3]]
date = 1979-05-27 07:32:00
[[also]]
tokens = [1,
  16]
[also.inner]
x = 1
[[also]]
tokens = 5
'''


def test_the_line_of_each_thing():
    msgspec.toml.decode(TEXT)
    found = places(TEXT)
    assert found["models",] == 2
    assert [found["models", number] for number in range(3)] == [3, 3, 5]
    assert found["models", 2, "hidden_size"] == 5
    assert found["text",] == 7
    assert found["quoted key",] == 11
    assert found["a", "b", "c"] == 12
    assert (found["a", "b", "c", 1, 0], found["date",]) == (12, 13)
    assert [found["also", number] for number in range(2)] == [14, 19]
    assert [found["also", 0, "tokens", number] for number in range(2)] == [15, 16]
    assert found["also", 0, "inner", "x"] == 18
    assert found["also", 1, "tokens"] == 20
    assert ("tokens",) not in found


KEYS = st.from_regex(r"[A-Za-z0-9_-]{1,5}", fullmatch=True) | st.sampled_from(['"a b"', "'#'", '"[x]"', '"="'])
SCALARS = st.sampled_from(
    ["1", "-1.5e3", '"a#b"', "'[1]'", "true", '"""x\ny = [2\n"""', "'''\n#'''", '"\\""', "07:32:00"]
)
VALUES = st.recursive(
    SCALARS,
    lambda each: st.lists(each, max_size=3).map(lambda items: "[\n" + "".join(f"{one}, # ]\n" for one in items) + "]"),
    max_leaves=5,
)


@given(st.dictionaries(KEYS, VALUES, min_size=1, max_size=6), st.integers(0, 3))
def test_any_table_of_any_values_has_the_lines_of_its_keys(table, blank):
    lines, expected = [], {}
    for key, value in table.items():
        lines += ["", "# x = [ {"] * blank
        expected[key.strip("\"'")] = sum(line.count("\n") + 1 for line in lines) + 1
        lines.append(f"{key} = {value}")
    text = "\n".join(lines)
    if len(expected) < len(table):
        return
    values = msgspec.toml.decode(text)
    found = places(text)
    assert {key: found[key,] for key in values} == expected
    for key, value in values.items():
        items = [place for place in found if len(place) == 2 and place[0] == key]
        assert len(items) == (len(value) if isinstance(value, list) else 0)


@pytest.mark.parametrize("text", ["", "\n", "# only a comment", "[table]"])
def test_nothing_in_it_has_no_lines(text):
    assert set(places(text)) <= {("table",)}
