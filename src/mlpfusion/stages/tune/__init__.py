"""Searches for faster configurations of the fused kernels."""
