"""act(gate)·up: its autograd functions, its launches, its kernels."""
