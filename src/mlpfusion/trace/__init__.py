"""Reads traces of torch.profiler without torch: what a call ran, launched, and spent before its first launch."""
