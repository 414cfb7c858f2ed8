"""Turns a mangled C++ name (Itanium ABI, as in `_ZN2ck…`) into readable text, as far as the name is whole."""

from __future__ import annotations

import re
from typing import Final

# Kernel names nest far less and read far shorter; beyond this a name is damaged or hostile.
_DEPTH: Final = 60
_LENGTH: Final = 40_000
_PRODUCED: Final = 2_000_000

_BUILTIN: Final = {
    "v": "void", "w": "wchar_t", "b": "bool", "c": "char", "a": "signed char", "h": "unsigned char", "s": "short",
    "t": "unsigned short", "i": "int", "j": "unsigned int", "l": "long", "m": "unsigned long", "x": "long long",
    "y": "unsigned long long", "n": "__int128", "o": "unsigned __int128", "f": "float", "d": "double",
    "e": "long double", "g": "__float128", "z": "...",
}  # fmt: skip
_LONG_BUILTIN: Final = {
    "DF16_": "_Float16", "DF16b": "std::bfloat16_t", "DF32_": "_Float32", "DF64_": "_Float64", "Dh": "half",
    "Dn": "decltype(nullptr)", "Da": "auto", "Di": "char32_t", "Ds": "char16_t", "Du": "char8_t",
}  # fmt: skip
_STANDARD: Final = {
    "St": "std", "Sa": "std::allocator", "Sb": "std::basic_string", "Ss": "std::string", "Si": "std::istream",
    "So": "std::ostream", "Sd": "std::iostream",
}  # fmt: skip
_QUALIFIED: Final = {"P": "*", "R": "&", "O": "&&", "K": " const", "V": " volatile", "r": " __restrict"}
_LITERAL_SUFFIX: Final = {"j": "u", "l": "l", "m": "ul", "x": "ll", "y": "ull"}
_UNARY: Final = {"ad": "&", "de": "*", "ng": "-", "nt": "!", "co": "~", "ps": "+"}
_BINARY: Final = {
    "aa": "&&", "oo": "||", "gt": ">", "lt": "<", "ge": ">=", "le": "<=", "eq": "==", "ne": "!=", "pl": "+", "mi": "-",
    "ml": "*", "dv": "/", "rm": "%", "an": "&", "or": "|", "eo": "^", "ls": "<<", "rs": ">>",
}  # fmt: skip
_OPERATORS: Final = {"cl": "operator()", "pl": "operator+", "mi": "operator-", "ml": "operator*", "ix": "operator[]"}
_NUMBER: Final = re.compile(r"\d+")
_SEQUENCE: Final = re.compile(r"S([0-9A-Z]*)_")
_PARAMETER: Final = re.compile(r"T(\d*)_")


class _UnreadableError(Exception):
    pass


def demangle(name: str) -> str | None:
    """`name` in C++ spelling; None if it is not mangled or not readable.

    A name that was cut off, or that uses a form this reader does not know, is given up to there with an ellipsis.
    """
    if not name.startswith("_Z") or len(name) > _LENGTH:
        return None
    reader = _Reader(name)
    try:
        # SYCL names a kernel after the type of its functor: `_ZTS` is the name of a type.
        return reader.type() if reader.take("TS") or reader.take("TI") else reader.encoding()
    except _UnreadableError:
        return f"{reader.best}…" if reader.best else None


class _Reader:
    """Reads one name from left to right; `best` is the longest name read so far, for names that are cut off."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 2
        self.depth = 0
        self.seen: list[str] = []
        self.arguments: list[str] = []
        self.best = ""
        self.produced = 0

    def encoding(self) -> str:
        self.deeper()
        text = self._encoding()
        self.depth -= 1
        return text

    def deeper(self) -> None:
        self.depth += 1
        if self.depth > _DEPTH:
            raise _UnreadableError

    def _encoding(self) -> str:
        name = self.name(outermost=True)
        if self.at >= len(self.text) or self.text[self.at] in ".@E ":
            return name
        self.best = name
        returns = ""
        if name.endswith(">"):
            returns = self.type() + " "
        parameters = []
        while self.at < len(self.text) and self.text[self.at] not in ".@E ":
            parameters.append(self.type())
        shown = "" if parameters == ["void"] else ", ".join(parameters)
        return f"{returns}{name}({shown})"

    def take(self, text: str) -> bool:
        if self.text.startswith(text, self.at):
            self.at += len(text)
            return True
        return False

    def matched(self, pattern: re.Pattern[str]) -> re.Match[str]:
        match = pattern.match(self.text, self.at)
        if match is None:
            raise _UnreadableError
        self.at = match.end()
        return match

    def remember(self, text: str) -> str:
        if len(text) > _LENGTH or len(self.seen) > _LENGTH:
            raise _UnreadableError
        self.seen.append(text)
        return text

    def name(self, *, outermost: bool = False) -> str:
        if self.take("N"):
            return self.nested(outermost=outermost)
        if self.take("Z"):
            return self.local()
        standard = self.take("St")
        text = ("std::" if standard else "") + self.unqualified()
        if self.text.startswith("I", self.at):
            self.remember(text)
            text += self.template(text if outermost else "", keep=outermost)
        return text

    def local(self) -> str:
        """`Z <function> E <name>`: something inside a function, such as a lambda."""
        outer = self.encoding()
        if not self.take("E"):
            raise _UnreadableError
        if self.take("s"):
            return outer
        return f"{outer}::{self.name()}"

    def nested(self, *, outermost: bool) -> str:
        while self.text[self.at : self.at + 1] in ("K", "V", "r"):
            self.at += 1
        text = ""
        while not self.take("E"):
            if self.text.startswith("I", self.at):
                text += self.template(text if outermost else "", keep=outermost)
                if not self.text.startswith("E", self.at):
                    self.remember(text)
            elif self.text.startswith("S", self.at) and not text:
                text = self.substitution()
            elif self.text.startswith("T", self.at) and not text:
                text = self.remember(self.parameter())
            else:
                part = self.unqualified()
                text = f"{text}::{part}" if text else part
                if not self.text.startswith("E", self.at):
                    self.remember(text)
            if outermost:
                self.best = text
        return text

    def unqualified(self) -> str:
        self.take("L")
        if self.take("Ul"):
            return self.closure()
        if self.take("Ut"):
            return f"{{unnamed#{self.ordinal()}}}"
        operator = _OPERATORS.get(self.text[self.at : self.at + 2])
        if operator:
            self.at += 2
            return operator
        if self.text[self.at : self.at + 2] in ("C1", "C2", "C3", "D0", "D1", "D2"):
            self.at += 2
            return "{constructor}"
        length = int(self.matched(_NUMBER)[0][:6])
        if not length:
            raise _UnreadableError
        text = self.text[self.at : self.at + length]
        self.at += length
        if len(text) < length:
            raise _UnreadableError
        while self.take("B"):
            tag = int(self.matched(_NUMBER)[0][:6])
            self.at += tag
        return "(anonymous namespace)" if text.startswith("_GLOBAL__N") else text

    def closure(self) -> str:
        parameters = []
        while not self.take("E"):
            parameters.append(self.type())
        shown = "" if parameters == ["void"] else ", ".join(parameters)
        return f"{{lambda({shown})#{self.ordinal()}}}"

    def ordinal(self) -> int:
        match = self.matched(re.compile(r"(\d{0,6})_"))
        return int(match[1]) + 2 if match[1] else 1

    def template(self, before: str, *, keep: bool) -> str:
        """`I <argument>* E`. With `keep` the arguments are those that T_ means in the signature."""
        self.at += 1
        arguments: list[str] = []
        while not self.take("E"):
            arguments.append(self.argument())
            if keep:
                self.best = f"{before}<{', '.join(arguments)}, "
        if keep:
            self.arguments = arguments
        return f"<{', '.join(arguments)}>"

    def argument(self) -> str:
        self.deeper()
        text = self._argument()
        self.depth -= 1
        return text

    def _argument(self) -> str:
        if self.take("J"):
            pack = []
            while not self.take("E"):
                pack.append(self.argument())
            return ", ".join(pack)
        if self.take("L"):
            return self.literal()
        if self.take("X"):
            text = self.expression()
            if not self.take("E"):
                raise _UnreadableError
            return text
        return self.type()

    def expression(self) -> str:
        self.deeper()
        text = self._expression()
        self.depth -= 1
        self.produce(text)
        return text

    def _expression(self) -> str:
        code = self.text[self.at : self.at + 2]
        if code in _UNARY:
            self.at += 2
            return f"{_UNARY[code]}({self.expression()})"
        if code in _BINARY:
            self.at += 2
            return f"({self.expression()} {_BINARY[code]} {self.expression()})"
        if self.take("sr"):
            of = self.type()
            name = self.unqualified()
            return f"{of}::{name}{self.template('', keep=False) if self.text.startswith('I', self.at) else ''}"
        if self.take("cv"):
            return f"({self.type()}){self.expression()}"
        if self.take("st"):
            return f"sizeof({self.type()})"
        if self.take("L"):
            return self.literal().removeprefix("&")
        if code[:1] == "T":
            return self.parameter()
        raise _UnreadableError

    def literal(self) -> str:
        if self.take("_Z"):
            text = self.encoding()
            if not self.take("E"):
                raise _UnreadableError
            return f"&{text}"
        code = self.text[self.at : self.at + 1]
        kind = self.type()
        match = self.matched(re.compile(r"(n?)(\d{0,40})E"))
        value = ("-" if match[1] else "") + match[2]
        if code == "b":
            return {"0": "false", "1": "true"}.get(value, value)
        return value + _LITERAL_SUFFIX.get(code, "") if code == "i" or code in _LITERAL_SUFFIX else f"({kind}){value}"

    def type(self) -> str:
        self.deeper()
        text = self._type()
        self.depth -= 1
        self.produce(text)
        return text

    def produce(self, text: str) -> None:
        self.produced += len(text)
        if self.produced > _PRODUCED:
            raise _UnreadableError

    def _type(self) -> str:
        code = self.text[self.at : self.at + 1]
        if code in _BUILTIN:
            self.at += 1
            return _BUILTIN[code]
        for spelling, text in _LONG_BUILTIN.items():
            if self.take(spelling):
                return text
        if code in _QUALIFIED:
            self.at += 1
            return self.remember(_pointed(self.type(), _QUALIFIED[code]))
        extended = self.extended()
        if extended is not None:
            return extended
        if code == "S" and not self.text.startswith("St", self.at):
            return self.maybe_template(self.substitution())
        if code == "T":
            return self.maybe_template(self.remember(self.parameter()))
        if self.take("A"):
            length = self.matched(re.compile(r"(\d{0,20})_"))[1]
            return self.remember(f"{self.type()} [{length}]")
        if self.take("F"):
            parts = []
            while not self.take("E"):
                parts.append(self.type())
            return self.remember(f"{parts[0] if parts else 'void'} ({', '.join(parts[1:])})")
        if code in ("N", "Z") or code.isdigit() or code == "S":
            return self.remember(self.name())
        raise _UnreadableError

    def extended(self) -> str | None:
        """A pack, a vector of elements, or a type that a vendor added."""
        if self.take("Dp"):
            return self.type()
        if self.take("Dv"):
            length = self.matched(re.compile(r"(\d{1,5})_"))[1]
            return self.remember(f"{self.type()} __vector({length})")
        return self.remember(self.unqualified()) if self.take("u") else None

    def maybe_template(self, text: str) -> str:
        return self.remember(text + self.template("", keep=False)) if self.text.startswith("I", self.at) else text

    def substitution(self) -> str:
        pair = self.text[self.at : self.at + 2]
        if pair in _STANDARD:
            self.at += 2
            return _STANDARD[pair]
        text = self.matched(_SEQUENCE)[1]
        index = int(text, 36) + 1 if text and len(text) < 6 else 0
        # A name that was shortened on its way refers to what is no longer in it.
        return self.seen[index] if index < len(self.seen) else "?"

    def parameter(self) -> str:
        text = self.matched(_PARAMETER)[1][:6]
        index = int(text) + 1 if text else 0
        return self.arguments[index] if index < len(self.arguments) else f"T{index}"


def _pointed(text: str, mark: str) -> str:
    """`void (*)(int)` of a function's type `void (int)`, else the type with its mark behind."""
    opens = text.find(" (")
    is_function = text.endswith(")") and opens > 0 and not text.startswith("(", opens + 2) and "<" not in text[:opens]
    return f"{text[:opens]} ({mark}){text[opens + 1 :]}" if is_function and mark in "*&&" else text + mark
