"""Many small cases of one kind as one test: to name, distribute and report a test takes longer than such a case."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def one_by_one(cases: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """Have a test try its cases, each a value or a tuple of its arguments, and fail with all of those that fail."""
    rows = [case if type(case) is tuple else (case,) for case in cases]

    def decorate(function: Callable[..., None]) -> Callable[[], None]:
        def test() -> None:
            assert rows, "no cases"
            failed: list[tuple[str, Exception]] = []
            for row in rows:
                try:
                    function(*row)
                except Exception as error:
                    failed.append((", ".join(map(repr, row)), error))
            if failed:
                lines = [f"{case}: {type(error).__name__}: {error}" for case, error in failed]
                raise AssertionError("\n".join([f"{len(failed)} of {len(rows)} cases fail:", *lines])) from failed[0][1]

        # Not functools.wraps: pytest would look for fixtures with the names of the function's arguments.
        test.__name__, test.__doc__, test.__module__ = function.__name__, function.__doc__, function.__module__
        return test

    return decorate
