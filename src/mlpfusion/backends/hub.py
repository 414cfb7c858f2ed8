"""`hub`: Liger's gated MLPs from the Hugging Face Hub, loaded by the `kernels` library."""

from __future__ import annotations

import json
import os
import re
import threading
import time
from importlib import util
from pathlib import Path
from typing import TYPE_CHECKING, Final

import torch

from mlpfusion import limits
from mlpfusion.backend import both
from mlpfusion.backends.liger_shared import LAYERS, beyond_liger, borrow, no_gpu
from mlpfusion.errors import BackendUnavailableError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from torch import Tensor

    from mlpfusion.backend import GatedLayers
    from mlpfusion.device import Device
    from mlpfusion.spec import MLPSpec

REPO: Final = "kernels-community/liger-kernels"
VERSION: Final = 1  # what the published tutorial loads
REPO_VARIABLE: Final = "MLPFUSION_HUB_REPO"
VERSION_VARIABLE: Final = "MLPFUSION_HUB_VERSION"

# Of `unsupported`, with the import of `kernels`: 0.5 s where the Hub is near and the machine idle.
ANSWER_S: Final = 15.0
LEAST_PROBE_S: Final = 0.5
LONGEST_REASON: Final = 300

# Packages whose errors mean that no server answered: huggingface_hub's client, by release, and what is under it.
TRANSPORT: Final = ("httpx", "httpx2", "httpcore", "httpcore2")


class Hub:
    """Liger's MLPs from a kernel repository of the Hub, in the requested major version.

    `repo` ("owner/name") and `version` come from the arguments, else from the environment variables
    MLPFUSION_HUB_REPO and MLPFUSION_HUB_VERSION, else they are the published tutorial's. Where the kernel comes from:

    1. a directory that LOCAL_KERNELS="owner/name=DIRECTORY" names (its version is taken as it is, without a network),
    2. a copy in the local cache (KERNELS_CACHE or HF_HUB_CACHE) whose metadata have the requested version; like
       `kernels` offline this trusts what was downloaded before,
    3. the Hub at HF_ENDPOINT, unless HF_HUB_OFFLINE is set. `kernels` loads from trusted publishers only.

    After `bind`, `origin` says what was loaded, and `loaded` the repository's version and revision.

    Raises:
        UsageError: `repo` or `version`, or its variable, has no meaning.
    """

    name = "hub"
    distributions = ("kernels",)

    def __init__(self, repo: str | None = None, version: int | None = None) -> None:
        self.repo = _check_repo(os.environ.get(REPO_VARIABLE, REPO) if repo is None else repo)
        self.version = _check_version(os.environ.get(VERSION_VARIABLE, VERSION) if version is None else version)
        self.origin: str | None = None
        self.loaded: dict[str, str] = {}

    def unsupported(self, spec: MLPSpec, device: Device) -> str | None:
        """The first limit that `spec`, `device` or the way to the kernel runs into.

        A local or cached kernel is loaded for this; on the Hub it is looked up, not downloaded.
        """
        deadline = time.monotonic() + ANSWER_S
        here = both(no_gpu(device), _not_installed)
        reason = here or beyond_liger(spec, device, tiles_wide_rows=False) or _not_installed()
        if reason is not None:
            return reason
        try:
            kernel = self._load_here()
        except Exception as error:  # kernels raises ValueError, OSError, RuntimeError and whatever an import raises
            return _why(error)
        return self._ask_hub(deadline) if kernel is None else self._lacks(kernel, spec)

    def bind(self, mlp: GatedLayers) -> Callable[[Tensor], Tensor]:
        """Liger's forward on `mlp`: x [..., hidden_size] -> y [..., hidden_size], in the dtype of the weights.

        Raises:
            BackendUnavailableError: the kernel cannot be found, downloaded or imported, or has no such MLP, or the
                module is not on the current GPU.
        """
        reason = _not_installed() or _not_current(mlp.gate_proj.weight.device)
        if reason is not None:
            raise BackendUnavailableError(self.name, reason)
        try:
            kernel = self._load_here() or self._download()
        except Exception as error:  # also httpx's errors, which are no OSError
            raise BackendUnavailableError(self.name, _why(error)) from error
        return borrow(getattr(kernel, "layers", None), mlp, self.name, tiles_wide_rows=False)

    def _lacks(self, kernel: ModuleType, spec: MLPSpec) -> str | None:
        layer = LAYERS[spec.activation]
        return None if hasattr(getattr(kernel, "layers", None), layer) else f"{self.origin} has no layers.{layer}"

    def _load_here(self) -> ModuleType | None:
        """The kernel from LOCAL_KERNELS or the cache, without a network; None if the Hub is needed."""
        from kernels import get_kernel, get_local_kernel

        directory = _override(self.repo)
        if directory is not None:
            if not directory.is_dir():
                raise FileNotFoundError(f"LOCAL_KERNELS names {directory} for {self.repo}, which is no directory")
            return self._note(get_kernel(self.repo, version=self.version), "from LOCAL_KERNELS")
        failure: Exception | None = None
        for snapshot in self._cached():
            try:
                return self._note(get_local_kernel(snapshot), "from the cache", snapshot.name)
            except Exception as error:  # a torn download, or builds for another system: the Hub can complete it
                failure = error
        if _is_offline():
            absent = f"HF_HUB_OFFLINE is set and {self.repo} version {self.version} is not in the local cache"
            raise failure or FileNotFoundError(absent)
        return None

    def _download(self) -> ModuleType:
        from kernels import get_kernel

        return self._note(get_kernel(self.repo, version=self.version), "from the Hub")

    def _note(self, kernel: ModuleType, source: str, revision: str | None = None) -> ModuleType:
        """Keep in `origin` what `kernel` is; the revision of a download comes from `kernels`' own books."""
        from kernels import get_loaded_kernels

        loaded = next(entry for entry in get_loaded_kernels() if entry.module is kernel)
        version = loaded.metadata.version
        asked = "" if version == self.version else f" (requested: {self.version})"
        if revision is None and loaded.repo_info is not None:
            revision = loaded.repo_info.revision
        at = "" if revision is None else f", revision {revision}"
        self.loaded = {self.repo: f"version {version}{at or f', {source}'}"}
        self.origin = f"{self.repo} version {version}{asked}{at}, {source}"
        return kernel

    def _cached(self) -> list[Path]:
        """Snapshots of the repository in the local cache that hold this version, the newest first.

        `kernels` 0.17 downloads a version by its commit, which leaves no v1 reference in the cache to look up: the
        version is in each build's metadata.
        """
        from huggingface_hub import constants

        cache = Path(os.environ.get("KERNELS_CACHE") or constants.HF_HUB_CACHE)
        snapshots = cache / f"kernels--{self.repo.replace('/', '--')}" / "snapshots"
        found = [path for path in snapshots.glob("*") if any(map(self._is_build, path.glob("build/*/metadata.json")))]
        return sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)

    def _is_build(self, metadata: Path) -> bool:
        try:
            version = json.loads(metadata.read_text(encoding="utf-8")).get("version")
        except (OSError, ValueError, AttributeError):
            return False  # an interrupted download: not usable, so look further
        return version == self.version and any(metadata.parent.rglob("__init__.py"))

    def _ask_hub(self, deadline: float) -> str | None:
        """Look the version up on the Hub until `deadline`; a Hub that answers but slowly is taken for good."""
        from huggingface_hub import constants

        answers: list[str | None] = []
        thread = threading.Thread(target=self._look_up, args=(answers,), daemon=True)
        thread.start()  # a daemon in a thread: nothing else bounds a name server that does not answer
        thread.join(max(deadline - time.monotonic(), LEAST_PROBE_S))
        if not answers:
            return f"{constants.ENDPOINT} did not answer within {ANSWER_S:g} s"
        return next((answer for answer in answers if answer), None)

    def _look_up(self, answers: list[str | None]) -> None:
        """Append None or a reason: first whether the Hub has this version, then whether it can be used here."""
        from huggingface_hub import HfApi

        from kernels import get_kernel_variants, has_kernel

        try:
            refs = HfApi().list_repo_refs(self.repo, repo_type="kernel")
            versions = sorted(int(ref.name[1:]) for ref in refs.branches if re.fullmatch(r"v\d+", ref.name))
            if self.version not in versions:
                published = ", ".join(map(str, versions)) or "none"
                answers.append(f"{self.repo} has no version {self.version}; published: {published}")
                return
            answers.append(None)
            if not has_kernel(self.repo, version=self.version):
                decisions = get_kernel_variants(self.repo, version=self.version)
                rejected = [
                    f"{entry.variant.variant_str}: {entry.reason}" for entry in decisions if hasattr(entry, "reason")
                ]
                answers.append(
                    f"no build of {self.repo} version {self.version} fits this system: {'; '.join(rejected)}"
                )
        except Exception as error:
            answers.append(_why(error))


def _check_repo(repo: object) -> str:
    parts = repo.split("/") if isinstance(repo, str) else []
    if len(parts) != 2 or not all(part and not set(part) & set(" =:\\") for part in parts):
        raise UsageError(f"{REPO_VARIABLE} must be owner/name like {REPO}, got {repo!r}")
    return "/".join(parts)


def _check_version(version: object) -> int:
    if isinstance(version, str):
        return limits.whole_in(VERSION_VARIABLE, version.strip(), limits.VERSION)
    return limits.whole(VERSION_VARIABLE, version, limits.VERSION)


def _not_installed() -> str | None:
    return None if util.find_spec("kernels") else "kernels is not installed (pip install 'mlpfusion[hub]')"


def _not_current(device: torch.device) -> str | None:
    """Hub copies of Liger launch on the current GPU whatever their tensors' (SwiGLU in all, GEGLU in older ones)."""
    if device.type != "cuda" or device.index == torch.cuda.current_device():
        return None
    return (
        f"the Hub's Liger launches on the current GPU, cuda:{torch.cuda.current_device()}; this module is on {device}"
    )


def _override(repo: str) -> Path | None:
    """The directory that LOCAL_KERNELS names for `repo`, or None.

    Raises:
        ValueError: LOCAL_KERNELS is malformed, which `kernels` refuses at every load.
    """
    value = os.environ.get("LOCAL_KERNELS")
    found = None
    for entry in [] if value is None else value.split(":"):
        name, equals, path = entry.partition("=")
        if not equals:
            raise ValueError(f"LOCAL_KERNELS must be owner/name=DIRECTORY[:owner/name=DIRECTORY...], got {entry!r}")
        found = Path(path) if name == repo else found
    return found


def _is_offline() -> bool:
    from huggingface_hub import constants

    return bool(constants.HF_HUB_OFFLINE)


def _why(error: BaseException) -> str:
    """The true cause of a failed load in one line: `kernels` hides a network failure behind its trust check."""
    from huggingface_hub import constants
    from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError

    chain = _chain(error)
    if any(isinstance(link, RepositoryNotFoundError) for link in chain):
        return f"the repository does not exist on {constants.ENDPOINT}, or is private"
    if "not from a trusted publisher" in str(error):
        # The advice in kernels' own text is an argument that a user of this backend cannot give.
        return "its publisher is not trusted on the Hub; download it, read it, and name its directory in LOCAL_KERNELS"
    answered = next((link for link in chain if isinstance(link, HfHubHTTPError)), None)
    if answered is None and any(type(link).__module__.partition(".")[0] in TRANSPORT for link in chain):
        return f"cannot reach {constants.ENDPOINT}: {_one_line(chain[-1])}"
    return _one_line(answered or error)


def _chain(error: BaseException) -> list[BaseException]:
    links = [error]
    while (inner := links[-1].__cause__ or links[-1].__context__) is not None and inner not in links:
        links.append(inner)
    return links


def _one_line(error: BaseException) -> str:
    """An error's whole text on one line: the list of rejected builds comes after the first one."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= LONGEST_REASON else text[: LONGEST_REASON - 1] + "…"
