"""The calls of a trace: which they are, what work each launched."""
