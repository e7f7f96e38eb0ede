"""What the operator logs in with: key files, decrypted once, their certificates, and the agent's keys.

Where no key file is named, the agent's keys and OpenSSH's default files are tried, as `ssh` does. Nobody is asked for
a passphrase: that of the environment opens a key, or the agent holds it.
"""

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from itertools import islice
from pathlib import Path

import paramiko

from rollout.adapters.ssh.key_sources import agent_keys, read_private_key, read_public_half, with_certificate
from rollout.errors import SshAuthError
from rollout.model.host import Identities

PASSPHRASE_VARIABLE = "ROLLOUT_SSH_KEY_PASSPHRASE"  # noqa: S105 - the name of the variable

_DEFAULT_FILES = ("~/.ssh/id_ed25519", "~/.ssh/id_ecdsa", "~/.ssh/id_rsa")
_NO_FILE = "none"
# sshd ends the connection at the sixth refusal.
_MOST_TRIED = 5
Keys = tuple[paramiko.PKey, ...]


class KeyRing:
    """Private keys by file. Safe to use from many threads; each file is read once, also where that failed."""

    def __init__(self, passphrase: str = "") -> None:
        self.passphrase = passphrase
        self._lock = threading.Lock()
        self._loaded: dict[str, paramiko.PKey | SshAuthError] = {}

    def load(self, file: str) -> paramiko.PKey:
        """Return the key in a file; `SshAuthError` says why it cannot be used."""
        with self._lock:
            if file not in self._loaded:
                try:
                    self._loaded[file] = read_private_key(Path(file).expanduser(), self.passphrase)
                except SshAuthError as error:
                    self._loaded[file] = error
            key = self._loaded[file]
        if isinstance(key, SshAuthError):
            # A fresh one a caller: raising adds the traceback of each thread to the object.
            raise SshAuthError(key.message, hint=key.hint) from key
        return key

    @contextmanager
    def candidates(self, named: str | None, identities: Identities) -> Iterator[Keys]:
        """Keys to try in order: of the named file alone, else of the identities, else the agent's and OpenSSH's own.

        `SshAuthError` where there are files and none of them can be used.
        """
        opened: Keys = ()
        if named:
            identities = replace(identities, files=(named,), only=True)
            with suppress(SshAuthError):
                opened = tuple(_certified(self.load(named), named))
        if opened:
            # the agent is asked where it is needed, and not once a connection
            yield opened
            return
        with agent_keys(identities.agent) as held:
            yield tuple(islice(_distinct(self._any(identities, held)), _MOST_TRIED))

    def _any(self, identities: Identities, held: Keys) -> Iterator[paramiko.PKey]:
        """Yield the agent's keys of the files, the files', and the agent's others."""
        files = [file for file in identities.files or self._usual if file != _NO_FILE]
        of_files = [(key, file) for file in files if (key := _held(file, held)) is not None]
        failures = list[SshAuthError]()
        for file in files:
            try:
                of_files.append((self.load(file), file))
            except SshAuthError as error:
                failures.append(error)
        for key, file in of_files:
            yield from _certified(key, file)
        others = () if identities.only else held
        yield from others
        if failures and not (of_files or others):
            raise failures[0]

    @cached_property
    def _usual(self) -> tuple[str, ...]:
        """OpenSSH's own files that are there: looked for once, and not for each of thousands of hosts."""
        return tuple(file for file in _DEFAULT_FILES if Path(file).expanduser().exists())


def _held(file: str, held: Keys) -> paramiko.PKey | None:
    """Return the agent's key of this file: it needs no passphrase."""
    if not held or (public := read_public_half(Path(file).expanduser())) is None:
        return None
    return next((key for key in held if key.asbytes() == public), None)


def _certified(key: paramiko.PKey, file: str) -> Iterator[paramiko.PKey]:
    """Yield the key with the certificate that lies beside its file, as `ssh` looks for it, and then by itself."""
    if certified := with_certificate(key, Path(f"{file.removesuffix('.pub')}-cert.pub").expanduser()):
        yield certified
    yield key


def _distinct(keys: Iterable[paramiko.PKey]) -> Iterator[paramiko.PKey]:
    """Each key and certificate once: the agent may hold what is on file as well."""
    seen = set[bytes]()
    for key in keys:
        shown = key.public_blob.key_blob if key.public_blob is not None else key.asbytes()
        if shown not in seen:
            seen.add(shown)
            yield key
