"""Asks OpenSSH's client about a host: `ssh -G`."""

import re
import subprocess
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from rollout.adapters.input_files import read_input
from rollout.adapters.programs import run_program
from rollout.adapters.ssh.host_patterns import HostPatterns, Kind, host_patterns
from rollout.errors import InputError
from rollout.model.tool_output import last_line

# By lower-case keyword, without ssh's defaults.
Settings = Mapping[str, tuple[str, ...]]

_AnswerKey = tuple[Kind, str, int]

PROGRAM = "ssh"
NO_VALUE = "none"
# It has too many dots for CanonicalizeHostname.
NOBODY = "no.such.host.of.rollout.invalid"
FILE_LISTS = ("userknownhostsfile", "globalknownhostsfile")
_SECONDS = 15.0
_LONGEST = 300
# Lists of files have no quotes.
_SPACE_BEFORE_FILE = re.compile(r" (?=[/~])")
# ssh -v cuts long names.
_READING = re.compile(r"^debug1: Reading configuration data (.+?)\r?$", re.MULTILINE)
_LONGEST_NAME = 199
_LINES_WITH_NAME = ("host", "hostname")


class _Answer(Struct, frozen=True):
    name: str
    settings: Settings

    @property
    def depends_on_name(self) -> bool:
        """Whether a setting contains the name."""
        for keyword, values in self.settings.items():
            if keyword in _LINES_WITH_NAME:
                continue
            if any(self.name in value.lower() for value in values):
                return True
        return False

    def settings_for(self, name: str) -> Settings:
        repeats_asked_name = self.settings.get("hostname") == (self.name,)
        if repeats_asked_name:
            return {**self.settings, "hostname": (name,)}
        return self.settings


class Client:
    """Runs `ssh -G`, for many threads.

    Names that the configuration treats alike share one answer.
    """

    def __init__(self, file: Path, original: str) -> None:
        """Messages name `original` instead of the temporary `file`."""
        self._file = file
        self._original = original
        self._patterns: HostPatterns | None = None
        self._answers: dict[_AnswerKey, _Answer] = {}
        # Only threads that need the same answer wait for each other.
        self._answer_locks: dict[_AnswerKey, threading.Lock] = {}
        self._lock = threading.Lock()
        done = self._run_ssh(NOBODY, user="", port=0, file=NO_VALUE)
        self._defaults = dict(_parse_settings(done.stdout.decode(errors="surrogateescape")))
        # Kept even if they are ssh's defaults: rollout's default user differs.
        for keyword in ("hostname", "user"):
            self._defaults.pop(keyword, None)

    def learn_patterns(self, user: str, port: int) -> None:
        """Find out which names are alike. Raises `InputError`."""
        done = self._run_ssh(NOBODY, user, port, file=str(self._file), is_verbose=True)
        texts = _read_configuration_files(done.stderr.decode(errors="surrogateescape"), self._file)
        self._patterns = host_patterns(texts) if texts else None

    def count_runs(self, names: Iterable[str]) -> int:
        """Return how often ssh has to run."""
        return len({self._kind_of(name) for name in names})

    def ask(self, name: str, user: str, port: int) -> Settings:
        """Return what the files set for `ssh NAME`, or raise `InputError`.

        An empty user and port 0 are not passed.
        """
        kind = self._kind_of(name)
        is_only_name_of_kind = kind == name
        if is_only_name_of_kind:
            return self._ask_ssh(name, user, port)
        answer = self._shared_answer((kind, user, port), name)
        if answer.name == name:
            return answer.settings
        if answer.depends_on_name:
            return self._ask_ssh(name, user, port)
        return answer.settings_for(name)

    def _shared_answer(self, key: _AnswerKey, name: str) -> _Answer:
        with self._lock:
            answer_lock = self._answer_locks.setdefault(key, threading.Lock())
        with answer_lock:
            if key not in self._answers:
                _, user, port = key
                self._answers[key] = _Answer(name, self._ask_ssh(name, user, port))
            return self._answers[key]

    def _kind_of(self, name: str) -> Kind:
        return name if self._patterns is None else self._patterns.kind_of(name)

    def _ask_ssh(self, name: str, user: str, port: int) -> Settings:
        done = self._run_ssh(name, user, port, file=str(self._file))
        settings = _parse_settings(done.stdout.decode(errors="surrogateescape"))
        return {
            keyword: values
            for keyword, values in settings.items()
            if self._defaults.get(keyword) != values
        }

    def _run_ssh(
        self, name: str, user: str, port: int, *, file: str, is_verbose: bool = False
    ) -> "subprocess.CompletedProcess[bytes]":
        words = [PROGRAM, "-G", "-T", "-F", file]
        if is_verbose:
            words.append("-v")
        if user:
            words += ["-l", user]
        if port:
            words += ["-p", str(port)]
        try:
            done = run_program([*words, "--", name], seconds=_SECONDS)
        except OSError as error:
            raise InputError(f"{PROGRAM} cannot be run: {error.strerror}") from error
        except subprocess.TimeoutExpired as error:
            raise InputError(
                f"ssh -G {name} did not respond within {_SECONDS:.3g} s",
                hint="Check whether its Match exec or CanonicalizeHostname hangs.",
            ) from error
        if done.returncode:
            printed = done.stderr.decode(errors="replace").replace(str(self._file), self._original)
            message = last_line(printed, _LONGEST) or f"exit status {done.returncode}"
            hint = "Fix the configuration, or ignore it: --ssh-config none."
            raise InputError(f"ssh -G {name}: {message}", hint=hint)
        return done


def _parse_settings(printed: str) -> Settings:
    settings: dict[str, tuple[str, ...]] = {}
    for line in printed.splitlines():
        keyword, _, value = line.partition(" ")
        settings[keyword] = (*settings.get(keyword, ()), value)
    for keyword in FILE_LISTS:
        list_of_files = " ".join(settings.get(keyword, ()))
        settings[keyword] = tuple(_SPACE_BEFORE_FILE.split(list_of_files))
    return settings


def _read_configuration_files(messages: str, first: Path) -> Sequence[str]:
    """Empty if a file is unreadable, or a name was cut."""
    names = dict.fromkeys(_READING.findall(messages))
    is_name_cut = any(len(name) >= _LONGEST_NAME for name in names)
    if is_name_cut or str(first) not in names:
        return ()
    try:
        return [read_input(Path(name)).decode(errors="surrogateescape") for name in names]
    except OSError:
        return ()
