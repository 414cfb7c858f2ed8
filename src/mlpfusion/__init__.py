"""Many implementations of one gated MLP behind one interface, and the instruments to judge them.

Names are loaded on first use: `import mlpfusion` itself imports neither torch nor anything else that is slow.
`mlpfusion.trace` is the package that reads traces and, called as `mlpfusion.trace(fn, *args)`, `mlpfusion.record`.
"""

TYPE_CHECKING = False  # type checkers read it as true; importing `typing` for it would take longer than all of this

if TYPE_CHECKING:
    from mlpfusion.backend import Backend as Backend
    from mlpfusion.device import Device as Device
    from mlpfusion.errors import BackendUnavailableError as BackendUnavailableError
    from mlpfusion.errors import MeasurementError as MeasurementError
    from mlpfusion.errors import MlpfusionError as MlpfusionError
    from mlpfusion.errors import NothingSwappedError as NothingSwappedError
    from mlpfusion.errors import UnknownBackendError as UnknownBackendError
    from mlpfusion.errors import UsageError as UsageError
    from mlpfusion.models.restore import restore as restore
    from mlpfusion.models.swap import Handle as Handle
    from mlpfusion.models.swap import swap as swap
    from mlpfusion.module import GatedMLP as GatedMLP
    from mlpfusion.module import PackedGatedMLP as PackedGatedMLP
    from mlpfusion.records.choice import Choice as Choice
    from mlpfusion.records.profile import Accuracy as Accuracy
    from mlpfusion.records.profile import Bound as Bound
    from mlpfusion.records.profile import Clock as Clock
    from mlpfusion.records.profile import Clocks as Clocks
    from mlpfusion.records.profile import Decoded as Decoded
    from mlpfusion.records.profile import Environment as Environment
    from mlpfusion.records.profile import Explanation as Explanation
    from mlpfusion.records.profile import Kernel as Kernel
    from mlpfusion.records.profile import Launches as Launches
    from mlpfusion.records.profile import Memory as Memory
    from mlpfusion.records.profile import PreOpParts as PreOpParts
    from mlpfusion.records.profile import PreOps as PreOps
    from mlpfusion.records.profile import Profile as Profile
    from mlpfusion.records.profile import Ratio as Ratio
    from mlpfusion.records.profile import Row as Row
    from mlpfusion.records.profile import Setup as Setup
    from mlpfusion.records.profile import Token as Token
    from mlpfusion.records.profile import Traffic as Traffic
    from mlpfusion.records.trace import Difference as Difference
    from mlpfusion.records.trace import Finding as Finding
    from mlpfusion.records.trace import Reading as Reading
    from mlpfusion.report.profile.table import render as render
    from mlpfusion.spec import MLPSpec as MLPSpec
    from mlpfusion.spec import Workload as Workload
    from mlpfusion.stages.choose.run import choose as choose
    from mlpfusion.stages.profile.run import profile as profile
    from mlpfusion.stages.trace.run import diff as diff
    from mlpfusion.stages.trace.run import record as record
    from mlpfusion.storage.results import load as load
    from mlpfusion.storage.results import save as save
    from mlpfusion.trace.analysis.summary import read as read
    from mlpfusion.trace.analysis.summary import read_all as read_all
    from mlpfusion.trace.findings.host import findings as findings
    from mlpfusion.trace.names.explain import explain as explain

    __version__: str

_HOMES = {
    "stages.profile.run": ("profile",),
    "backend": ("Backend",),
    "records.choice": ("Choice",),
    "device": ("Device",),
    "errors": (
        "BackendUnavailableError",
        "MeasurementError",
        "MlpfusionError",
        "NothingSwappedError",
        "UnknownBackendError",
        "UsageError",
    ),
    "stages.choose.run": ("choose",),
    "models.restore": ("restore",),
    "models.swap": ("Handle", "swap"),
    "module": ("GatedMLP", "PackedGatedMLP"),
    "records.trace": ("Difference", "Finding", "Reading"),
    "records.profile": (
        "Accuracy",
        "Bound",
        "Clock",
        "Clocks",
        "Decoded",
        "Environment",
        "Explanation",
        "Kernel",
        "Launches",
        "Memory",
        "PreOpParts",
        "PreOps",
        "Profile",
        "Ratio",
        "Row",
        "Setup",
        "Token",
        "Traffic",
    ),
    "report.profile.table": ("render",),
    "spec": ("MLPSpec", "Workload"),
    "storage.results": ("load", "save"),
    "trace.names.explain": ("explain",),
    "trace.findings.host": ("findings",),
    "trace.analysis.summary": ("read", "read_all"),
    "stages.trace.run": ("diff", "record"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Accuracy",
    "Backend",
    "BackendUnavailableError",
    "Bound",
    "Choice",
    "Clock",
    "Clocks",
    "Decoded",
    "Device",
    "Difference",
    "Environment",
    "Explanation",
    "Finding",
    "GatedMLP",
    "Handle",
    "Kernel",
    "Launches",
    "MLPSpec",
    "MeasurementError",
    "Memory",
    "MlpfusionError",
    "NothingSwappedError",
    "PackedGatedMLP",
    "PreOpParts",
    "PreOps",
    "Profile",
    "Ratio",
    "Reading",
    "Row",
    "Setup",
    "Token",
    "Traffic",
    "UnknownBackendError",
    "UsageError",
    "Workload",
    "__version__",
    "choose",
    "diff",
    "explain",
    "findings",
    "load",
    "profile",
    "read",
    "read_all",
    "record",
    "render",
    "restore",
    "save",
    "swap",
]


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        found: object = version("mlpfusion-read")
    elif name in _HOME_OF:
        from importlib import import_module

        found = getattr(import_module(f"mlpfusion.{_HOME_OF[name]}"), name)
    elif name == "trace":
        from importlib import import_module

        found = import_module("mlpfusion.trace")
    else:
        raise AttributeError(f"module 'mlpfusion' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
