"""Checks and evaluates CEL expressions.

cel-expr-python blocks all threads, so a limited process runs it.
"""

import json
import re
import resource
import subprocess
import sys
from functools import lru_cache
from importlib import import_module
from types import ModuleType
from typing import Any

import msgspec

from rollout.adapters.programs import run_program, worker_program
from rollout.errors import GateError, UsageError
from rollout.model.json_text import DECODE_ERRORS

_VARIABLES = ("metadata", "spec", "status")
_WHOLE_OBJECT = "object"
_LONGEST_EXPRESSION = 2000
_EVALUATION_SECONDS = 10.0
_ERROR_CODES = re.compile(r"^([A-Z_]+: )?(ERROR: <input>:)?| \[[A-Z_]+\]\Z")
_MOST_MEMORY = 1 << 30
_PROGRAM = worker_program(__name__)


class _Task(msgspec.Struct):
    expression: str
    object: msgspec.Raw


class _Answer(msgspec.Struct):
    # None if there is a problem.
    value: bool | None = None
    problem: str = ""


def check_expression(text: str) -> None:
    """Raise `UsageError` if it is invalid or no boolean, or without CEL."""
    if len(text) > _LONGEST_EXPRESSION:
        raise UsageError(f"the expression is longer than {_LONGEST_EXPRESSION} characters")
    if not text.isprintable():
        raise UsageError("the expression must be one line of printable text")
    try:
        value_type = _compile(text).return_type()
    except ValueError as error:
        raise UsageError(f"{text!r} is not a CEL expression: {error}") from error
    types = _import_cel().Type
    # A DYN may be a bool.
    if value_type not in (types.BOOL, types.DYN):
        raise UsageError(
            f"{text!r} is of type {value_type.name().lower()}, not bool",
            hint="Compare the value with something, as in status.phase == 'Ready'.",
        )


def evaluate(expression: str, body: bytes) -> bool:
    """Evaluate for a JSON object, or raise `GateError`."""
    try:
        answer = _evaluate_by_child(expression, body)
    except subprocess.TimeoutExpired as error:
        raise GateError(
            f"evaluating {expression} takes longer than {_EVALUATION_SECONDS:g}s"
        ) from error
    except OSError as error:
        raise GateError(f"{expression} cannot be evaluated: {error.strerror}") from error
    except DECODE_ERRORS as error:
        # A killed child's answer is incomplete.
        cause = f"it needs more than {_MOST_MEMORY >> 20} MiB of memory, or the library failed"
        raise GateError(f"{expression} cannot be evaluated: {cause}") from error
    if answer.value is None:
        raise GateError(answer.problem)
    return answer.value


# A FleetLock server asks the same for every host.
@lru_cache(maxsize=8)
def _evaluate_by_child(expression: str, body: bytes) -> _Answer:
    task = msgspec.json.encode(_Task(expression, msgspec.Raw(body)))
    completed = run_program(_PROGRAM, seconds=_EVALUATION_SECONDS, stdin=task)
    return msgspec.json.decode(completed.stdout, type=_Answer)


def work() -> None:
    """Do the task on stdin, in the child process."""
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))
    task = msgspec.json.decode(sys.stdin.buffer.read(), type=_Task)
    try:
        answer = _evaluate_here(task.expression, json.loads(bytes(task.object)))
    except UsageError as error:
        answer = _Answer(problem=error.message)
    sys.stdout.buffer.write(msgspec.json.encode(answer))


def _evaluate_here(expression: str, object_body: dict[str, Any]) -> _Answer:
    try:
        compiled = _compile(expression)
        variables = {name: object_body.get(name) or {} for name in _VARIABLES}
        result = compiled.eval(data={**variables, _WHOLE_OBJECT: object_body})
    except (ValueError, RuntimeError) as error:
        return _Answer(problem=f"{expression}: {_without_codes(str(error))}")
    value_type = result.type()
    types = _import_cel().Type
    if value_type == types.BOOL:
        return _Answer(value=result.value())
    # Such as a missing field: this library does not raise.
    if value_type == types.ERROR:
        return _Answer(problem=f"{expression}: {_without_codes(result.value())}")
    return _Answer(problem=f"{expression} is of type {value_type.name().lower()}, not bool")


def _compile(expression: str) -> Any:
    cel = _import_cel()
    variables = dict.fromkeys((*_VARIABLES, _WHOLE_OBJECT), cel.Type.DYN)
    environment = cel.NewEnv(variables=variables)
    try:
        return environment.compile(expression)
    except RuntimeError as error:
        first_line, *_ = str(error).splitlines()
        raise ValueError(_without_codes(first_line)) from error


def _without_codes(message: str) -> str:
    """Return `no such key` of `NOT_FOUND: no such key [NOT_FOUND]`."""
    return _ERROR_CODES.sub("", message)


def _import_cel() -> ModuleType:
    try:
        return import_module("cel_expr_python.cel")
    except ImportError as error:
        raise UsageError(
            "gates.healthy needs cel-expr-python, which is not installed",
            hint=f"{sys.executable} -m pip install 'cel-expr-python>=0.1.3'",
        ) from error
