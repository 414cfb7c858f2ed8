"""Proves what a swap changed in a model."""
