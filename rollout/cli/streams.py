"""The three standard streams, fit for use however the program was started and whatever their ends can take."""

import codecs
import os
import re
import resource
import stat
import sys
from collections.abc import Mapping
from contextlib import suppress

_IN_PLAIN = "rollout.in-plain"
# each as wide as what it stands for, so that tables stay straight
_SIGNS: Mapping[str, str] = {"✔": "+", "✘": "x", "→": ">", "·": "-", "…": ".", "━": "-", "╸": "-", "╺": "-"}
_SPINNER = frozenset(map(chr, range(0x2800, 0x2900)))
# of a terminal that says no size: 0 stands there in containers, and rich would print tables into no columns at all
_SIZES = ("COLUMNS", "LINES")
_SIZE = re.compile(r"[1-9][0-9]{0,3}")
_OPEN_FILES = 4096
# /dev/null, /dev/full and their like
_MEMORY_DEVICES = 1
_STREAMS = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


def prepare_streams() -> None:
    """Have all three open, and none that fails at a character which the locale's encoding lacks."""
    for name, mode in _STREAMS:
        if getattr(sys, name) is None:
            # in order, so that each gets its own number back; else a socket would, and take what is meant for stderr
            handle = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(handle, True)
            setattr(sys, name, os.fdopen(handle, mode))
    codecs.register_error(_IN_PLAIN, _in_plain)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors=_IN_PLAIN)  # type: ignore[union-attr]


def _in_plain(error: UnicodeError) -> tuple[str | bytes, int]:
    """One character as an encoding can write it that lacks it: a sign of ours by another, any other by its number."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    begin, end = error.start, error.start + 1
    character = error.object[begin]
    if sign := _SIGNS.get(character) or ("*" if character in _SPINNER else ""):
        return sign, end
    return codecs.backslashreplace_errors(UnicodeEncodeError(error.encoding, error.object, begin, end, error.reason))


def forget_impossible_sizes() -> None:
    """Let only what can be the size of a terminal stand in the environment; else it is asked of the terminal."""
    for name in _SIZES:
        if not _SIZE.fullmatch(os.environ.get(name, "")):
            os.environ.pop(name, None)


def raise_limit_of_files() -> None:
    """As many open files as a fleet takes, where the limit that is in force is lower than the one that may be set."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def flush_or_discard() -> None:
    """Write what is still to be written; where that fails, nothing may be tried again at exit.

    Python would try, and end with 120, whatever has come of a run.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            _discard(stream.fileno())


def discard_output() -> None:
    """Let nothing more reach standard output."""
    _discard(sys.stdout.fileno())


def let_go_of_lost_terminals() -> None:
    """Where the terminal is gone, as after a broken login, what a run still has to say goes nowhere, and fails not."""
    for number in (1, 2):
        place = os.fstat(number)
        is_device = stat.S_ISCHR(place.st_mode) and os.major(place.st_rdev) != _MEMORY_DEVICES
        if is_device and not os.isatty(number):
            _discard(number)


def _discard(number: int) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), number)
