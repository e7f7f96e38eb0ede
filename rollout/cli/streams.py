"""The three standard streams, fit for use however the program was started and whatever their ends can take."""

import os
import sys

_STREAMS = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


def prepare_streams() -> None:
    """Have all three open, and none that fails at a character which the locale's encoding lacks."""
    for name, mode in _STREAMS:
        if getattr(sys, name) is None:
            # in order, so that each gets its own number back; else a socket would, and take what is meant for stderr
            handle = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(handle, True)
            setattr(sys, name, os.fdopen(handle, mode))
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def flush_or_discard() -> None:
    """Write what is still to be written; where that fails, nothing may be tried again at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        discard_output()


def discard_output() -> None:
    """Let nothing more reach standard output."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
