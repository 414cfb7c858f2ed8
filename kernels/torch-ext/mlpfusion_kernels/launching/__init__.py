"""Launches of Triton kernels at a low host cost."""
