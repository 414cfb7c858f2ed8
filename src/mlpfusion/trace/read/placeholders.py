"""Gives a user's own names in a trace placeholders that stay apart, and alike, as the names did."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mlpfusion.trace.read.chrome import Category

# A region id such as `0/1` is the one slash that the name of an operator or a kernel may have; others could be a path.
_REGION_ID: Final = re.compile(r"\b\d+/\d+\b")
# Annotations of ours and of PyTorch's own that hold no word of a user's.
_KNOWN: Final = re.compile(
    r"mlpfusion\.(?:call|warmup)|ProfilerStep\s?#\s?(?:\d+|\*)|ProfilerStep\*?|Torch-Compiled Region:? !?[\d/]+"
    r"|Pregraph bytecode|dynamo|TorchDynamo Cache Lookup|AOTDispatcher Runtime Wrapper Prologue"
    r"|## Call CompiledFxGraph \w+ ##|entire_frame_compile|_compile\.compile_inner|compile_attempt_\d+"
    r"|[\w.]{1,60} \(dynamo_timed\)|(?:nccl|gloo|c10d)::?_?[a-z]+(?:_[a-z]+){0,5}_?|record_param_comms"
    r"|Optimizer\.(?:step|zero_grad)#(?:Adam|AdamW|SGD|Adagrad|Adamax|RMSprop|NAdam|RAdam|LBFGS|Muon)\.(?:step|zero_grad)"
    r"|enumerate\(DataLoader\)#_(?:Single|Multi)ProcessD\w{1,10}LoaderIter\.__next__"
    r"|DistributedDataParallel\.\w{1,40}|FSDP::\w{1,60}|PyTorch Profiler \(\d+\)|CompiledFunction(?:Backward)?"
)
# What PyTorch annotates with words of a user's behind it; the placeholder still says whose it is.
_PYTORCHS: Final = re.compile(
    r"(ProfilerStep|## |Torch-Compiled Region|Optimizer\.|enumerate\(DataLoader\)|nccl:|gloo:|c10d::|FSDP::"
    r"|DistributedDataParallel\.|FullyShardedData|CompiledF|triton_|cudagraph|PyTorch Profiler|torch\.|aten::"
    r"|autograd::|\[pytorch\||\[param\||TorchDynamo|Pregraph bytecode|AOTDispatcher)"
)
# PyTorch's own Python frames, and modules of `torch.nn` that most models have.
_FRAME: Final = re.compile(r"torch/(?:\w{1,40}/){0,6}\w{1,40}\.py\(\d{1,6}\): [\w<>.]{1,80}")
_MODULE: Final = re.compile(r"nn\.Module: (?P<class>.*?)(?P<number>_\d{1,6})?", re.DOTALL)
_MODULES: Final = re.compile(
    r"(?:Lazy)?(?:Linear|Embedding|LayerNorm|RMSNorm|GroupNorm|BatchNorm[123]d|Conv[123]d|Dropout|GELU|SiLU|ReLU|Tanh"
    r"|Sigmoid|Softmax|Identity|Sequential|ModuleList|MultiheadAttention|MaxPool2d|AvgPool2d|AdaptiveAvgPool2d|Flatten"
    r"|CrossEntropyLoss|MSELoss|LSTM|GRU)"
)
_DIGITS: Final = re.compile(r"\d+")
_WORDS: Final = {"annotation": "range", "device_annotation": "range", "python": "frame", "op": "op", "other": "event"}


class Placeholders:
    """One placeholder for each name: `range_a`, `range_b`, …, the same for the same name.

    Names that differ in numbers only have one word, and a number each in the order of their first use, by which they
    are told apart where names with numbers are one name with a parameter.
    """

    def __init__(self) -> None:
        self._words: dict[tuple[str, str], str] = {}
        self._counts: dict[str, int] = {}
        self._numbers: dict[tuple[str, int], dict[str, int]] = {}
        self._known: dict[tuple[str, Category], str] = {}

    def of(self, name: str, category: Category) -> str:
        """The name itself if it has no word of a user's, else its placeholder."""
        found = self._known.get((name, category))
        if found is None:
            found = self._known[name, category] = self._of(name, category)
        return found

    def _of(self, name: str, category: Category) -> str:
        if category in ("annotation", "device_annotation"):
            if _KNOWN.fullmatch(name):
                return name
            owner = _PYTORCHS.match(name)
            return f"{owner[1] if owner else ''}{self._placeholder(name, 'range')}"
        if category == "python":
            return self._frame(name)
        suspect = _REGION_ID.sub("", name)
        if category != "other" and "/" not in suspect and "\\" not in suspect and name.isprintable():
            return name
        return self._placeholder(name, _WORDS.get(category, "kernel")) if name else ""

    def _frame(self, name: str) -> str:
        if _FRAME.fullmatch(name):
            return name
        module = _MODULE.fullmatch(name)
        if module is None:
            return self._placeholder(name, "frame")
        kind = module["class"]
        shown = (
            kind if _MODULES.fullmatch(kind) else f"Module{self._placeholder(kind, 'module').removeprefix('module')}"
        )
        return f"nn.Module: {shown}{module['number'] or ''}"

    def _placeholder(self, name: str, word: str) -> str:
        family = _DIGITS.sub("#", name)
        label = self._words.get((word, family))
        if label is None:
            number = self._counts[word] = self._counts.get(word, 0) + 1
            label = self._words[word, family] = f"{word}_{_letters(number)}"
        said = [label]
        for place, digits in enumerate(_DIGITS.finditer(name)):
            numbers = self._numbers.setdefault((f"{word} {family}", place), {})
            ordinal = numbers.setdefault(digits[0], len(numbers))
            # A number within a word (`fp16`) is part of it, one that stands alone is a parameter.
            said.append(f"{'x' if name[digits.start() - 1 : digits.start()].isalpha() else ' '}{ordinal}")
        return "".join(said)


def _letters(number: int) -> str:
    """1 -> a, 26 -> z, 27 -> aa."""
    text = ""
    while number:
        number, rest = divmod(number - 1, 26)
        text = chr(ord("a") + rest) + text
    return text
