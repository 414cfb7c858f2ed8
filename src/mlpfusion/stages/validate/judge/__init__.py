"""Makes inputs and references, asks a worker for results, and decides; it never runs a target."""
