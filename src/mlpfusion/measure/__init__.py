"""Everything that touches a device: clocks, traces, memory, and the worker processes."""
