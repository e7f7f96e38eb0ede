"""What the operator logs in with: key files, decrypted once, their certificates, and the agent's keys.

Where no key file is named, the agent's keys and OpenSSH's default files are tried, as `ssh` does. Passphrases are asked
for on a terminal alone: where there is none, a job in the night would wait for ever.
"""

import copy
import getpass
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from itertools import chain, islice
from pathlib import Path

import paramiko

from rollout.adapters.ssh.key_sources import (
    HeldKey,
    LockedKeyError,
    agent_keys,
    certified_key,
    read_private_key,
    read_public_half,
    read_user_certificate,
)
from rollout.errors import SshAuthError
from rollout.model.host import Identities

PASSPHRASE_VARIABLE = "ROLLOUT_SSH_KEY_PASSPHRASE"  # noqa: S105 - the name of the variable

Ask = Callable[[Path], str | None]

_DEFAULT_FILES = ("~/.ssh/id_ed25519", "~/.ssh/id_ecdsa", "~/.ssh/id_rsa")
_NO_FILE = "none"
# sshd ends the connection at the sixth refusal.
_MOST_TRIED = 5
_MOST_ASKED = 3
Keys = tuple[paramiko.PKey, ...]


def ask_on_terminal(file: Path) -> str | None:
    """Return what the operator enters for this key, unseen; None where nothing is entered or nobody can be asked."""
    if not sys.stdin.isatty():
        return None
    try:
        with warnings.catch_warnings():
            # Rather no passphrase than one that everybody can read on the screen.
            warnings.simplefilter("error", getpass.GetPassWarning)
            return getpass.getpass(f"Passphrase for {file}: ") or None
    except (EOFError, OSError, getpass.GetPassWarning):
        return None


class KeyRing:
    """Private keys by file. Safe to use from many threads; each file is read once, also where that failed.

    `passphrases` are tried on every key that wants one; then `ask` is, if there is anybody to ask.
    """

    def __init__(self, passphrases: Iterable[str] = (), ask: Ask | None = None) -> None:
        self._passphrases = [passphrase for passphrase in passphrases if passphrase]
        self._ask = ask
        self._lock = threading.Lock()
        self._loaded: dict[str, paramiko.PKey | SshAuthError] = {}
        self._unasked: set[str] = set()

    @property
    def passphrases(self) -> tuple[str, ...]:
        """Those that were given, and those that were entered."""
        return tuple(self._passphrases)

    def load(self, file: str, *, may_ask: bool = True) -> paramiko.PKey:
        """Return the key in a file; `SshAuthError` says why it cannot be used."""
        # Held while somebody is asked: nobody wants to enter one passphrase for each thread.
        with self._lock:
            if file not in self._loaded or (may_ask and file in self._unasked):
                self._loaded[file] = self._read(file, may_ask=may_ask)
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
        if named and (key := self._open(named)) is not None:
            yield tuple(_certified(key, named))
            return
        with agent_keys(identities.agent) as held:
            candidates = (
                _certified(_held(named, held) or self.load(named), named) if named else self._any(identities, held)
            )
            yield tuple(islice(_distinct(candidates), _MOST_TRIED))

    def _open(self, file: str) -> paramiko.PKey | None:
        """Return the key where it opens without a question."""
        with suppress(SshAuthError):
            return self.load(file, may_ask=False)
        return None

    def _any(self, identities: Identities, held: Keys) -> Iterator[paramiko.PKey]:
        """Yield what needs no question first; without any of that, ask the operator."""
        files = tuple(file for file in identities.files or self._usual if file != _NO_FILE)
        has_candidate = False
        for key, file in self._ready(files, held):
            has_candidate = True
            yield from _certified(key, file)
        for key in () if identities.only else held:
            has_candidate = True
            yield key
        if not has_candidate:
            yield from self._asked_for(files)

    @cached_property
    def _usual(self) -> tuple[str, ...]:
        """OpenSSH's own files that are there: looked for once, and not for each of thousands of hosts."""
        return tuple(file for file in _DEFAULT_FILES if Path(file).expanduser().exists())

    def _ready(self, files: tuple[str, ...], held: Keys) -> Iterator[tuple[paramiko.PKey, str]]:
        for file in files:
            if (key := _held(file, held)) is not None:
                yield key, file
        for file in files:
            if (key := self._open(file)) is not None:
                yield key, file

    def _asked_for(self, files: tuple[str, ...]) -> Iterator[paramiko.PKey]:
        failures = []
        for file in files:
            try:
                yield from _certified(self.load(file), file)
            except SshAuthError as error:
                failures.append(error)
            else:
                return
        if failures:
            raise failures[0]

    def _read(self, file: str, *, may_ask: bool) -> paramiko.PKey | SshAuthError:
        path = Path(file).expanduser()
        self._unasked.discard(file)
        try:
            return read_private_key(path, None)
        except LockedKeyError:
            if not may_ask:
                self._unasked.add(file)
            return self._unlocked(path, may_ask=may_ask)
        except SshAuthError as error:
            return error

    def _unlocked(self, file: Path, *, may_ask: bool) -> paramiko.PKey | SshAuthError:
        tried = False
        for passphrase in chain(self.passphrases, self._entered(file) if may_ask else ()):
            tried = True
            with suppress(LockedKeyError):
                key = read_private_key(file, passphrase)
                if passphrase not in self._passphrases:
                    self._passphrases.append(passphrase)
                return key
        if not tried:
            return SshAuthError(
                f"key file {file}: it is encrypted", hint=f"Set {PASSPHRASE_VARIABLE}, or use ssh-agent."
            )
        return SshAuthError(
            f"key file {file}: the passphrase does not open it",
            hint=f"It comes from {PASSPHRASE_VARIABLE}, or was entered.",
        )

    def _entered(self, file: Path) -> Iterator[str]:
        for _ in range(_MOST_ASKED):
            passphrase = self._ask(file) if self._ask is not None else None
            if passphrase is None:
                return
            yield passphrase


def _held(file: str, held: Keys) -> paramiko.PKey | None:
    """Return the agent's key of this file: it needs no passphrase."""
    if not held or (public := read_public_half(Path(file).expanduser())) is None:
        return None
    return next((key for key in held if key.asbytes() == public), None)


def _certified(key: paramiko.PKey, file: str) -> Iterator[paramiko.PKey]:
    """Yield the key with the certificate that lies beside its file, as `ssh` looks for it, and then by itself."""
    path = Path(f"{file.removesuffix('.pub')}-cert.pub").expanduser()
    if path.is_file():
        certificate = read_user_certificate(path)
        if certified_key(certificate) == key.asbytes():
            with_it = _copied(key)
            # Logging in looks for a certificate here, whatever the annotation says.
            with_it.public_blob = certificate
            yield with_it
    yield key


def _copied(key: paramiko.PKey) -> paramiko.PKey:
    # The agent's keys look up attributes in a way that copying does not survive.
    return HeldKey(key.agent, key.blob, key.comment) if isinstance(key, HeldKey) else copy.copy(key)


def _distinct(keys: Iterable[paramiko.PKey]) -> Iterator[paramiko.PKey]:
    """Each key and certificate once: the agent may hold what is on file as well."""
    seen = set[bytes]()
    for key in keys:
        shown = key.public_blob.key_blob if key.public_blob is not None else key.asbytes()
        if shown not in seen:
            seen.add(shown)
            yield key
