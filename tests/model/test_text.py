import pytest

from rollout.model.text import printable, shell_word


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
