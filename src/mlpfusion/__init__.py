"""Many implementations of one gated MLP behind one interface, and the instruments to judge them.

Names are loaded on first use: `import mlpfusion` itself imports neither torch nor anything else that is slow. Records
that functions return are in `mlpfusion.records`, all errors in `mlpfusion.errors`.
"""

TYPE_CHECKING = False  # type checkers read it as true; importing `typing` for it would take longer than all of this

# The public names, each once: type checkers follow these imports, and `_homes` reads them for what runs.
if TYPE_CHECKING:
    from mlpfusion import inductor as inductor
    from mlpfusion.backend import Backend as Backend
    from mlpfusion.errors import BackendUnavailableError as BackendUnavailableError
    from mlpfusion.errors import MlpfusionError as MlpfusionError
    from mlpfusion.errors import UsageError as UsageError
    from mlpfusion.models.restore import restore as restore
    from mlpfusion.models.swap import swap as swap
    from mlpfusion.module import GatedMLP as GatedMLP
    from mlpfusion.records.profile import Profile as Profile
    from mlpfusion.report.profile.table import render as render
    from mlpfusion.spec import MLPSpec as MLPSpec
    from mlpfusion.spec import Workload as Workload
    from mlpfusion.stages.choose.run import choose as choose
    from mlpfusion.stages.compare.run import compare as compare
    from mlpfusion.stages.profile.run import profile as profile
    from mlpfusion.stages.prove.run import prove as prove
    from mlpfusion.stages.trace.read import read_job as read_job
    from mlpfusion.stages.trace.run import diff as diff
    from mlpfusion.stages.trace.run import record as record
    from mlpfusion.storage.results import load as load
    from mlpfusion.storage.results import save as save
    from mlpfusion.trace.analysis.summary import read as read
    from mlpfusion.trace.findings.host import findings as findings
    from mlpfusion.trace.names.explain import explain as explain

    __all__: list[str]
    __version__: str


def _homes() -> dict[str, str]:
    """The module of each public name, as the imports above have it; Triton needs the sources of a package as well."""
    lines = [line.split() for line in __loader__.get_source(__name__).splitlines()]  # type: ignore[name-defined]
    return {words[5]: words[1] for words in lines if words[:1] == ["from"] and words[4:5] == ["as"]}


def __getattr__(name: str) -> object:
    found: object
    if name == "__all__":
        found = [*_homes(), "__version__"]
    elif name == "__version__":
        from importlib.metadata import version

        found = version("mlpfusion-read")
    elif home := _homes().get(name):
        from importlib import import_module

        found = import_module(f"{home}.{name}") if home == __name__ else getattr(import_module(home), name)
    else:
        raise AttributeError(f"module 'mlpfusion' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_homes(), "__all__", "__version__"})
