"""Splitting C++ names: scope, function and arguments, whatever brackets the return type has, in linear time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlpfusion.trace.names.cpp import ANONYMOUS, arguments_of, split

WORDS = st.from_regex(r"[a-z]\w{0,8}", fullmatch=True)
ARGUMENTS = st.lists(
    st.one_of(
        WORDS,
        st.integers(0, 9).map(str),
        st.sampled_from(["std::array<char*, 2ul>", "A<B<c, d>, e>", "(int)3", "&(float f<float>(float))"]),
    ),
    max_size=4,
)
RETURNS = st.sampled_from(["", "void ", "std::enable_if<(((8)>(0)))&&a::b<c>::d, void>::type ", "std::pair<int, int> "])


@given(st.lists(st.one_of(WORDS, st.just(ANONYMOUS)), max_size=3), WORDS, ARGUMENTS, RETURNS, st.booleans())
def test_a_name_is_split_as_it_was_joined(
    scope: list[str], function: str, arguments: list[str], returns: str, takes: bool
) -> None:
    listed = f"<{', '.join(arguments)}>" if arguments else ""
    found = split(f"{returns}{'::'.join([*scope, function])}{listed}{'(int, float*)' if takes else ''}")
    assert (found.scope, found.function, found.arguments) == (tuple(scope), function, tuple(arguments))
    assert found.parameters == ("(int, float*)" if takes else "")


@pytest.mark.parametrize("spelling", ["<unnamed>", "(anonymous namespace)"])
def test_a_namespace_without_a_name_is_none(spelling: str) -> None:
    found = split(f"void at::native::{spelling}::f<int>(int)")
    assert found.scope == ("at", "native", ANONYMOUS)
    assert found.qualified == "at::native::f"


@given(st.text("<>(){}[]:, a1&*\n", max_size=300))
def test_any_text_is_split(text: str) -> None:
    found = split(text)
    assert isinstance(found.qualified, str)
    assert all(argument in text for argument in arguments_of(text))
