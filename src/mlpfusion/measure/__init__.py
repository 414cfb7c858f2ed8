"""The only code that touches a device: clocks, traces, memory, and the processes they run in."""
