"""Reads the bytes of a trace into columns of events."""
