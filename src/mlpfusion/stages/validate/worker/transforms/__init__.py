"""Probes of calls that something of PyTorch's transforms: a compiler, autocast, checkpointing, hooks, vmap."""
