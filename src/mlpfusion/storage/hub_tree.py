"""Builds the directory that Hugging Face's `kernels` library loads from the installed kernel package."""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

PACKAGE = "mlpfusion_kernels"
NAME = "mlpfusion-kernels"
VERSION = 1
LICENSE = "Apache-2.0"

# Directory name -> backend named in its metadata. `torch-universal` is the one directory that loads on every backend,
# last choice after the backend's own; its metadata still has to name a backend, and any will do (kernels 0.17).
VARIANTS: dict[str, str] = {
    "torch-universal": "cpu",
    "torch-cpu": "cpu",
    "torch-cuda": "cuda",
    "torch-rocm": "rocm",
    "torch-xpu": "xpu",
}


def build_hub_tree(
    destination: Path, *, package: Path | None = None, variants: Sequence[str] = ("torch-universal",)
) -> Path:
    """Write `destination/build/<variant>/` for each variant: the package's modules and a metadata.json.

    For a kernel without compiled code the official builder also does no more than this. A variant that is there
    already with the same contents is left alone, one with other contents is replaced.

    Args:
        destination: directory to build in, made if missing; `kernels.get_local_kernel(destination)` then loads it.
        package: the package directory to copy; the installed `mlpfusion_kernels` if None.
        variants: names from VARIANTS.

    Returns:
        `destination`.

    Raises:
        ValueError: unknown variant.
        FileNotFoundError: no package there.
    """
    for variant in variants:
        if variant not in VARIANTS:
            raise ValueError(f"unknown variant {variant!r}; known: {', '.join(VARIANTS)}")
    source = installed_package() if package is None else package
    modules = sorted(path for path in source.rglob("*.py") if "__pycache__" not in path.parts)
    if source / "__init__.py" not in modules:
        raise FileNotFoundError(f"{source} is no Python package: it has no __init__.py")
    digest = content_hash(source, modules)
    for variant in variants:
        _write_variant(destination / "build" / variant, source, modules, metadata(variant, digest))
    return destination


def installed_package() -> Path:
    """Where `mlpfusion_kernels` is on the import path, without importing it (that would import torch)."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError(f"the package {PACKAGE} is not installed; it comes with mlpfusion")
    return Path(spec.submodule_search_locations[0])


def content_hash(source: Path, modules: Sequence[Path]) -> str:
    """A hash of the modules' paths and bytes."""
    sha = hashlib.sha256()
    for path in modules:
        contents = path.read_bytes()
        sha.update(f"{path.relative_to(source).as_posix()}\0{len(contents)}\0".encode())
        sha.update(contents)
    return sha.hexdigest()[:16]


def metadata(variant: str, digest: str) -> dict[str, object]:
    """The metadata.json of one variant.

    The id becomes the module's name in sys.modules, from which the operators take their namespace: with the hash of
    the contents in it, two different trees never share either.
    """
    return {
        "id": f"_{PACKAGE}_{variant.removeprefix('torch-')}_{digest}",
        "name": NAME,
        "version": VERSION,
        "license": LICENSE,
        "python-depends": [],
        "backend": {"type": VARIANTS[variant]},
    }


def _write_variant(target: Path, source: Path, modules: Sequence[Path], facts: dict[str, object]) -> None:
    """Fill a temporary directory beside the target, then move it there: no reader sees half a tree."""
    text = json.dumps(facts, indent=2) + "\n"
    described = target / "metadata.json"
    if described.is_file() and described.read_text() == text:
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".new-") as scratch:
        fresh = Path(scratch) / target.name
        for path in modules:
            copy = fresh / path.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
        (fresh / "metadata.json").write_text(text)
        if target.exists():
            target.rename(Path(scratch) / "old")
        fresh.rename(target)


def main(arguments: Sequence[str] | None = None) -> int:
    """Build from the command line: `python -m mlpfusion.storage.hub_tree DIRECTORY [--variant NAME]...`."""
    parser = argparse.ArgumentParser(prog="python -m mlpfusion.storage.hub_tree", description=__doc__)
    parser.add_argument("directory", type=Path, help="where to build; get_local_kernel(DIRECTORY) loads the result")
    parser.add_argument("--package", type=Path, help="package directory to copy (default: the installed one)")
    parser.add_argument("--variant", action="append", choices=list(VARIANTS), help="default: torch-universal")
    options = parser.parse_args(arguments)
    variants = options.variant or ["torch-universal"]
    try:
        build_hub_tree(options.directory, package=options.package, variants=variants)
    except OSError as error:
        parser.error(str(error))
    for variant in variants:
        sys.stdout.write(f"{options.directory / 'build' / variant}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
