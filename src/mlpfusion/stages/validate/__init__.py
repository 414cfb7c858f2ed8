"""Judges a custom kernel against fp64, eager and Inductor: a judge that never runs it, a worker that does nothing else.

The judge makes inputs and references and decides; the worker runs the target and returns raw results. This guards
against accidents and lazy cheats (a crash, a hang, a modified input, an output that was never written), not against
malware: the target runs with the rights of whoever calls it.
"""
