import json
import subprocess
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollout.errors import UsageError
from rollout.model.json_text import json_document, json_line
from rollout.model.quantity import Count, Duration
from rollout.model.text import UNSAFE_CATEGORIES, printable, shell_word, ssh_path


@pytest.mark.parametrize(
    ("text", "seconds", "written"),
    [
        ("90s", 90, "1m30s"),
        ("1h30m", 5400, "1h30m"),
        ("500ms", 0.5, "500ms"),
        ("1.5h", 5400, "1h30m"),
        ("1d", 86400, "24h"),
        ("0", 0, "0s"),
        ("+5m", 300, "5m"),
        ("1.h", 3600, "1h"),
        ("1m0.25s", 60.25, "60250ms"),
        ("250\u00b5s", 0.00025, "250us"),
        ("100ns", 0.0000001, "100ns"),
        ("0.1ns", 0, "0s"),
    ],
)
def test_durations(text: str, seconds: float, written: str) -> None:
    assert Duration.parse(text) == seconds
    assert str(Duration.parse(text)) == written
    assert Duration.parse(written) == seconds


@pytest.mark.parametrize(
    "text", ["", "5", "00", "10x", "-5m", "m", ".h", "1h 30m", "++5m", "5m+", "1e3s", "\u0665m"]
)
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(UsageError, match="is not a duration"):
        Duration.parse(text)


@given(
    st.integers(min_value=0, max_value=2**31 - 1),
    st.sampled_from([("ns", 9), ("us", 6), ("ms", 3), ("s", 0)]),
)
def test_no_duration_changes_by_being_written(number: int, unit: tuple[str, int]) -> None:
    read = Duration.parse(f"{number}{unit[0]}")
    assert read == number / 10 ** unit[1]
    assert Duration.parse(str(read)) == read


@pytest.mark.parametrize(
    ("text", "total", "meant"),
    [
        ("3", 10, 3),
        ("25%", 10, 2),
        ("25%", 3, 1),
        ("100%", 10, 10),
        ("0", 10, 0),
        ("0%", 10, 0),
        ("39%", 10, 3),
    ],
)
def test_counts(text: str, total: int, meant: int) -> None:
    assert Count.parse(text).of(total) == meant
    assert str(Count.parse(text)) == text


@pytest.mark.parametrize("text", ["", "-1", "101%", "3.5", "all", "%"])
def test_what_is_no_count(text: str) -> None:
    with pytest.raises(UsageError, match="is not a count"):
        Count.parse(text)


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("my.plan", "my.plan"),
        ("", "''"),
        ("a b", "'a b'"),
        ("~root", "'~root'"),
        ("$(reboot)", "'$(reboot)'"),
        ("a\nb", r"$'a\x0ab'"),
        ("it's\x1b\\", r"$'it\'s\x1b\\'"),
        ("a\udcff\u202e", r"$'a\xff\xe2\x80\xae'"),
    ],
)
def test_names_for_commands_that_are_copied(name: str, word: str) -> None:
    assert shell_word(name) == word
    assert word == printable(word)


@pytest.mark.slow
@settings(max_examples=30)
@given(st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_json_means_the_same_and_steers_no_terminal(value: object) -> None:
    line = json_line(value).decode()
    assert json.loads(line) == json.loads(json_document(value)) == value
    assert not [char for char in line if unicodedata.category(char) in UNSAFE_CATEGORIES]


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("a\u009b2J", r'"a\u009b2J"'),
        ("\x7f", r'"\u007f"'),
        ("\u202egnp", r'"\u202egnp"'),
        ("\U000e0041", r'"\udb40\udc41"'),
        ("3975.2.0 → 4081.2.1 · ä", '"3975.2.0 → 4081.2.1 · ä"'),
    ],
)
def test_what_is_escaped_and_what_is_not(text: str, written: str) -> None:
    assert json_line(text).decode() == written
    assert json_document([text]).decode() == f"[\n  {written}\n]\n"


NAMES = ("plain", "a b", "%h", "a\\b", "it's", 'a "b"', "100%", "$HOME", "a\tb")


@pytest.mark.parametrize("name", NAMES)
def test_the_client_reads_the_file_that_is_meant(name: str, tmp_path: Path) -> None:
    """Of a list of files, where spaces separate them."""
    options = [
        *("-o", f"UserKnownHostsFile={ssh_path(str(tmp_path / name))}", "-o", "LogLevel=DEBUG3"),
    ]
    asked = subprocess.run(
        ["ssh", "-F", "none", *options, "-o", "ProxyCommand=exit", "-G", "host.example"],
        capture_output=True,
        text=True,
        check=True,
    )
    line = next(
        line for line in asked.stdout.splitlines() if line.startswith("userknownhostsfile ")
    )
    assert line.partition(" ")[2].replace("%%", "%") == str(tmp_path / name)


@pytest.mark.parametrize("name", ["plain", "a b", "it's", 'a "b"'])
def test_an_included_file_is_the_one_that_is_meant(name: str, tmp_path: Path) -> None:
    """Without percent signs, and without what is a pattern there."""
    (tmp_path / name).write_text("User included\n")
    config = tmp_path / "config"
    config.write_text(f"Include {ssh_path(str(tmp_path / name), tokens=False)}\n")
    asked = subprocess.run(
        ["ssh", "-F", config, "-G", "host.example"], capture_output=True, text=True, check=True
    )
    assert "user included\n" in asked.stdout
