"""What OpenSSH's own client says of a host: `ssh -G` evaluates its configuration exactly as a connection would.

A process a host (6 ms of CPU). Names are looked up, and the commands of `Match exec` are run, as `ssh` does: they are
the operator's own, and no name gets here that a shell could take for anything but a name.
"""

import os
import re
import signal
import subprocess
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from rollout.adapters.child_environment import child_environment
from rollout.adapters.ssh.config_source import CLIENT, Source
from rollout.errors import InputError
from rollout.model.host import DEFAULT_SSH_USER
from rollout.model.text import printable

# Keywords in lower case with their values: those that the configuration sets to something else than the default.
Settings = Mapping[str, tuple[str, ...]]

_SECONDS = 15.0
_NOBODY = "rollout.invalid"
_DEFAULT_USER = f"\nHost *\nUser {DEFAULT_SSH_USER}\n"
_FILE_LISTS = ("userknownhostsfile", "globalknownhostsfile")
# The client prints lists of files without quotes: one begins where a word begins as a path does.
_NAMELESS = (
    "OpenSSH works for users that have a name: add one for this uid to /etc/passwd (of the image), or do without a "
    "configuration of SSH: --ssh-config none."
)
_NEXT_FILE = re.compile(r" (?=[/~])")


@dataclass(frozen=True, slots=True)
class Question:
    """A name that `ssh` could be given, with the user and the port that were given besides; empty and 0 where none."""

    name: str
    user: str
    port: int

    @property
    def arguments(self) -> tuple[str, ...]:
        """The same for the client; the name is behind everything that could be an option."""
        user = ("-l", self.user) if self.user else ()
        port = ("-p", str(self.port)) if self.port else ()
        return (*user, *port, "--", self.name)


def ask_client(questions: Iterable[Question], source: Source) -> dict[Question, Settings]:
    """What the client says to each question; `InputError`, in its own words, where it cannot follow the files."""
    wanted = list(dict.fromkeys(questions))
    (defaults,) = _answers([Question(_NOBODY, "", 0)], ("-F", "none"))
    answers = dict(zip(wanted, _answers(wanted, source.arguments), strict=True))
    # The client prints the local user where nobody has set one, and where somebody has set just that.
    unclear = [wanted for wanted, answer in answers.items() if not wanted.user and answer["user"] == defaults["user"]]
    users = _users(unclear, source) if _may_set_user(source, defaults["user"][0]) else {}
    return {
        question: {
            **{name: value for name, value in answer.items() if defaults.get(name) != value},
            **({"user": users[question]} if question in users else {}),
        }
        for question, answer in answers.items()
    }


def _may_set_user(source: Source, user: str) -> bool:
    """Whether somebody is set who may be this one; also by files that only the client finds."""
    return any(
        line.keyword == ""
        or (line.keyword == "user" and (user in line.value or any(mark in line.value for mark in "%$")))
        for line in source.lines
    )


def _users(questions: Sequence[Question], source: Source) -> dict[Question, tuple[str, ...]]:
    """The same again, with our own default behind all that the files say."""
    text = "\nHost *\n".join(_included(source)) + _DEFAULT_USER
    answers = _answers(questions, ("-F", "/dev/stdin"), text)
    return {question: answer["user"] for question, answer in zip(questions, answers, strict=True)}


def _included(source: Source) -> Iterator[str]:
    """The operator's own file as it is, since an Include would have its permissions looked at, unlike -F."""
    for file in source.files:
        is_own = file not in source.system
        yield file.read_text(encoding="utf-8", errors="surrogateescape") if is_own else f'Include "{file}"'


def _answers(questions: Sequence[Question], arguments: Sequence[str], text: str = "") -> Iterator[Settings]:
    """In the order of the questions; a few are asked at a time, and none of them outlives this."""
    running = deque[tuple[Question, subprocess.Popen[bytes]]]()
    try:
        for question in questions:
            if len(running) >= _at_a_time():
                yield _answer(*running[0], text)
                running.popleft()
            running.append((question, _started(question, arguments)))
        while running:
            yield _answer(*running[0], text)
            running.popleft()
    finally:
        for _, process in running:
            _end(process)


def _at_a_time() -> int:
    return 2 * (os.cpu_count() or 1)


def _started(question: Question, arguments: Sequence[str]) -> "subprocess.Popen[bytes]":
    """In a session of its own: whatever it has started ends with it, and it can ask nothing on the terminal."""
    try:
        return subprocess.Popen(  # noqa: S603 - the name is one that nothing can take for an option
            [CLIENT, "-G", "-T", *arguments, *question.arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=child_environment(),
            start_new_session=True,
        )
    except OSError as error:
        raise InputError(f"{CLIENT} cannot be run: {error.strerror}") from error


def _end(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        with suppress(OSError):
            pipe.close() if pipe is not None else None


def _answer(question: Question, process: "subprocess.Popen[bytes]", text: str) -> Settings:
    try:
        printed, complaint = process.communicate(text.encode(errors="surrogateescape"), timeout=_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise InputError(
            f"ssh -G {question.name} has no answer after {_SECONDS:.3g} s",
            hint="Does a Match exec of the configuration wait for something, or CanonicalizeHostname for a resolver?",
        ) from error
    if process.returncode:
        raise InputError(
            f"ssh -G {question.name}: {_first_lines(complaint) or f'exit status {process.returncode}'}",
            hint=_NAMELESS if b"No user exists" in complaint else "",
        )
    return _settings(printed.decode(errors="surrogateescape"))


def _first_lines(complaint: bytes) -> str:
    return "; ".join(map(printable, complaint.decode(errors="replace").splitlines()[:3]))


def _settings(printed: str) -> Settings:
    settings: dict[str, tuple[str, ...]] = {}
    for line in printed.splitlines():
        keyword, _, value = line.partition(" ")
        settings[keyword] = (*settings.get(keyword, ()), value)
    for keyword in _FILE_LISTS:
        # These are printed with their tokens put in: what is still a % stands for itself.
        files = _NEXT_FILE.split(" ".join(settings.get(keyword, ())))
        settings[keyword] = tuple(file.replace("%", "%%") for file in files)
    return settings
