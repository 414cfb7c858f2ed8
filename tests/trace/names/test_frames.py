"""Frames are shown by file, line and function: no path and no address of a machine."""

from __future__ import annotations

import pytest

from mlpfusion.trace.names.frames import module, module_class, shown

NAMES = [
    ("/home/alice/my model/modeling_llama.py(170): forward", "modeling_llama.py(170): forward"),
    ("transformers/models/llama/modeling_llama.py(170): forward", "modeling_llama.py(170): forward"),
    ("C:\\Users\\alice\\run.py(3): <module>", "run.py(3): <module>"),
    ("train.py(3): main", "train.py(3): main"),
    ("<string>(1): <lambda>", "<string>(1): <lambda>"),
    ("<frozen importlib._bootstrap>(1007): _find_and_load", "<frozen importlib._bootstrap>(1007): _find_and_load"),
    ("/tmp/ipykernel_4711/1234.py(5): step", "1234.py(5): step"),
    ("torch/_ops.py(1158): __call__", "_ops.py(1158): __call__"),
    ("<built-in method mm of type object at 0x7f86b4a51a00>", "<built-in method mm of type object>"),
    ("<built-in function linear>", "<built-in function linear>"),
    ("<built-in method load of /opt/alice/thing.so object at 0x1>", "<built-in method load of thing.so object>"),
    ("nn.Module: LlamaMLP_0", "nn.Module: LlamaMLP_0"),
    ("nn.Module: /home/alice/Net_0", "nn.Module: Net_0"),
    ("PyTorch Profiler (0)", "PyTorch Profiler (0)"),
    ("a\nname", "a name"),
    ("", "a frame without a name"),
    ("/home/alice/", "a frame without a name"),
]


@pytest.mark.parametrize(("name", "expected"), NAMES)
def test_a_frame_is_shown_without_what_is_of_a_machine(name: str, expected: str) -> None:
    assert shown(name) == expected
    assert shown(expected) == expected


def test_a_module_is_its_instance_and_its_class() -> None:
    assert module("nn.Module: LlamaMLP_12") == "LlamaMLP_12"
    assert module("model.py(12): forward") is None
    assert module_class("nn.Module: LlamaMLP_12") == "nn.Module: LlamaMLP"
