"""For the tests of validation: workers that examine targets, one pair for all tests of a file."""

from __future__ import annotations

from support import one_worker, targets_made

bench = targets_made.bench
worker = one_worker.worker
