"""One command line, run to its end: from an exception to what the operator sees and the process ends with.

Expected errors are a sentence and a hint; `-v` adds what caused them. A traceback is for bugs, and
for `-v`.
"""

import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import typer

from rollout.cli.program import PROGRAM, as_started, program_name
from rollout.cli.terminal import fit_line, flush_or_discard
from rollout.errors import ExitCode, NotConfirmedError, RolloutError
from rollout.model.text import printable

_CLICK_USAGE = 2
_RESUME = "resume"
_ANEW = "Drop it, or use rollout abort, then rollout apply. See: "


def invoke(program: Callable[..., Any], arguments: Sequence[str]) -> int:
    """Run one command line of the program, as typer's application or as its root command; the exit code."""
    # asked of the raw words, for an error may come before they are parsed
    flags = [word for word in arguments if re.fullmatch(r"--verbose|-y?v+y?", word)]
    try:
        code = program(list(arguments), prog_name=program_name(), standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:
        # whoever read our output has seen enough
        return ExitCode.ERROR
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the last place where one can be told
        flush_or_discard()
        with suppress(OSError):
            verbose = bool(flags or os.environ.get("ROLLOUT_VERBOSE", "").strip("0 "))
            report(error, verbose=verbose, command=_command(program, program_name(), arguments))
        return exit_code(error)
    finally:
        flush_or_discard()
    return code if isinstance(code, int) else ExitCode.OK


def _command(program: Callable[..., Any], typed_name: str, arguments: Sequence[str]) -> str:
    """Return the typed command, for the hint to its help: `rollout apply`."""
    first = next((word for word in arguments if not word.startswith("-")), "")
    return f"{typed_name} {first}" if first in getattr(program, "commands", ()) else typed_name


def report(error: BaseException, *, verbose: bool, command: str = PROGRAM) -> None:
    """Tell the operator on standard error; `verbose` adds what is behind it, and where a bug came from."""
    lines = list(_lines(error, command))
    cause = error.__cause__
    while verbose and cause is not None:
        lines.append(f"caused by: {printable(f'{type(cause).__name__}: {cause}')}")
        cause = cause.__cause__
    if verbose and not isinstance(
        error, RolloutError | typer.TyperException | KeyboardInterrupt | typer.Abort
    ):
        lines += "".join(traceback.format_exception(error)).splitlines()
    sys.stderr.write("".join(f"{fit_line(as_started(line))}\n" for line in lines))


def exit_code(error: BaseException) -> ExitCode:
    """Return what the process ends with."""
    if isinstance(error, typer.Exit):
        return ExitCode(error.exit_code)
    if isinstance(error, RolloutError):
        return error.exit_code
    if isinstance(error, typer.TyperException):
        return ExitCode.USAGE if error.exit_code == _CLICK_USAGE else ExitCode.ERROR
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        return ExitCode.INTERRUPTED
    return ExitCode.ERROR


def _lines(error: BaseException, typed: str) -> Iterator[str]:
    if isinstance(error, RolloutError):
        word = "" if isinstance(error, NotConfirmedError) else "error: "
        yield f"{program_name()}: {word}{printable(error.message)}"
        yield from (f"  {line}" for line in error.details)
        if error.hint:
            yield f"hint: {printable(error.hint)}"
    elif type(error).__name__ == "NoArgsIsHelpError":
        # a group alone: its help is all that is to be said, line by line
        yield from str(error).splitlines()
    elif isinstance(error, typer.TyperException):
        yield f"{program_name()}: error: {printable(error.format_message())}"
        # Errors of the option parser have no context.
        command = getattr(getattr(error, "ctx", None), "command_path", typed)
        yield f"hint: {_advice(error)}{command} --help"
    elif isinstance(error, KeyboardInterrupt | typer.Abort):
        yield f"{program_name()}: interrupted"
    elif message := _denial(error):
        yield f"{program_name()}: error: {printable(message)}"
        yield (
            "hint: the system denied it: room, memory, open files, threads or a right (see ulimit"
            " -a); -v shows where"
        )
    else:
        yield f"{program_name()}: error: {type(error).__name__}: {printable(str(error))}"
        yield (
            "hint: this is a bug in rollout, not a mistake of yours; run it again with -v for the"
            " details"
        )


def _denial(error: BaseException) -> str:
    """Return what the system has said no to, which is no bug; empty where it is something else."""
    if isinstance(error, MemoryError) or "can't start new thread" in str(error):
        return str(error) or "there is not enough memory"
    if not isinstance(error, OSError):
        return ""
    file = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, str | bytes) else ""
    return f"{file}{error.strerror or error}"


def _advice(error: typer.TyperException) -> str:
    """Return what to write in place of a flag that there is not."""
    context = getattr(error, "ctx", None)
    if context is None or type(error).__name__ != "NoSuchOption":
        return ""
    if context.parent is None:
        return "Flags stand after the command, as in rollout plan --max-unavailable 3. See: "
    from rollout.cli.settings.reading import PLANNED, nearest
    from rollout.cli.settings.schema import settings

    if not any("--set" in option.opts for option in context.command.params):
        return ""
    written = str(getattr(error, "option_name", ""))
    short = next((item for item in settings().values() if item.short == written), None)
    meant = short or settings().get(nearest(written.lstrip("-")))
    if meant and meant.flag and meant.name in PLANNED and context.command.name == _RESUME:
        return (
            f"resume keeps the rules of the interrupted rollout, so --{meant.flag} cannot be"
            f" changed now. {_ANEW}"
        )
    return (
        f"{meant.name} has no flag: write --set {meant.name}=VALUE. See: "
        if meant and not meant.flag
        else ""
    )
