"""Help loads this module, but not the schema."""

import re
from collections.abc import Callable, Sequence
from configparser import RawConfigParser
from pathlib import Path
from typing import Any

from msgspec import Struct

from rollout.model.quantity import LONGEST

BOOLEANS = RawConfigParser.BOOLEAN_STATES
_NUMBERS = {int: re.compile(r"-?[0-9]{1,10}"), float: re.compile(r"-?[0-9]{1,10}(\.[0-9]{1,10})?")}
_BLANK = re.compile(r"[\s,;]*")


def is_blank(text: str) -> bool:
    """Return whether a text has only separators and spaces."""
    return _BLANK.fullmatch(text) is not None


class Setting(Struct, frozen=True):
    """How a setting is declared and read."""

    metavar: str = ""
    # None if `kind` or `words` are enough to read a text.
    parse: Callable[[str], Any] | None = None
    # Empty if any value is valid.
    words: Sequence[str] = ()
    separator: str = ","
    # Of the value, or of a list's items.
    kind: Any = str
    name: str = ""
    is_list: bool = False
    default: Any = None
    help: str = ""
    # Without dashes; empty if there is no flag.
    flag: str = ""
    short: str = ""
    # The variable of a secret, which has no flag; else empty.
    private_variable: str = ""
    check: Callable[[Sequence[str]], object] | None = None
    least: float | None = None
    most: int = LONGEST
    is_required: bool = False

    @property
    def is_secret(self) -> bool:
        """Return whether the setting has no flag, and no message shows its value."""
        return bool(self.private_variable)

    @property
    def variable(self) -> str:
        """Return the environment variable, or an empty string."""
        if self.is_secret or not self.flag:
            return self.private_variable
        return f"ROLLOUT_{self.flag.replace('-', '_').upper()}"

    def read(self, value: Any) -> Any:
        """Raise `ValueError` or `UsageError` if the value is invalid.

        A list may be a TOML list, a text such as `a,b`, or a TOML list of such texts.
        """
        if not self.is_list:
            return self._read_item(value)
        values = value if isinstance(value, list) else [value]
        items: list[Any] = []
        for written_items in values:
            texts = [text.strip() for text in self._text(written_items).split(self.separator)]
            items += [self._read_item(text) for text in texts if text]
        without_repeats = tuple(dict.fromkeys(items))
        if self.check is not None:
            self.check(without_repeats)
        return without_repeats

    def _read_item(self, value: Any) -> Any:
        if self.kind is bool:
            boolean = value if isinstance(value, bool) else BOOLEANS.get(str(value).lower())
            if boolean is None:
                raise ValueError("it must be true or false")
            return boolean
        text = self._text(value)
        if self.kind is Path and not text:
            # `Path("")` would be the current directory.
            return self.default
        if self.parse is not None:
            return self.parse(text)
        if self.kind in _NUMBERS:
            return self._read_number(text.strip())
        if self.words and text not in self.words:
            raise ValueError(f"{text!r} is not one of {', '.join(self.words)}")
        return self.kind(text)

    def _read_number(self, text: str) -> Any:
        is_number = _NUMBERS[self.kind].fullmatch(text) is not None
        if not is_number:
            raise ValueError(f"{text!r} is not a {'whole ' if self.kind is int else ''}number")
        number = self.kind(text)
        if self.least is not None and number < self.least:
            raise ValueError(f"{number} is too small: the minimum is {self.least}")
        if number > self.most:
            raise ValueError(f"{number} is too large: the maximum is {self.most}")
        return number

    def _text(self, value: Any) -> str:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        # `out = 420` is a mistake.
        may_be_number = self.kind is not Path
        is_text = isinstance(value, str) or (is_number and may_be_number)
        if not is_text:
            message = "expected a string, or a list of strings if the setting is a list"
            raise ValueError(message)
        text = str(value)
        # An empty text means the default; a blank one is a mistake.
        if text and is_blank(text):
            raise ValueError(f"{text!r} is blank: specify a value, or remove the setting")
        return text
