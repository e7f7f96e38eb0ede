"""Which OpenSSH client configuration counts, and whether it says anything of where connections lead."""

import os
import pwd
import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from rollout.adapters.ssh.config_text import Line, names, read_lines

CLIENT = "ssh"
_FILE = Path("~/.ssh/config")
_SYSTEM = Path("etc/ssh/ssh_config")
# As `ssh -F none`.
_NO_FILE = Path("none")
# What has no say in where a connection leads, how it logs in and whom it trusts.
_SAYS_NOTHING = re.compile(
    r"""host | match | include | ignoreunknown
    | addkeystoagent | batchmode | casignaturealgorithms | ciphers | compression | connectionattempts
    | control(?:master|path|persist) | escapechar | fingerprinthash | forwardagent | forwardx11(?:timeout|trusted)?
    | gssapi\w+ | hashknownhosts | hostkeyalgorithms | ipqos | kexalgorithms | loglevel | macs | passwordauthentication
    | pubkeyaccepted(?:algorithms|keytypes) | rekeylimit | requiredrsasize | rsaminsize | sendenv | setenv
    | serveralive(?:countmax|interval) | stricthostkeychecking | tcpkeepalive | updatehostkeys | usekeychain
    | visualhostkey | xauthlocation""",
    re.VERBOSE,
)


@dataclass(frozen=True)
class Source:
    """The files to go by, those of the system among them, and the arguments that make OpenSSH's client read them."""

    files: tuple[Path, ...]
    system: tuple[Path, ...] = ()
    arguments: tuple[str, ...] = ()

    def __str__(self) -> str:
        """For messages."""
        return ", ".join(str(file) for file in self.files)

    @cached_property
    def lines(self) -> tuple[Line, ...]:
        """What they say; `InputError` where one of them cannot be read."""
        return read_lines(self.files, self.system)

    @property
    def says_nothing(self) -> bool:
        """Whether nothing in them matters to a connection; a keyword that is not known here may."""
        return all(_SAYS_NOTHING.fullmatch(line.keyword) for line in self.lines)

    def names(self, name: str) -> bool:
        """Whether a block speaks of this name, rather than of all."""
        return names(self.lines, name)


def source(path: Path | None) -> Source:
    """The file that is named, or none; where none is named, those that `ssh` goes by.

    `ssh` looks for the account's home; where HOME is another folder, as in a container or under sudo, the file there
    counts, and alone.
    """
    if path is not None:
        return Source(()) if path == _NO_FILE else _one(path)
    own = _FILE.expanduser()
    if own != _account_home() / _FILE.relative_to("~"):
        return _one(own) if own.is_file() else Source(())
    system = tuple(_existing(_system_files()))
    return Source((*_existing((own,)), *system), system)


def _one(file: Path) -> Source:
    return Source((file,), arguments=("-F", str(file.resolve())))


def _existing(files: Iterable[Path]) -> Iterable[Path]:
    return (file for file in files if file.is_file())


def _account_home() -> Path:
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        return Path("~").expanduser()


def _system_files() -> tuple[Path, ...]:
    """The system's file, of the client that is part of the system and of one that is installed elsewhere."""
    client = shutil.which(CLIENT)
    elsewhere = Path(client).parent.parent / _SYSTEM if client else Path("/") / _SYSTEM
    return tuple(dict.fromkeys((Path("/") / _SYSTEM, elsewhere)))
