"""A PDF's objects in one order, and still the same document."""

from __future__ import annotations

import random
import re

from mlpfusion.report.figures.drawing import pdf

PARTS = {
    "catalog": "<<\n  /Type /Catalog\n  /Pages {pages} 0 R\n>>",
    "pages": "<<\n  /Type /Pages\n  /Count 1\n  /Kids [{page} 0 R]\n>>",
    "page": "<<\n  /Type /Page\n  /Parent {pages} 0 R\n  /Resources <<\n    /Font <<\n{fonts}    >>\n  >>\n"
    "  /Contents {content} 0 R\n>>",
    "content": "<<\n  /Length 35\n>>\nstream\nBT 12 0 R\nendobj\n\n9 0 obj\n/fo0 8 Tf\nendstream",
    "a": "<<\n  /Type /Font\n  /BaseFont /A\n>>",
    "b": "<<\n  /Type /Font\n  /BaseFont /B\n>>",
}


def written(seed: int) -> bytes:
    """The document as some run wrote it: objects numbered and ordered by chance, and the fonts of its page."""
    rng = random.Random(seed)
    order = rng.sample(list(PARTS), len(PARTS))
    numbers = dict(zip(PARTS, rng.sample(range(1, 30), len(PARTS)), strict=True))
    fonts = [f"      /fo{at} {numbers[name]} 0 R\n" for at, name in enumerate("ab")]
    rng.shuffle(fonts)
    text = "%PDF-1.7\n%x\n\n"
    for name in order:
        body = PARTS[name].format(**numbers, fonts="".join(fonts)) if name != "content" else PARTS[name]
        text += f"{numbers[name]} 0 obj\n{body}\nendobj\n\n"
    return f"{text}xref\n0 1\ntrailer\n<<>>\nstartxref\n0\n%%EOF".encode()


def test_whatever_the_order_the_bytes_are_the_same() -> None:
    assert len({written(seed) for seed in range(20)}) == 20
    assert len({pdf.ordered(written(seed)) for seed in range(20)}) == 1


def test_every_place_in_the_table_is_that_of_an_object() -> None:
    found = pdf.ordered(written(1))
    places = [int(each) for each in re.findall(rb"^(\d{10}) 00000 n $", found, re.MULTILINE)]
    assert len(places) == len(PARTS)
    for number, place in enumerate(places, 1):
        assert found[place:].startswith(b"%d 0 obj\n" % number)
    start = int(re.findall(rb"startxref\n(\d+)", found)[0])
    assert found[start:].startswith(b"xref\n0 7\n")
    assert PARTS["content"].encode() in found  # what is in a stream stays as it is
