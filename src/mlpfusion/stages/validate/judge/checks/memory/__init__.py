"""Checks of memory: what lies around operands and results, and offsets that 32 bits do not hold."""
