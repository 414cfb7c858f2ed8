"""A text for a result file has no path, home, name of a user or host, password or token; the rest of it stays."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlpfusion import backend
from mlpfusion.storage import private

if TYPE_CHECKING:
    from collections.abc import Iterator

HOME = "/data/planted folder/planteduser"
OWN = {
    "HOME": HOME,
    "USER": "planteduser",
    "LOGNAME": "Planted.Login",
    "HOSTNAME": "plantedhost.example.org",
    "HF_TOKEN": "planted value with words",
    "aws_secret_access_key": "plantedSecret/+key",
    "DB_PASSWORD": "plantedpassword",
    "WANDB_API_KEY": "plantedkey",
    "MY_CREDENTIALS": "planted line one\nplanted line two",
    "SHORT_TOKEN": "seven77",
}


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("USERNAME", "HOST"):
        monkeypatch.delenv(name, raising=False)
    for name, value in OWN.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("cannot open /home/me/secret/file.bin", "cannot open file.bin"),
        ("'/a/b/c.py', line 3", "'c.py', line 3"),
        ("'/a b/c d/e f.py', line 3", "'e f.py', line 3"),
        ("/a/b:/c/d", "b:d"),
        ("/a//b//c", "c"),
        ("a/b/c and ./a/b", "a/b/c and ./a/b"),
        ("see https://x.org/a/b, not /a/b", "see https://x.org/a/b, not b"),
        ("http://x.org:80/a", "http://x.org:80/a"),
        ("file:///home/me/x", "file://x"),
        ("file://host/a/b", "file://b"),
        ("~/x/y.py and ~me/x", "y.py and x"),
        ("C:\\Users\\me\\x.py", "x.py"),
        ("3 GB/s", "3 GB/s"),
        ("a // b / c, '/ and / d'", "a // b / c, '/ and / d'"),
        ("/tmp", "/tmp"),
    ],
)
def test_absolute_paths_are_cut_to_their_last_part(text: str, left: str) -> None:
    assert private.text(text) == left


FOLDERS = st.lists(st.from_regex(r"[a-z]{1,8}", fullmatch=True), min_size=2, max_size=5)


@given(FOLDERS.filter(lambda parts: parts[0] != "home"))
def test_no_folder_of_a_path_is_left(parts: list[str]) -> None:
    found = private.text(f"cannot read /{'/'.join(parts)}")
    assert found == f"cannot read {parts[-1]}"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (HOME, "<home>"),
        (f"in {HOME}/ now", "in <home> now"),
        (f"{HOME}/work/mine.py", "mine.py"),
        ("/home/somebody", "<home>"),
        ("'/Users/somebody/', else", "'<home>', else"),
        ("PlantedUser's, of planted.login", "<user>'s, of <user>"),
        ("planteduserx and xplanteduser", "planteduserx and xplanteduser"),
        ("on plantedhost: PLANTEDHOST.example.org", "on <host>: <host>"),
        ("home/planteduser/x.py", "home/<user>/x.py"),
    ],
)
def test_home_and_names_become_words_for_them(text: str, left: str) -> None:
    assert private.text(text) == left


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("it says planted value with words.", "it says <secret>."),
        ("xplantedSecret/+keyx", "x<secret>x"),
        ("plantedpassword, plantedkey", "<secret>, <secret>"),
        ("planted line two", "<secret>"),
        ("seven77 is too short to tell it from a word", "seven77 is too short to tell it from a word"),
    ],
)
def test_secrets_of_the_environment(text: str, left: str) -> None:
    assert private.text(text) == left


TOKENS = (
    "hf_abcdefghijklmnopqrstuvwxyz",
    "hf_a1b2c3d4e5",
    "ghp_abcdefgh1234",
    "gho_abcdefgh1234",
    "github_pat_11ABC_defgh",
    "glpat-abcdefgh-1234",
    "sk-abcdefghijklmnopqr",
    "sk-proj-abc1defg",
    "AKIAABCDEFGH12345678",
    "xoxb-1234-abcdefgh",
    "eyJhbGciOiJI.eyJzdWIiOiIx.abc-_def",
)


@pytest.mark.parametrize("token", TOKENS)
@pytest.mark.parametrize("around", ["{}", "'{}'", "a={}, b", "token:{};", "({})", "https://x.org/{}/y"])
def test_tokens_of_known_services(token: str, around: str) -> None:
    found = private.text(around.format(token))
    assert found == around.format("<token>")


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("Authorization: Bearer abc.def", "Authorization: Bearer <token>"),
        ("https://me:pass@x.org/a", "https://<login>@x.org/a"),
        ("git+https://me:p@ss@x.org/a", "git+https://<login>@x.org/a"),
        ("https://x.org/a?token=abc&page=1", "https://x.org/a?token=<token>&page=1"),
        ("https://x.org/a?b=1&X-Amz-Signature=abc", "https://x.org/a?b=1&X-Amz-Signature=<token>"),
        ("https://x.org/a?api_key=plantedkey", "https://x.org/a?api_key=<token>"),
    ],
)
def test_what_opens_an_address(text: str, left: str) -> None:
    assert private.text(text) == left


@pytest.mark.parametrize(
    "text",
    [
        "hf_quantizer has no hf_config",
        "sk-learn is no ask-for-something-longer",
        "risk-averse",
        "float32 has no peak among the known cards",
        "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&)>",
        "8192x768x3072 in 3.1 µs, 4 GB/s",
        "bearer of bad news",
        "",
    ],
)
def test_what_is_nobodys_stays(text: str) -> None:
    assert private.text(text) == text


@pytest.mark.parametrize("name", ["root", "ab", "ubuntu", "12345", "Eager", ""])
def test_a_name_that_is_a_usual_word_is_none(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for variable in ("USER", "LOGNAME", "HOSTNAME"):
        monkeypatch.setenv(variable, name)
    monkeypatch.setenv("HOME", f"/{name}")
    text = f"{name} eager ubuntu root ab 12345 on NVIDIA H200"
    assert private.text(text) == text


def test_no_built_in_backend_is_taken_for_a_name() -> None:
    assert set(backend.ORDER) | set(backend.OF_A_FILE) <= private.COMMON


def test_the_host_that_the_system_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "plantedbox.lan")
    monkeypatch.setenv("HOSTNAME", "another-planted")  # read anew
    assert private.text("plantedbox.lan, plantedbox") == "<host>, <host>"


def planted() -> Iterator[str]:
    yield from (HOME, f"{HOME}/mine.py", "planteduser", "Planted.Login", "plantedhost", "plantedhost.example.org")
    yield from ("planted value with words", "plantedSecret/+key", "plantedpassword", "plantedkey", "planted line one")
    yield from (
        "https://planted:word@x.org",
        "https://x.org/?key=planted",
        "file:///planted/folder/x",
        "Bearer planted1",
    )


BETWEEN = (" ", ", ", ": ", "\n", " '", "' ", " (", ") ", "; ")
PARTS = st.lists(st.tuples(st.sampled_from(tuple(planted())), st.sampled_from(BETWEEN)), min_size=1, max_size=6)


@given(PARTS, st.text(alphabet="ab /:'\"~.,;()=<>\n", max_size=12))
def test_nothing_planted_is_left_wherever_it_stands(parts: list[tuple[str, str]], before: str) -> None:
    text = f"{before} {''.join(value + between for value, between in parts)}"
    found = private.text(text)
    assert "planted" not in found.lower()
    assert private.text(found) == found


@given(st.text(max_size=60))
def test_twice_is_as_once(text: str) -> None:
    assert private.text(private.text(text)) == private.text(text)


@pytest.mark.parametrize(
    ("names", "left"),
    [
        (["eager", "triton"], ["eager", "triton"]),
        (["./mine.py:Mine"], ["./mine.py:Mine"]),
        (["kernels/mine.py:Mine"], ["mine.py:Mine"]),
        (["/home/planted/mine.py:Mine", "~/deep/mine.py:Other"], ["mine.py:Mine", "mine.py:Other"]),
        (["../planted/mine.py:Mine", "./../../planted/mine.py:Mine"], ["mine.py:Mine", "mine.py:Mine (2)"]),
        (["a/mine.py:Mine", "b/mine.py:Mine", "a/mine.py:Mine"], ["mine.py:Mine", "mine.py:Mine (2)"]),
        (["a/mine.py:Mine", "mine.py:Mine"], ["mine.py:Mine (2)", "mine.py:Mine"]),
        (["auto:choices/a/choice.json", "auto:/x/choice.json"], ["auto:choice.json", "auto:choice.json (2)"]),
        (["hub/folder/"], ["folder"]),
    ],
)
def test_names_of_files_have_no_folder(names: list[str], left: list[str]) -> None:
    assert list(private.last_parts(names).values()) == left


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("eager,triton", "eager,triton"),
        ("/home/planted/out.json", "out.json"),
        ("eager,/home/planted/mine.py:Mine,../x.py:A", "eager,mine.py:Mine,x.py:A"),
        ("out/", "out"),
        ("/", "/"),
        ("NVIDIA H200", "NVIDIA H200"),
    ],
)
def test_a_path_on_the_command_line_is_its_last_part(value: str, shown: str) -> None:
    assert private.last_part(value) == shown
