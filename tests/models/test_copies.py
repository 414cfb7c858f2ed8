"""The copy of a module that is run: of other sizes and dtypes, with the same values."""

from __future__ import annotations

import torch
from support.plain_mlp import Plain

from mlpfusion.models import layers
from mlpfusion.models.copies import Copy


def test_a_copy_in_another_dtype_has_the_same_weights() -> None:
    module = Plain()
    copy = Copy(module, layers.shrunk(layers.linears(module), 24))
    narrow = copy.same(torch.bfloat16)
    for path, linear in copy.linears.items():
        assert torch.equal(narrow.linears[path].weight, linear.weight.bfloat16())
    assert all(narrow.run(x).y is not None for x in narrow.inputs())
