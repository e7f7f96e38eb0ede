"""One command line, run to its end: whatever happens, it is told, and becomes an exit code."""

import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

from rollout.cli import failures
from rollout.cli.streams import discard_output, flush_or_discard
from rollout.errors import ExitCode


def invoke(program: Callable[..., Any], arguments: Sequence[str]) -> int:
    """Run one command line of the program, as typer's application or as its root command; the exit code."""
    try:
        code = program(list(arguments), prog_name=failures.PROGRAM, standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:
        # whoever read our output has seen enough; nothing more may be written, not even at exit
        discard_output()
        return ExitCode.ERROR
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the last place where one can be told
        flush_or_discard()
        return failures.report(error, verbose=_is_verbose(arguments))
    return code if isinstance(code, int) else ExitCode.OK


def _is_verbose(arguments: Sequence[str]) -> bool:
    """Whether causes are wanted; asked of the raw words, for an error may come before they are parsed."""
    has_flag = any(re.fullmatch(r"--verbose|-y?v+y?", word) for word in arguments)
    return has_flag or os.environ.get("ROLLOUT_VERBOSE", "").lower() in ("1", "2", "true", "yes", "on")
