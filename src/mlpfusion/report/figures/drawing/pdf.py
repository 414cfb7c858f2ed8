"""Puts the objects of a PDF into one order: its writer numbers fonts and resources anew in each run."""

from __future__ import annotations

import re
from typing import Final

_OBJECT: Final = re.compile(rb"(\d+) 0 obj\n")
_LENGTH: Final = re.compile(rb"/Length (\d+)")
_REFERENCE: Final = re.compile(rb"\b(\d+) 0 R\b")
# A dictionary with nothing in it but references, as of a page's resources.
_RESOURCES: Final = re.compile(rb"<<\n((?:[ ]*/\w+ \d+ 0 R\n)+)([ ]*)>>")
_STREAM: Final = b"\nstream\n"


def ordered(data: bytes) -> bytes:
    """The same document, the same bytes whatever the order in which it was written.

    Objects are numbered as they are reached from the catalogue, and the resources in a dictionary are sorted by name.
    """
    objects = {number: _sorted(head) + rest for number, (head, rest) in _objects(data).items()}
    root = next(number for number, text in objects.items() if b"/Type /Catalog" in text)
    numbers: dict[int, int] = {}
    waiting = [root]
    while waiting:
        number = waiting.pop(0)
        if number not in numbers:
            numbers[number] = len(numbers) + 1
            waiting += [int(each) for each in _REFERENCE.findall(_head(objects[number]))]
    return _written(data[: _OBJECT.search(data).start()], objects, numbers)  # type: ignore[union-attr]


def _objects(data: bytes) -> dict[int, tuple[bytes, bytes]]:
    """The objects by number: each one's dictionary or value, and its stream if it has one."""
    found: dict[int, tuple[bytes, bytes]] = {}
    place = 0
    while (begin := _OBJECT.search(data, place)) is not None:
        end = data.index(b"\nendobj", begin.end())
        stream = data.find(_STREAM, begin.end(), end)
        head = data[begin.end() : end if stream < 0 else stream]
        length = _LENGTH.search(head)
        if stream >= 0 and length is not None:  # what is in a stream may look like the end of an object
            end = data.index(b"\nendobj", stream + len(_STREAM) + int(length[1]))
        found[int(begin[1])] = (head, b"" if stream < 0 else data[stream:end])
        place = end
    return found


def _head(text: bytes) -> bytes:
    return text.partition(_STREAM)[0]


def _sorted(head: bytes) -> bytes:
    def by_name(found: re.Match[bytes]) -> bytes:
        return b"<<\n" + b"".join(sorted(found[1].splitlines(keepends=True))) + found[2] + b">>"

    return _RESOURCES.sub(by_name, head)


def _written(start: bytes, objects: dict[int, bytes], numbers: dict[int, int]) -> bytes:
    """The file anew, with the objects that are reached and a table of their places."""

    def renumbered(found: re.Match[bytes]) -> bytes:
        return b"%d 0 R" % numbers[int(found[1])]

    out = bytearray(start)
    places = []
    for old, new in numbers.items():
        head, mark, stream = objects[old].partition(_STREAM)
        places.append(len(out))
        out += b"%d 0 obj\n%s%s%s\nendobj\n\n" % (new, _REFERENCE.sub(renumbered, head), mark, stream)
    table = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(numbers) + 1)
    out += b"".join(b"%010d 00000 n \n" % place for place in places)
    out += b"trailer\n<<\n  /Size %d\n  /Root 1 0 R\n>>\nstartxref\n%d\n%%%%EOF\n" % (len(numbers) + 1, table)
    return bytes(out)
