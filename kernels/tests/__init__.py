"""Tests of the published package; as a package, so that pytest does not name them after the directory `kernels`."""
