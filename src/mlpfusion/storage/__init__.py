"""Reads and writes files."""
