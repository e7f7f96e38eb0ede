"""What OpenSSH's own client says of a host: `ssh -G` evaluates its configuration exactly as a connection would.

A process a question (6 ms of CPU). Names are looked up, and the commands of `Match exec` are run, as `ssh` does: they
are the operator's own, and no name gets here that a shell could take for anything but a name.
"""

import os
import pwd
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from rollout.adapters.local_files import new_folder
from rollout.adapters.secrets import child_environment
from rollout.errors import InputError
from rollout.model.host import DEFAULT_SSH_USER
from rollout.model.text import printable

# Keywords in lower case with their values: those that the configuration sets to something else than the default.
Settings = Mapping[str, tuple[str, ...]]

CLIENT = "ssh"
_OWN = Path("~/.ssh/config")
_SYSTEM = Path("/etc/ssh/ssh_config")
# As `ssh -F none`.
_NO_FILE = Path("none")
# With more dots than CanonicalizeHostname completes.
NOBODY = "no.such.host.of.rollout.invalid"
_DEFAULT_USER = f"Host *\nUser {DEFAULT_SSH_USER}\n"
_SECONDS = 15.0
_FILE_LISTS = ("userknownhostsfile", "globalknownhostsfile")
# The client prints lists of files without quotes: one begins where a word begins as a path does.
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


@dataclass(frozen=True)
class ConfigFiles:
    """The files that count: the one that is named or the account's, and the system's; None where they do not."""

    own: Path | None
    system: Path | None = None
    is_named: bool = False

    def __str__(self) -> str:
        """For messages."""
        return ", ".join(str(file) for file in (self.own, self.system) if file)

    @property
    def arguments(self) -> tuple[str, ...]:
        """What makes a client that we start go by them."""
        return ("-F", str(self.own.resolve())) if self.own and not self.system else ()

    def text(self) -> str:
        """Return what they say, with our own default behind it all; `InputError` where the named one cannot be read."""
        # As it is: an Include would have its permissions looked at, unlike -F.
        own = _read(self.own) if self.own else ""
        system = f'Host *\nInclude "{self.system}"\n' if self.system else ""
        return f"{own}\n{system}{_DEFAULT_USER}"


def config_files(path: Path | None) -> ConfigFiles | None:
    """Return the file that is named; where none is, those that `ssh` goes by; None where no file counts.

    `ssh` looks for the account's home; where HOME is another folder, as in a container or under sudo, the file there
    counts, and alone.
    """
    if path is not None:
        return None if path == _NO_FILE else ConfigFiles(path, is_named=True)
    usual = _OWN.expanduser()
    own = usual if usual.is_file() else None
    system = _SYSTEM if usual == _account_home() / _OWN.relative_to("~") and _SYSTEM.is_file() else None
    return ConfigFiles(own, system) if own or system else None


def _account_home() -> Path:
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        return Path("~").expanduser()


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise InputError(
            f"cannot read {file}: {error.strerror}", hint="Name another file with --ssh-config."
        ) from error


@contextmanager
def client_for(files: ConfigFiles) -> Iterator["Client"]:
    """Make a client that goes by these files."""
    text, folder = files.text(), new_folder("ssh")
    try:
        # A file, for the client may read it a second time (Match final).
        path = folder / "config"
        path.write_text(text, encoding="utf-8", errors="surrogateescape")
        yield Client(path, str(files.own or files.system))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Client:
    """Asks `ssh -G`. Safe to use from many threads."""

    def __init__(self, file: Path, shown: str) -> None:
        self._file = file
        self._shown = shown

    def ask(self, question: Question) -> Settings:
        """Return what the files set; `InputError`, in the client's own words, where it cannot follow them."""
        defaults = self._defaults
        return {name: value for name, value in self._asked(question).items() if defaults.get(name) != value}

    @cached_property
    def _defaults(self) -> Settings:
        """The client's own, but for two: a host's name is its own, and the usual user is ours."""
        settings = self._asked(Question(NOBODY, "", 0), "none")
        return {name: value for name, value in settings.items() if name not in ("hostname", "user")}

    def _asked(self, question: Question, file: str = "") -> Settings:
        try:
            # In a session of its own: what it has started ends with it, and it can ask nothing on the terminal.
            process = subprocess.Popen(  # noqa: S603 - the name is one that nothing can take for an option
                [CLIENT, "-G", "-T", "-F", file or str(self._file), *question.arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=child_environment(),
                start_new_session=True,
            )
        except OSError as error:
            raise InputError(f"{CLIENT} cannot be run: {error.strerror}") from error
        with process:
            try:
                printed, complaint = process.communicate(timeout=_SECONDS)
            except subprocess.TimeoutExpired as error:
                raise InputError(
                    f"ssh -G {question.name} has no answer after {_SECONDS:.3g} s",
                    hint="Does a Match exec of the configuration wait for something, or CanonicalizeHostname for a "
                    "resolver?",
                ) from error
            finally:
                with suppress(ProcessLookupError):
                    if process.poll() is None:
                        os.killpg(process.pid, signal.SIGKILL)
        if process.returncode:
            raise self._refusal(question, complaint, process.returncode)
        return _settings(printed.decode(errors="surrogateescape"))

    def _refusal(self, question: Question, complaint: bytes, status: int) -> InputError:
        lines = complaint.decode(errors="replace").replace(str(self._file), self._shown).splitlines()[:3]
        return InputError(f"ssh -G {question.name}: {'; '.join(map(printable, lines)) or f'exit status {status}'}")


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
