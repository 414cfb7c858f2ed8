"""Targets that take their process down, or never come back."""

import os
import signal
import sys
import time

import torch


def crashes(gate, up):
    os.kill(os.getpid(), signal.SIGSEGV)
    return gate * up


def hangs(gate, up):
    while True:
        time.sleep(1)


def exits(gate, up):
    os._exit(3)


def exits_politely(gate, up):
    sys.exit("no such device")


def recurses(gate, up):
    return recurses(gate, up)


def too_much_memory(gate, up):
    return torch.empty(2**52, dtype=gate.dtype, device=gate.device)[: gate.numel()]


def wrong_shape(gate, up):
    return (gate * up).sum()


def wrong_dtype(gate, up):
    return (torch.nn.functional.gelu(gate, approximate="tanh") * up).double()
