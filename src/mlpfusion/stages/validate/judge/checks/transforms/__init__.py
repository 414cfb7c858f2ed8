"""Checks of calls that something of PyTorch's transforms, each in a module of its own."""
