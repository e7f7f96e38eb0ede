import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import typer

from rollout.cli.program import PROGRAM, program_name, with_program_name
from rollout.cli.terminal import fit_line, flush_or_discard
from rollout.errors import ExitCode, NotConfirmedError, RolloutError
from rollout.model.text import printable

_USAGE = 2
_RESUME = "resume"
# The message of a plain RuntimeError.
_NO_THREAD = "can't start new thread"
_BUG = (
    "This is a bug in rollout, not your mistake: report it where you got rollout. To see the"
    " details, add -v."
)
_DENIED = (
    "The operating system refused a request. Check disk space, memory, permissions and limits"
    " (ulimit -a). To see where it failed, add -v."
)


def invoke(program: Callable[..., Any], arguments: Sequence[str]) -> int:
    try:
        code = program(list(arguments), prog_name=program_name(), standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of the output has closed the pipe.
        return ExitCode.ERROR
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - nothing above could report it
        flush_or_discard()
        command_path = _command_path(program, arguments)
        with suppress(OSError):
            report_error(error, verbose=_is_verbose(arguments), command_path=command_path)
        return error_exit_code(error)
    finally:
        flush_or_discard()
    # `typer.Exit` returns a code, other endings return None.
    return code if isinstance(code, int) else ExitCode.OK


def _command_path(program: Callable[..., Any], arguments: Sequence[str]) -> str:
    first_word = next((word for word in arguments if not word.startswith("-")), "")
    is_command = first_word in getattr(program, "commands", ())
    return f"{program_name()} {first_word}" if is_command else program_name()


def _is_verbose(arguments: Sequence[str]) -> bool:
    if os.environ.get("ROLLOUT_VERBOSE", "").strip("0 "):
        return True
    # Also -vv and -yv.
    return any(re.fullmatch(r"--verbose|-y?v+y?", word) for word in arguments)


def report_error(error: BaseException, *, verbose: bool, command_path: str = PROGRAM) -> None:
    """`verbose` adds the causes, and the traceback of a bug."""
    lines = list(_message_lines(error, command_path))
    cause = error.__cause__
    while verbose and cause is not None:
        lines.append(f"caused by: {printable(f'{type(cause).__name__}: {cause}')}")
        cause = cause.__cause__
    expected_errors = RolloutError | typer.TyperException | KeyboardInterrupt | typer.Abort
    if verbose and not isinstance(error, expected_errors):
        lines += "".join(traceback.format_exception(error)).splitlines()
    sys.stderr.write("".join(f"{fit_line(with_program_name(line))}\n" for line in lines))


def error_exit_code(error: BaseException) -> ExitCode:
    if isinstance(error, typer.Exit):
        return ExitCode(error.exit_code)
    if isinstance(error, RolloutError):
        return error.exit_code
    if isinstance(error, typer.TyperException):
        return ExitCode.USAGE if error.exit_code == _USAGE else ExitCode.ERROR
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        return ExitCode.INTERRUPTED
    return ExitCode.ERROR


def _message_lines(error: BaseException, command_path: str) -> Iterator[str]:
    name = program_name()
    if isinstance(error, RolloutError):
        prefix = "" if isinstance(error, NotConfirmedError) else "error: "
        yield f"{name}: {prefix}{printable(error.message)}"
        yield from (f"  {line}" for line in error.details)
        if error.hint:
            yield f"hint: {printable(error.hint)}"
    elif type(error).__name__ == "NoArgsIsHelpError":
        # typer prints the help of a group without a command.
        yield from str(error).splitlines()
    elif isinstance(error, typer.TyperException):
        yield f"{name}: error: {printable(_usage_message(error))}"
        # The option parser's errors have no context.
        path = getattr(getattr(error, "ctx", None), "command_path", command_path)
        yield f"hint: {_advice_on_flag(error)}See '{path} --help' for usage."
    elif isinstance(error, KeyboardInterrupt | typer.Abort):
        yield f"{name}: interrupted"
    elif _system_message(error):
        yield f"{name}: error: {printable(_system_message(error))}"
        yield f"hint: {_DENIED}"
    else:
        yield f"{name}: error: {type(error).__name__}: {printable(str(error))}"
        yield f"hint: {_BUG}"


def _usage_message(error: typer.TyperException) -> str:
    message = error.format_message()
    if message.startswith("No such command"):
        return message.replace("No such", "unknown", 1).replace("'", '"')
    return message.replace("No such option", "unknown flag", 1)


def _system_message(error: BaseException) -> str:
    lacks_memory = isinstance(error, MemoryError) or _NO_THREAD in str(error)
    if lacks_memory:
        return str(error) or "there is not enough memory"
    if not isinstance(error, OSError):
        return ""
    has_name = isinstance(error.filename, str | bytes)
    file = f"{os.fsdecode(error.filename)}: " if has_name else ""
    return f"{file}{error.strerror or error}"


def _advice_on_flag(error: typer.TyperException) -> str:
    context = getattr(error, "ctx", None)
    if context is None or type(error).__name__ != "NoSuchOption":
        return ""
    is_before_command = context.parent is None
    if is_before_command:
        return "Flags come after the command, as in rollout plan --max-unavailable 3. "
    takes_settings = any("--set" in option.opts for option in context.command.params)
    if not takes_settings:
        return ""
    from rollout.cli.settings.reading import PLANNED, nearest
    from rollout.cli.settings.schema import settings

    flag = str(getattr(error, "option_name", ""))
    # Another command may have this flag.
    setting_of_short_flag = next((item for item in settings().values() if item.short == flag), None)
    setting = setting_of_short_flag or settings().get(nearest(flag.lstrip("-")))
    if setting and not setting.flag:
        return f"{setting.name} has no flag: write --set {setting.name}=VALUE. "
    if setting and setting.name in PLANNED and context.command.name == _RESUME:
        return (
            f"resume keeps the settings of the interrupted rollout, so --{setting.flag} cannot be"
            " changed now. Drop it, or use rollout abort, then rollout apply. "
        )
    return ""
