"""Judges custom kernels against fp64, eager and Inductor; the judge never runs a target, the worker never judges.

The judge makes inputs and references and decides; the worker runs the target and returns raw results. This guards
against accidents and lazy cheats (a crash, a hang, a modified input, an output that was never written), not against
malware: the target runs with the rights of whoever calls it.
"""
