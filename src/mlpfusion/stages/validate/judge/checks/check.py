"""Defines a check, and carries it out whatever the target does.

A new check is a function (exam, dtype) -> Found and a line in the table of its module; what it needs of the worker is a
probe, a function in `probes`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from mlpfusion.errors import first_line
from mlpfusion.records.validation import Checked
from mlpfusion.stages.validate.judge import excuses
from mlpfusion.stages.validate.judge.exam import FaultError, Found, failed, is_refusal, reported, undecided
from mlpfusion.stages.validate.judge.worker_handle import DiedError, RaisedError, UndecidableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlpfusion.records.validation import Kind
    from mlpfusion.spec import Dtype
    from mlpfusion.stages.validate.judge.exam import Exam

BOTH: Final[frozenset[Kind]] = frozenset(("act_mul", "mlp"))
ACT_MUL: Final[frozenset[Kind]] = frozenset(("act_mul",))
MLP: Final[frozenset[Kind]] = frozenset(("mlp",))
# A path for large operands may save memory, or work, where none for small ones does.
LARGE_OPERANDS: Final[dict[Kind, tuple[int, ...]]] = {"act_mul": (64, 1032), "mlp": (1031,)}

# "each" dtype that is taken, since each may have code of its own; the "finest" alone, for what no other can show; each
# "narrow" one, which has 16 bits, or the finest without one; "16-bit" ones alone, for what cannot be asked in float32.
Judged = Literal["each", "finest", "narrow", "16-bit"]


class Check(NamedTuple):
    """One question to a target: its name, what it looks at, which kinds it is for, in which dtypes it is asked."""

    name: str
    looks_at: str
    kinds: frozenset[Kind]
    run: Callable[[Exam, Dtype], Found]
    dtypes: Judged = "finest"
    judges_values: bool = True  # in the sizes that it asks for, which are those that a verdict is for

    def asked_in(self, exam: Exam) -> tuple[Dtype, ...]:
        """The dtypes in which this runs, of those that the target takes; without a narrow one, the finest."""
        narrow = tuple(dtype for dtype in exam.dtypes if dtype != "float32")
        if self.dtypes == "16-bit":
            return narrow
        if not exam.dtypes or self.dtypes == "each":
            return exam.dtypes
        return narrow or (exam.finest,) if self.dtypes == "narrow" else (exam.finest,)


def carry_out(check: Check, exam: Exam, dtype: Dtype) -> Checked:
    """The result of one check in one dtype. A worker that dies is the caller's to handle."""
    exam.excuses.clear()
    try:
        found = check.run(exam, dtype)
    except UndecidableError as error:
        found = undecided(str(error))
    except FaultError as error:
        found = failed(str(error))
    except RaisedError as error:
        found = raised(error, is_asked=exam.asked.dtypes is not None)
    except DiedError:
        raise
    except Exception as error:  # third-party results may be anything; the other checks and targets go on
        found = failed(f"its result cannot be judged: {type(error).__name__}: {first_line(error)}")
    return told(check, exam, dtype, excuses.said(found, exam.excuses))


def raised(error: RaisedError, *, is_asked: bool) -> Found:
    """What an exception of the target means where nothing forbids one: a refusal, unless this dtype was requested."""
    if error.why == "wrong":
        return failed(error.text)
    if error.why == "memory":
        return failed(f"runs out of memory: {error.text}")
    if error.why == "interpreter":
        return undecided(f"Triton's interpreter cannot run it: {error.text}")
    if not is_refusal(error):
        return failed(f"raises {error}, which is no way to refuse a call")
    if is_asked:
        return failed(f"raises {error}")
    return reported(f"refused: {error}")


def told(check: Check, exam: Exam, dtype: Dtype, found: Found) -> Checked:
    """A finding as a record."""
    return Checked(
        name=check.name,
        looked_at=check.looks_at,
        status=found.status,
        sentence=found.sentence,
        repro=exam.repro(check.name, dtype, found.shape),
        dtype=dtype,
        hazard=found.hazard,
        shape=found.shape,
        figures=found.figures or {},
    )
