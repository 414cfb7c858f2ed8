"""Finds a target by its text: in a file, a module or a kernel of the Hub, with its operands and its autotuners."""
