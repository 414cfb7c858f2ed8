"""Where measured products come from: the tables of `aiconfigurator-core`, a CSV file, or a profile of that card.

numpy is imported where there are products: without any, `predict` works where it is not installed.
"""

from __future__ import annotations

import csv
import hashlib
import io
import os
import warnings
import zipfile
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mlpfusion.errors import MlpfusionError, UsageError
from mlpfusion.records.prediction import MeasuredProduct
from mlpfusion.stages.predict import shapes
from mlpfusion.storage import files, inputs, results

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy as np
    from numpy.typing import NDArray

    from mlpfusion.records.profile import Profile
    from mlpfusion.stages.predict.table import Table

# Measured by NVIDIA; Apache-2.0. Nothing of it is copied into this project: it is read where it is installed.
PACKAGE: Final = "aiconfigurator-core"
_FILE: Final = "gemm_perf.parquet"
_COLUMNS: Final = ("device", "gemm_dtype", "m", "n", "k", "latency")
_DTYPE: Final = "bfloat16"  # float16 has no rows of its own there, and the same peak rate
_CACHED: Final = "products-2"  # the layout of a cached file
_HEADS: Final = ("m", "n", "k", "dtype", "us")
_DTYPES: Final = ("bfloat16", "float16")
_MOST_BYTES: Final = 64 * 2**20
_MOST: Final = 2**31 - 1


# ---- the package -----------------------------------------------------------------------------------------------------


def installed(card: str) -> Table | None:
    """The measured products of a card by its driver's name; None if the package is not here or lacks that card.

    For each version of the package it is parsed once and kept in the user's cache.

    Raises:
        UsageError: the package has another layout.
    """
    try:
        found = metadata.distribution(PACKAGE)
    except metadata.PackageNotFoundError:
        return None
    listed = sorted((each for each in found.files or () if each.name == _FILE), key=str)
    named = f"{PACKAGE} {found.version}"
    if not listed:
        raise UsageError(f"{named} holds no {_FILE}: its layout is another one; `pip install {PACKAGE}==0.12.0` has it")
    key = _digest(found.version, ((str(each), each.size or 0) for each in listed))
    path = _cache_folder() / f"{_CACHED}-{key}-{''.join(c if c.isalnum() else '-' for c in card).lower()}.npz"
    kept = _load(path, card, named)
    if kept is not None:
        return kept
    parts = [rows for each in listed if (rows := _rows_of(Path(str(found.locate_file(each))), card, named)) is not None]
    if not parts:
        return None
    from mlpfusion.stages.predict.table import merged

    table = merged(card, named, parts)
    _keep(path, table)
    return table


def missing(card: str) -> str | None:
    """Why no table of a card is here, in one line; None if one is."""
    try:
        version = metadata.version(PACKAGE)
    except metadata.PackageNotFoundError:
        return (
            f"{PACKAGE} is not installed (`pip install 'mlpfusion[tables]'`, Python 3.11 to 3.13), so matrix products "
            f"are scaled from the card that was measured"
        )
    if installed(card) is None:
        return (
            f"{PACKAGE} {version} has no table of {card}, so matrix products are scaled from the card that was measured"
        )
    return None


def _digest(version: str, listed: Iterable[tuple[str, int]]) -> str:
    return hashlib.sha256(repr((version, tuple(listed))).encode()).hexdigest()[:16]


def _rows_of(path: Path, card: str, named: str) -> tuple[NDArray[np.int64], NDArray[np.float64]] | None:
    """The 16-bit products of a card in one file, as shapes [rows, 3] and µs [rows]; None if it has none."""
    import numpy as np

    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise MlpfusionError(f"{named} is installed without {error.name}; `pip install 'mlpfusion[tables]'`") from None
    try:
        read = parquet.read_table(
            path, columns=list(_COLUMNS), filters=[("device", "==", card), ("gemm_dtype", "==", _DTYPE)]
        )
        columns = [read[name].to_numpy() for name in _COLUMNS[2:]]
        rows, us = np.stack(columns[:3], axis=1).astype(np.int64), columns[3].astype(np.float64) * 1e3
    except (OSError, KeyError, ValueError, TypeError, pyarrow.ArrowException) as error:
        said = " ".join(str(error).split())[:120]
        raise UsageError(
            f"{named}: {path.name} has another layout or is damaged ({said}); `pip install {PACKAGE}==0.12.0`"
        ) from None
    whole = (rows > 0).all(axis=1) & np.isfinite(us) & (us > 0)
    return (rows[whole], us[whole]) if whole.any() else None


def _cache_folder() -> Path:
    chosen = os.environ.get("MLPFUSION_CACHE_DIR")
    if chosen:
        return Path(chosen)
    caches = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(caches) if os.path.isabs(caches) else Path.home() / ".cache") / "mlpfusion"


def _load(path: Path, card: str, source: str) -> Table | None:
    import numpy as np

    from mlpfusion.stages.predict.table import Table

    try:
        with np.load(path, allow_pickle=False) as kept:
            table = Table(card, source, kept["shapes"], kept["us"], float(kept["spread"]))
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None  # not kept yet, or damaged: it is made again
    return table if table.shapes.shape == (len(table.us), 3) and len(table) else None


def _keep(path: Path, table: Table) -> None:
    import numpy as np

    made = io.BytesIO()
    np.savez(made, shapes=table.shapes, us=table.us, spread=np.array(table.spread))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write_whole("cached table", path, made.getvalue())
    except (OSError, MlpfusionError) as error:
        warnings.warn(f"the table of {table.card} is not kept for the next time: {error}", stacklevel=2)


# ---- a user's own ----------------------------------------------------------------------------------------------------


def own(name: str, card: str) -> Table:
    """A user's measured products of a card: a CSV with the columns m, n, k, dtype, us, or a profile of that card.

    Raises:
        UsageError: it is neither; a line of the CSV is wrong (it is named), or no row is left; the profile is of
            another card, or no matrix product in it was timed.
    """
    from mlpfusion.stages.predict.table import own_rows

    data = inputs.read("table", name, _MOST_BYTES)
    if data.lstrip()[:1] == b"{":
        return _of_profile(results.load(name), name, card)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"{name!r} is neither a CSV file nor a result of `mlpfusion profile`") from None
    products = list(_parsed(text, name))
    if not products:
        raise UsageError(f"{name!r} has no products: a line of {','.join(_HEADS)}, then one for each")
    return own_rows(card, Path(name).name, products)


def _parsed(text: str, name: str) -> Iterator[MeasuredProduct]:
    lines = csv.reader(io.StringIO(text), strict=True)
    try:
        heads = tuple(each.strip().lower() for each in next(lines, []))
        if set(heads) < set(_HEADS) or not heads:
            raise UsageError(f"{name!r}, line 1: the columns are {','.join(heads)!r}; needed: {','.join(_HEADS)}")
        for cells in lines:
            if cells and any(each.strip() for each in cells):
                yield _product(
                    dict(zip(heads, cells, strict=False)), f"{name!r}, line {lines.line_num}", Path(name).name
                )
    except csv.Error as error:
        raise UsageError(f"{name!r}, line {lines.line_num}: {error}") from None


def _product(row: dict[str, str], where: str, source: str) -> MeasuredProduct:
    if row.get("dtype", "").strip() not in _DTYPES:
        raise UsageError(f"{where}: dtype {row.get('dtype', '')!r}; valid: {', '.join(_DTYPES)}")
    sizes = []
    for head in ("m", "n", "k"):
        said = row.get(head, "").strip()
        if not said.isascii() or not said.isdigit() or not 0 < int(said[:12]) <= _MOST or len(said) > 12:
            raise UsageError(f"{where}: {head} {said[:40]!r}; valid: whole numbers from 1 to {_MOST}")
        sizes.append(int(said))
    said = row.get("us", "").strip()
    try:
        us = float(said)
    except ValueError:
        us = 0.0
    if not 1e-3 <= us <= 1e12:
        raise UsageError(f"{where}: us {said[:40]!r}; valid: microseconds from 0.001 to 10¹²")
    return MeasuredProduct(m=sizes[0], n=sizes[1], k=sizes[2], us=us, source=source)


def _of_profile(profile: Profile, name: str, card: str) -> Table:
    from mlpfusion.stages.predict.table import own_rows

    if profile.device.name != card:
        raise UsageError(f"{name!r} was measured on {profile.device.name}, not on {card}")
    products = [
        MeasuredProduct(m=m, n=n, k=k, us=step.time_us, source=Path(name).name)
        for row in profile.rows
        for step in shapes.steps(row)
        if step.time_us and shapes.is_library_product(step, row)
        for m, n, k in shapes.shapes(step, profile.workload)[:1]
        if len(shapes.shapes(step, profile.workload)) == 1
    ]
    if not products:
        raise UsageError(f"{name!r} has no timed matrix products of a library")
    return own_rows(card, Path(name).name, products)
