"""The HBM traffic of a call: its ledger, round-trips, hardware counters and roofline limits."""
