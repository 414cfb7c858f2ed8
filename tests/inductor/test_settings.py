"""What a pass is asked for: valid backends and numbers, the ranges of a choice, and a digest of all that matters."""

from __future__ import annotations

import pytest
from support.choices_made import a_choice, part

from mlpfusion.errors import UsageError
from mlpfusion.inductor import settings
from mlpfusion.inductor.operator import Rule
from mlpfusion.inductor.settings import settle
from mlpfusion.storage import results


@pytest.mark.parametrize(
    ("backend", "min_tokens", "said"),
    [
        (None, 0, "backend must be a name, got None; valid: fused, or auto:FILE"),
        ("nonsense", 0, "unknown backend 'nonsense'"),
        ("triton", 0, "backend 'triton' needs a module and cannot stand in a graph; valid: fused, or auto:FILE"),
        ("compile", 0, "backend 'compile' needs a module"),
        ("auto:", 0, "needs a file"),
        ("auto:there-is-none.json", 0, "there-is-none.json"),
        ("fused", -1, "min_tokens must be an integer from 0 to"),
        ("fused", 1.5, "min_tokens must be an integer from 0 to"),
        ("fused", True, "min_tokens must be an integer from 0 to"),
    ],
)
def test_bad_arguments_are_named(backend, min_tokens, said):
    with pytest.raises(UsageError) as raised:
        settle(backend, min_tokens)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def choice(tmp_path, *parts):
    path = tmp_path / "choice.json"
    path.write_text(results.encode(a_choice(*parts)), encoding="utf-8")
    return f"auto:{path}"


def test_a_choice_gives_only_the_ranges_of_what_can_stand_in_a_graph(tmp_path):
    found = settle(choice(tmp_path, part("eager", 1, 8), part("fused", 9, 64), part("compile", 65, 128),
                          part("fused", 129)), 0)  # fmt: skip
    assert found.rules(training=False) == (Rule(9, 64, "fused"), Rule(129, None, "fused"))
    assert found.rules(training=True) == ()
    assert found.kept(False, 3) == "the choice names eager in inference"
    assert found.kept(False, 100) == "the choice names compile in inference"
    assert found.kept(True, 100) == "the choice names nothing for so many tokens in training"


def test_min_tokens_cuts_the_ranges_of_a_choice(tmp_path):
    name = choice(tmp_path, part("fused", 1, 8), part("fused", 9, 64), part("fused", 65))
    found = settle(name, 16)
    assert found.rules(training=False) == (Rule(16, 64, "fused"), Rule(65, None, "fused"))
    assert found.kept(False, 3) == "fewer tokens than min_tokens = 16"


def test_the_digest_is_another_one_for_whatever_decides(tmp_path, monkeypatch):
    one = choice(tmp_path, part("fused", 1))
    found = [settle("fused", 0), settle("fused", 1), settle("eager", 0), settle(one, 0)]
    digests = [each.digest() for each in found]
    choice(tmp_path, part("fused", 2))  # the same file with another choice
    digests.append(settle(one, 0).digest())
    monkeypatch.setattr(settings, "_sources", lambda: "other sources")
    digests.append(settle("fused", 0).digest())
    monkeypatch.undo()
    monkeypatch.setattr(settings, "_here", lambda backends: "another card, or other versions")
    digests.append(settle("fused", 0).digest())
    monkeypatch.undo()
    assert len(set(digests)) == len(digests)
    assert settle("fused", 0).digest() == digests[0]


def test_the_digest_covers_the_pass_the_operator_and_its_backward():
    from pathlib import Path

    from mlpfusion.backends import products
    from mlpfusion.inductor import operator, passes, prove

    covered = {path.name for folder in settings.folders() for path in folder.rglob("*.py")}
    assert {Path(str(each.__file__)).name for each in (operator, passes, prove, products)} <= covered
    assert "mlpfusion_kernels" in settings._here(("fused",))
