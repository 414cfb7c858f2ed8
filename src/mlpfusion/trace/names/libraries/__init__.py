"""Decoders of kernel names, one for each library that makes kernels."""
