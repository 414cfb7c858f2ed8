"""Tables of what a row has several of: its kernels, its errors, the values that go through memory."""
