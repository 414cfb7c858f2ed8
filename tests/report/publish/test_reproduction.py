"""What measures a profile again: versions that pip takes, the flags, and two commands that can be copied."""

from __future__ import annotations

import shlex
import subprocess

import pytest
from msgspec.structs import replace
from support.paths import RESULTS

from mlpfusion.records.environment import Card, Checkout
from mlpfusion.report.publish import reproduction
from mlpfusion.storage import results

PROFILE = results.load(RESULTS / "h200-profile.json")
DIGEST = "ab" * 32


def lines(profile=PROFILE, name="a result.json"):
    return reproduction.render(profile, name, DIGEST).splitlines()


def changed(**changes):
    return replace(PROFILE, environment=replace(PROFILE.environment, **changes))


def test_the_two_commands_measure_the_same_and_judge_it() -> None:
    found = [shlex.split(line) for line in lines() if line.startswith("mlpfusion")]
    assert found == [
        ["mlpfusion", "profile", "--like", "a result.json", "--json", "rerun.json"],
        ["mlpfusion", "compare", "a result.json", "rerun.json"],
    ]
    assert f"# result file a result.json, SHA-256 {DIGEST}" in lines()


def test_every_package_is_pinned_and_what_pip_cannot_install_is_said() -> None:
    (pip,) = [line for line in lines() if " pip " in line]
    pins = dict(each.split("==") for each in pip.split("install ")[1].split())
    assert pins["torch"] == "2.11.0"
    assert pins["quack-kernels"] == PROFILE.environment.distributions["quack-kernels"]
    assert "mlpfusion" not in pins
    assert "# torch was the build 2.11.0+cu130" in lines()
    assert any(line.startswith("# kernels-community/liger-kernels: version 1") for line in lines())


@pytest.mark.parametrize("version", ["1.2.3; rm -rf ~", "$(id)", "1.2\n3", "", "file a1b2", "1.0 && x"])
def test_a_version_that_is_none_is_a_comment_and_no_command(version: str) -> None:
    found = lines(changed(distributions={"odd": version, "a;b": "1.0"}))
    (pip,) = [line for line in found if " pip " in line]
    assert "odd" not in pip
    assert "a;b" not in pip
    assert any(line.startswith("# odd:") for line in found)


def test_a_commit_is_checked_out_and_a_changed_tree_is_said() -> None:
    assert "git checkout abc123" in lines(changed(checkout=Checkout(commit="abc123", clean=True)))
    dirty = lines(changed(checkout=Checkout(commit="abc123", clean=False)))
    assert "git checkout abc123  # with changes that are in no commit" in dirty
    assert any("does not say of which commit" in line for line in lines())


def test_flags_are_set_first_and_the_card_is_told() -> None:
    found = lines(
        changed(flags={"TORCH_X": "a b", "no flag": "1"}, card=Card(power_limit_w=700.0, locked_clocks=False))
    )
    assert "export TORCH_X='a b'" in found
    assert not any("no flag" in line for line in found)
    said = next(line for line in found if line.startswith("# 2."))
    assert said.endswith("SM clock 1965 MHz, power limit 700 W, clocks not locked")


def test_a_shell_reads_all_of_it() -> None:
    found = [shlex.split(line) for line in lines(name="two  spaces.json") if line.startswith("mlpfusion")]
    assert found[1][2] == "two  spaces.json"
    odd = replace(changed(distributions={"x": "`id`"}), device=replace(PROFILE.device, name="a\ncard'\"$(id)"))
    text = reproduction.render(odd, "it's; a $file", DIGEST)
    assert subprocess.run(["sh", "-n"], input=text, text=True, capture_output=True, check=False).returncode == 0
    commands = [line for line in text.splitlines() if not line.startswith("#")]
    assert not any("id`" in line or "$(id)" in line for line in commands)
