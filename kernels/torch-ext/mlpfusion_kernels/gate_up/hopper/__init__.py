"""The warp-specialised kernels of compute capability 9.0, written in Gluon."""
