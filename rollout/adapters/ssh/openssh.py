"""Asks OpenSSH's client what its configuration sets for a host: `ssh -G`."""

import re
import subprocess
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rollout.adapters.programs import run_program
from rollout.adapters.ssh.host_patterns import HostPatterns, Kind, host_patterns
from rollout.errors import InputError
from rollout.model.tool_output import last_line

# By keyword in lower case: the values that differ from the default.
Settings = Mapping[str, tuple[str, ...]]

PROGRAM = "ssh"
NO_VALUE = "none"
# More dots than CanonicalizeHostname completes.
NOBODY = "no.such.host.of.rollout.invalid"
FILE_LISTS = ("userknownhostsfile", "globalknownhostsfile")
_SECONDS = 15.0
_LONGEST = 300
# ssh prints lists of files without quotes. Each file starts like a path.
_NEXT_FILE = re.compile(r" (?=[/~])")
# ssh -v names each file that it reads, and cuts a longer name.
_READING = re.compile(r"^debug1: Reading configuration data (.+?)\r?$", re.MULTILINE)
_LONGEST_NAME = 199
# Lines that repeat the name.
_OF_NAME = ("host", "hostname")


@dataclass
class _SharedAnswer:
    """ssh's answer about one name of a kind; empty before it was asked."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    name: str = ""
    settings: Settings = field(default_factory=dict)

    def settings_of(self, name: str) -> Settings | None:
        """Return the answer for another name; None if the answer depends on its name."""
        if name == self.name:
            return self.settings
        for keyword, values in self.settings.items():
            if keyword not in _OF_NAME and any(self.name in value.lower() for value in values):
                return None
        settings = dict(self.settings)
        if settings.get("hostname") == (self.name,):
            settings["hostname"] = (name,)
        return settings


class Client:
    """Runs `ssh -G`. For many threads.

    Messages name `original` instead of the temporary `file`.
    """

    def __init__(self, file: Path, original: str) -> None:
        self._file = file
        self._original = original
        self._patterns: HostPatterns | None = None
        self._answers: dict[tuple[Kind, str, int], _SharedAnswer] = {}
        self._lock = threading.Lock()
        done = self._run(NOBODY, user="", port=0, file=NO_VALUE)
        self._defaults = dict(_settings(done.stdout.decode(errors="surrogateescape")))
        # A host's name is never a default, and the default user is rollout's.
        for keyword in ("hostname", "user"):
            self._defaults.pop(keyword, None)

    def learn_patterns(self, user: str, port: int) -> None:
        """Find out which names the files treat alike. Raises `InputError`."""
        done = self._run(NOBODY, user, port, str(self._file), "-v")
        texts = _texts_read(done.stderr.decode(errors="surrogateescape"), self._file)
        self._patterns = host_patterns(texts) if texts else None

    def questions(self, names: Iterable[str]) -> int:
        """Return how many processes it takes to ask about these names."""
        return len({self._kind_of(name) for name in names})

    def ask(self, name: str, user: str, port: int) -> Settings:
        """Return what the files set for `ssh NAME`, or raise `InputError`.

        An empty user and port 0 are not passed.
        """
        kind = self._kind_of(name)
        if kind == name:
            return self._ask_ssh(name, user, port)
        with self._lock:
            shared = self._answers.setdefault((kind, user, port), _SharedAnswer())
        with shared.lock:
            if not shared.name:
                shared.settings = self._ask_ssh(name, user, port)
                shared.name = name
        settings = shared.settings_of(name)
        return self._ask_ssh(name, user, port) if settings is None else settings

    def _kind_of(self, name: str) -> Kind:
        return name if self._patterns is None else self._patterns.kind_of(name)

    def _ask_ssh(self, name: str, user: str, port: int) -> Settings:
        done = self._run(name, user, port, str(self._file))
        settings = _settings(done.stdout.decode(errors="surrogateescape")).items()
        return {name: value for name, value in settings if self._defaults.get(name) != value}

    def _run(
        self, name: str, user: str, port: int, file: str, *flags: str
    ) -> "subprocess.CompletedProcess[bytes]":
        words = [PROGRAM, "-G", "-T", *flags, "-F", file]
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


def _settings(printed: str) -> Settings:
    settings: dict[str, tuple[str, ...]] = {}
    for line in printed.splitlines():
        keyword, _, value = line.partition(" ")
        settings[keyword] = (*settings.get(keyword, ()), value)
    for keyword in FILE_LISTS:
        settings[keyword] = tuple(_NEXT_FILE.split(" ".join(settings.get(keyword, ()))))
    return settings


def _texts_read(messages: str, first: Path) -> Sequence[str]:
    """Return the files that ssh -v read; none if they are uncertain."""
    names = dict.fromkeys(_READING.findall(messages))
    if str(first) not in names or any(len(name) >= _LONGEST_NAME for name in names):
        return ()
    try:
        return [Path(name).read_bytes().decode(errors="surrogateescape") for name in names]
    except OSError:
        return ()
