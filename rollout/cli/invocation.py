"""One command line, run to its end: whatever happens, it is told, and becomes an exit code."""

import os
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rollout.cli import failures
from rollout.cli.streams import discard_output, flush_or_discard
from rollout.errors import ExitCode

_PLUGIN = "kubectl-node_rollout"


def invoke(program: Callable[..., Any], arguments: Sequence[str]) -> int:
    """Run one command line of the program, as typer's application or as its root command; the exit code."""
    try:
        code = program(list(arguments), prog_name=_typed_name(), standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:
        # whoever read our output has seen enough; nothing more may be written, not even at exit
        discard_output()
        return ExitCode.ERROR
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the last place where one can be told
        flush_or_discard()
        with suppress(OSError):
            failures.report(error, verbose=_is_verbose(arguments))
        return failures.exit_code(error)
    finally:
        flush_or_discard()
    return code if isinstance(code, int) else ExitCode.OK


def _typed_name() -> str:
    """What usage lines call the program: kubectl finds `kubectl node-rollout` as a file of the name `_PLUGIN`."""
    return "kubectl node-rollout" if Path(sys.argv[0]).name == _PLUGIN else failures.PROGRAM


def own_path() -> Path | None:
    """The program's file where PATH does not lead to it, as in a virtual environment that was never activated.

    None where its name alone is enough, or nobody knows its file.
    """
    typed = Path(sys.argv[0])
    own = typed if typed.name == failures.PROGRAM else Path(sys.executable).with_name(failures.PROGRAM)
    by_name = shutil.which(failures.PROGRAM)
    is_found = by_name is not None and own.exists() and own.samefile(by_name)
    return own if own.exists() and not is_found else None


def _is_verbose(arguments: Sequence[str]) -> bool:
    """Whether causes are wanted; asked of the raw words, for an error may come before they are parsed."""
    has_flag = any(re.fullmatch(r"--verbose|-y?v+y?", word) for word in arguments)
    return has_flag or os.environ.get("ROLLOUT_VERBOSE", "").lower() in ("1", "2", "true", "yes", "on")
