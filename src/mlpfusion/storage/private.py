"""Takes out of a text what is its maker's own: folders, home, names of user and host, passwords and tokens.

Every text of third parties that goes into a result file passes `text`, by `redacted` of the whole record. What is taken
out leaves a word that says what was there: `<home>`, `<user>`, `<host>`, `<secret>`, `<token>`, `<login>`.
"""

from __future__ import annotations

import functools
import os
import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

_SECRET_NAMES: Final = ("TOKEN", "SECRET", "PASSWORD", "KEY", "CREDENTIAL")
_SHORTEST_SECRET: Final = 8  # a shorter value may be a word of any text
_SHORTEST_NAME: Final = 3  # a shorter name is a part of too much else
# Names that belong to nobody: accounts that systems and images come with, and words that results themselves consist of,
# which would go from every sentence if a user or a host had such a name.
_COMMON: Final = """
    root user users admin administrator guest test nobody daemon home host localhost localdomain worker workers runner
    ubuntu debian centos fedora alpine rocky ec2-user azureuser opc jovyan docker container node gpu cpu cuda rocm
    nvidia amd linux python torch triton mlpfusion liger kernels quack eager compile compile-max-autotune
    compile-cudagraphs hub packed fused fused-graph auto token secret login none true false null
    """
COMMON: Final = frozenset(_COMMON.split())
# What known services give out, by the letters that it begins with; the least lengths leave words of code alone.
_TOKENS: Final = re.compile(
    r"""(?<![A-Za-z0-9])(?:
      hf_(?=[A-Za-z]*\d|[A-Za-z]{16})[A-Za-z0-9]{8,}
    | gh[pousr]_[A-Za-z0-9]{8,} | github_pat_\w{8,} | glpat-[\w-]{8,}
    | sk-(?=[A-Za-z_-]*\d|[\w-]{16})[\w-]{8,}
    | A[KS]IA[0-9A-Z]{8,}
    | xox[a-z]-[\w-]{8,}
    | eyJ[\w-]{8,}\.[\w-]+(?:\.[\w-]*)?
    )""",
    re.VERBOSE,
)
_BEARER: Final = re.compile(r"\b(bearer)\s+[^\s'\",;<>]{4,}", re.IGNORECASE)
_LOGIN: Final = re.compile(r"(\b[A-Za-z][\w+.-]*://)(?!<login>@)[^/\s'\"]+@")
_QUERY: Final = re.compile(
    r"([?&;#][\w.-]*(?:token|key|secret|passw|pwd|sig|auth|credential)[\w.-]*=)[^&;\s#'\",)]+", re.IGNORECASE
)
_PART: Final = r"[^\s/:'\",;()]+"  # of a path that is not quoted
_START: Final = r"(?<![\w.>/])(?!(?<=:)//)"  # neither within a word, as 3 GB/s and a/b, nor after https:
_FILE_URL: Final = re.compile(rf"(\bfile://)[^\s'\",;()]*/({_PART})/?", re.IGNORECASE)
_IN_QUOTES: Final = r"[^\s'\"`/][^'\"`\n/]*"  # it may hold spaces
_QUOTED: Final = re.compile(rf"(?P<quote>['\"`])~?/+(?:{_IN_QUOTES}/+)+(?P<last>{_IN_QUOTES})/?(?P=quote)")
_PATH: Final = re.compile(rf"{_START}(?:~[\w.-]*)?(?:/+{_PART})+/+({_PART})/?")
_OF_HOME: Final = re.compile(rf"{_START}~[\w.-]*/+({_PART})/?")
_HOMES: Final = re.compile(rf"{_START}/(?:home|Users)/{_PART}/?(?![^\s:'\",;()])")
_WINDOWS: Final = re.compile(r"(?<!\w)[A-Za-z]:(?:\\+[^\s\\:'\",;()]+)*\\+([^\s\\:'\",;()]+)")
_IN_FOLDERS: Final = re.compile(r"(\w+:)?[^\n]*/([^/\n]+)/?")


class Own(NamedTuple):
    """What is the maker's own here: its home, the secrets of the environment, names of the user and of the host."""

    home: str
    secrets: tuple[str, ...]
    users: tuple[str, ...]
    hosts: tuple[str, ...]


def text(said: str, *, names: bool = True) -> str:
    """A text without what is its maker's own. Twice gives the same as once.

    Absolute paths and file:// addresses are cut to their last part, a web address stays but for a login and tokens in
    it. A name is taken out as a whole word of three letters or more that is not one of COMMON, in any case of letters;
    without `names` it stays, as in what names a kernel: `max` is a function as well as a user.
    """
    own = _own()
    return _cleaned(said, own if names else own._replace(users=(), hosts=()))


def last_parts(names: Iterable[str]) -> dict[str, str]:
    """Each name of a file with its last part in the place of the path; two that would get one name are numbered.

    `auto:choice.json` keeps what stands before the path, and what names no folder, as `./mine.py:Mine`, stays as it is.
    A folder that told two apart would say as much of its maker as any other folder.
    """
    given = list(dict.fromkeys(names))
    found: dict[str, str] = {}
    for name in sorted(given, key=lambda each: _last_part(each) != each):  # what stays first
        short = base = _last_part(name)
        number = 1
        while short in found.values():
            number += 1
            short = f"{base} ({number})"
        found[name] = short
    return {name: found[name] for name in given}


def last_part(value: str) -> str:
    """The last part of a path, or of each in a list with commas; what is no path stays as it is."""
    return ",".join(each.rstrip("/").rpartition("/")[2] or each for each in value.split(","))


def _last_part(name: str) -> str:
    found = _IN_FOLDERS.fullmatch(name)
    return name if found is None or "/" not in name.removeprefix("./") else f"{found[1] or ''}{found[2]}"


# ---- what is to be taken out -----------------------------------------------------------------------------------------


def _own() -> Own:
    return _read(tuple(os.environ.items()))


@functools.lru_cache(maxsize=4)
def _read(environment: tuple[tuple[str, str], ...]) -> Own:
    """What an environment says, the longest first: one value may be a part of another."""
    values = dict(environment)
    home = values.get("HOME", "").rstrip("/")
    secret = {
        line.strip()
        for name, value in values.items()
        if any(word in name.upper() for word in _SECRET_NAMES)
        for line in value.splitlines()
        if len(line.strip()) >= _SHORTEST_SECRET
    }
    users = [values.get(name, "") for name in ("USER", "LOGNAME", "USERNAME")]
    machines = [socket.gethostname(), values.get("HOSTNAME", ""), values.get("HOST", "")]
    hosts = [part for name in machines for part in (name, name.partition(".")[0])]
    return Own(
        home if home.count("/") and home != "/root" else "",
        tuple(sorted(secret, key=len, reverse=True)),
        _telling([*users, Path(home).name]),
        _telling(hosts),
    )


def _telling(names: Iterable[str]) -> tuple[str, ...]:
    """The names that tell somebody apart, the longest first."""
    kept = {
        name for name in names if len(name) >= _SHORTEST_NAME and name.lower() not in COMMON and not name.isdecimal()
    }
    return tuple(sorted(kept, key=lambda name: (-len(name), name)))


# ---- taking it out ---------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=4096)
def _cleaned(said: str, own: Own) -> str:
    for secret in own.secrets:
        said = said.replace(secret, "<secret>")
    said = _TOKENS.sub("<token>", said)
    said = _BEARER.sub(r"\1 <token>", said)
    said = _LOGIN.sub(r"\1<login>@", said)
    said = _QUERY.sub(r"\1<token>", said)
    said = _cut(said, own.home)
    for word, names in (("<user>", own.users), ("<host>", own.hosts)):
        for name in names:
            if name.lower() in said.lower():
                said = _word(name).sub(word, said)
    return said


def _cut(said: str, home: str) -> str:
    if home:  # it may hold spaces
        said = re.sub(rf"(?<![\w.>]){re.escape(home)}(?![\w-])", "/<home>", said)
    said = _HOMES.sub("/<home>", said)
    said = _FILE_URL.sub(r"\1\2", said)
    said = _QUOTED.sub(r"\g<quote>\g<last>\g<quote>", said)
    said = _PATH.sub(r"\1", said)
    said = _OF_HOME.sub(r"\1", said)
    said = _WINDOWS.sub(r"\1", said)
    return re.sub("/<home>/?", "<home>", said)


@functools.lru_cache(maxsize=64)
def _word(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w-]){re.escape(name)}(?![\w-])", re.IGNORECASE)
