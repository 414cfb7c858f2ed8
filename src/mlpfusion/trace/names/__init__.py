"""Decodes kernel names."""
