"""Renders records as text: pure functions."""
