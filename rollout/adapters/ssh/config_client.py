"""What OpenSSH's own client says of a host: `ssh -G` evaluates its configuration exactly as a connection would.

A process a question (6 ms of CPU). Names are looked up, and the commands of `Match exec` are run, as `ssh` does: they
are the operator's own, and no name gets here that a shell could take for anything but a name.
"""

import os
import pwd
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rollout.adapters.local_files import new_folder
from rollout.adapters.programs import run_program
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


class Client:
    """Asks `ssh -G`. Safe to use from many threads."""

    def __init__(self, file: Path, shown: str) -> None:
        self._file = file
        self._shown = shown
        # The client's own, but for two: a host's name is its own, and the usual user is ours.
        defaults = self._asked(NOBODY, "", 0, "none")
        self._defaults = {name: value for name, value in defaults.items() if name not in ("hostname", "user")}

    def ask(self, name: str, user: str, port: int) -> Settings:
        """Return what the files set for a name that `ssh` could be given, with a user and port unless empty and 0.

        `InputError`, in the client's own words, where it cannot follow them.
        """
        settings = self._asked(name, user, port, str(self._file))
        return {keyword: value for keyword, value in settings.items() if self._defaults.get(keyword) != value}

    def _asked(self, name: str, user: str, port: int, file: str) -> Settings:
        given = [*(("-l", user) if user else ()), *(("-p", str(port)) if port else ())]
        try:
            # The name is behind everything that could be an option.
            done = run_program([CLIENT, "-G", "-T", "-F", file, *given, "--", name], seconds=_SECONDS)
        except OSError as error:
            raise InputError(f"{CLIENT} cannot be run: {error.strerror}") from error
        except subprocess.TimeoutExpired as error:
            raise InputError(
                f"ssh -G {name} has no answer after {_SECONDS:.3g} s",
                hint="Does a Match exec of the configuration wait for something, or its CanonicalizeHostname?",
            ) from error
        if done.returncode:
            lines = done.stderr.decode(errors="replace").replace(str(self._file), self._shown).splitlines()[:3]
            said = "; ".join(map(printable, lines)) or f"exit status {done.returncode}"
            raise InputError(f"ssh -G {name}: {said}")
        return _settings(done.stdout.decode(errors="surrogateescape"))


@contextmanager
def client_for(files: ConfigFiles) -> Iterator[Client]:
    """Make a client that goes by these files."""
    text, folder = files.text(), new_folder("ssh")
    try:
        # A file, for the client may read it a second time (Match final).
        path = folder / "config"
        path.write_text(text, encoding="utf-8", errors="surrogateescape")
        yield Client(path, str(files.own or files.system))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


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
