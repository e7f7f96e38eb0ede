"""What an OpenSSH client configuration says of hosts: where, as whom, and through what to log in.

OpenSSH's own client is asked what its configuration means: `ssh -G`, a process a question (6 ms of
CPU). It looks names up and runs the commands of `Match exec`, as for a connection: they are the
operator's own, and no name gets here that a shell could take for anything but a name. What flags or
the inventory say goes before it. What cannot be followed and would lead elsewhere, or log in
otherwise, is refused by name where it applies to a host: half of a configuration is worse than
none. Jump hosts are left to the client as well, which follows the same files to them.
"""

import getpass
import os
import pwd
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import NamedTemporaryFile

from rollout.adapters.input_files import read_input
from rollout.adapters.local_files import scratch_for
from rollout.adapters.programs import run_program
from rollout.adapters.ssh.known_hosts import USUAL_FILES
from rollout.errors import InputError
from rollout.model.host import (
    DEFAULT_SSH_PORT,
    DEFAULT_SSH_USER,
    Host,
    HostKeyFiles,
    Identities,
    is_address,
)
from rollout.model.tool_output import last_line

# Ignored, these would send the connection elsewhere, log in with something else, or trust a key
# that is not to be.
_REFUSED = (
    "bindaddress",
    "bindinterface",
    "certificatefile",
    "knownhostscommand",
    "pkcs11provider",
    "proxyusefdpass",
    "revokedhostkeys",
    "securitykeyprovider",
)
_FILE_LISTS = ("userknownhostsfile", "globalknownhostsfile")
_FOLLOWED = (
    *(*_FILE_LISTS, "hostname", "port", "user", "hostkeyalias", "connecttimeout"),
    *("identityfile", "identityagent", "identitiesonly", "proxyjump", "proxycommand"),
)
_OFF = ("none", "no", "internal")
_NONE = "none"
# So many take a second or two.
_MANY = 200
_WAY_OUT = (
    "Have OpenSSH itself connect: --executor ansible. Or give rollout a configuration without it:"
    " --ssh-config FILE, or none."
)
_NO_CLIENT = "Install it (openssh-client), or go without: --ssh-config none."
# These become words of a local command, and addresses come from the cluster.
_SAFE = re.compile(r"[A-Za-z0-9_:][A-Za-z0-9_.:-]*")
_USER = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9_.@+-]*)?")
_TOKEN = re.compile(r"%(.?)")


# Keywords in lower case with their values: those that the configuration sets to something else than
# the default.
Settings = Mapping[str, tuple[str, ...]]

_CLIENT = "ssh"
_OWN = Path("~/.ssh/config")
_SYSTEM = Path("/etc/ssh/ssh_config")
# As `ssh -F none`.
NO_FILE = Path("none")
# With more dots than CanonicalizeHostname completes.
_NOBODY = "no.such.host.of.rollout.invalid"
_SECONDS = 15.0
_LONGEST = 300
# The client prints lists of files without quotes: one begins where a word begins as a path does.
_NEXT_FILE = re.compile(r" (?=[/~])")


def with_ssh_config(
    hosts: Mapping[str, Host], path: Path | None, announce: Callable[[str], None] = lambda _: None
) -> Mapping[str, Host]:
    """Return the hosts as the file has them reached; `InputError` where it cannot be followed.

    `path` None stands for the files that `ssh` goes by. An empty user and port 0 are those that
    nobody has told: the configuration's, else all defaults. What takes seconds, or does not count,
    is announced.
    """
    files = config_files(path)
    unconfigured = {
        name: replace(host, port=host.port or DEFAULT_SSH_PORT, user=host.user or DEFAULT_SSH_USER)
        for name, host in hosts.items()
    }
    if files is None:
        return unconfigured
    if shutil.which(_CLIENT) is None:
        if path is not None:
            raise InputError(
                f"--ssh-config {path} needs OpenSSH's client, which is not installed",
                hint=_NO_CLIENT,
            )
        announce(f"{files} does not count: OpenSSH's client (ssh) is not installed")
        return unconfigured
    asked = {name: host for name, host in hosts.items() if host.address}
    for host in asked.values():
        _check_words(host)
    if len(asked) >= _MANY:
        announce(f"asking ssh what {files} means for {len(asked)} hosts, which may take seconds")
    with (
        scratch_for("ssh"),
        NamedTemporaryFile("w", encoding="utf-8", errors="surrogateescape") as file,
    ):
        # A file, for the client may read it a second time (Match final).
        file.write(files.text())
        file.flush()
        return {
            **unconfigured,
            **_configured(asked, Client(Path(file.name), str(files.own or files.system)), files),
        }


@dataclass(frozen=True)
class ConfigFiles:
    """The files that count: the one that is named or the account's, and the system's; None where they do not."""

    own: Path | None
    system: Path | None = None

    def __str__(self) -> str:
        """For messages."""
        return ", ".join(str(file) for file in (self.own, self.system) if file)

    @property
    def arguments(self) -> tuple[str, ...]:
        """What makes a client that we start go by them."""
        return ("-F", str(self.own.resolve())) if self.own and not self.system else ()

    def text(self) -> str:
        """Return what they say, with our own default behind it all; `InputError` where the named one cannot be read."""
        try:
            # As it is: an Include would have its permissions looked at, unlike -F.
            own = read_input(self.own).decode(errors="surrogateescape") if self.own else ""
        except OSError as error:
            hint = "Name another file with --ssh-config."
            raise InputError(f"cannot read {self.own}: {error.strerror}", hint=hint) from error
        system = f'Host *\nInclude "{self.system}"\n' if self.system else ""
        return f"{own}\n{system}Host *\nUser {DEFAULT_SSH_USER}\n"


def config_files(path: Path | None) -> ConfigFiles | None:
    """Return the file that is named; where none is, those that `ssh` goes by; None where no file counts.

    `ssh` looks for the account's home; where HOME is another folder, as in a container or under
    sudo, the file there counts, and alone.
    """
    if path is not None:
        return None if path == NO_FILE else ConfigFiles(path)
    usual = _OWN.expanduser()
    own = usual if usual.is_file() else None
    system = (
        _SYSTEM if usual == _account_home() / _OWN.relative_to("~") and _SYSTEM.is_file() else None
    )
    return ConfigFiles(own, system) if own or system else None


def _account_home() -> Path:
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        # as pods on clusters that give each namespace a uid of its own: the client refuses all work
        # then
        return NO_FILE


class Client:
    """Asks `ssh -G`. Safe to use from many threads."""

    def __init__(self, file: Path, shown: str) -> None:
        self._file = file
        self._shown = shown
        # The client's own, but for two: a host's name is its own, and the usual user is ours.
        defaults = self._asked(_NOBODY, "", 0, "none")
        self._defaults = {
            name: value for name, value in defaults.items() if name not in ("hostname", "user")
        }

    def ask(self, name: str, user: str, port: int) -> Settings:
        """Return what the files set for a name that `ssh` could be given, with a user and port unless empty and 0.

        `InputError`, in the client's own words, where it cannot follow them.
        """
        settings = self._asked(name, user, port, str(self._file))
        return {
            keyword: value
            for keyword, value in settings.items()
            if self._defaults.get(keyword) != value
        }

    def _asked(self, name: str, user: str, port: int, file: str) -> Settings:
        given = [*(("-l", user) if user else ()), *(("-p", str(port)) if port else ())]
        try:
            # The name is behind everything that could be an option.
            done = run_program(
                [_CLIENT, "-G", "-T", "-F", file, *given, "--", name], seconds=_SECONDS
            )
        except OSError as error:
            raise InputError(f"{_CLIENT} cannot be run: {error.strerror}") from error
        except subprocess.TimeoutExpired as error:
            raise InputError(
                f"ssh -G {name} has no answer after {_SECONDS:.3g} s",
                hint=(
                    "Does a Match exec of the configuration wait for something, or its"
                    " CanonicalizeHostname?"
                ),
            ) from error
        if done.returncode:
            printed = done.stderr.decode(errors="replace").replace(str(self._file), self._shown)
            said = last_line(printed, _LONGEST) or f"exit status {done.returncode}"
            raise InputError(
                f"ssh -G {name}: {said}", hint="Mend it, or go without: --ssh-config none."
            )
        return _settings(done.stdout.decode(errors="surrogateescape"))


def _settings(printed: str) -> Settings:
    settings: dict[str, tuple[str, ...]] = {}
    for line in printed.splitlines():
        keyword, _, value = line.partition(" ")
        settings[keyword] = (*settings.get(keyword, ()), value)
    for keyword in _FILE_LISTS:
        settings[keyword] = tuple(_NEXT_FILE.split(" ".join(settings.get(keyword, ()))))
    return settings


def _check_words(host: Host) -> None:
    if not is_address(host.address):
        raise InputError(
            f"{host.name}: {host.address!a} is not a host name: ssh is not asked about it"
        )
    if not _USER.fullmatch(host.user):
        raise InputError(
            f"{host.name}: user {host.user!a} has characters that a shell would take for its own"
        )


def _configured(hosts: Mapping[str, Host], client: Client, files: ConfigFiles) -> dict[str, Host]:
    logins = {(host.user, host.port) for host in hosts.values()}
    usual = {(user, port): client.ask(_NOBODY, user, port) for user, port in logins}

    def configure(host: Host) -> Host:
        name, settings = _asked(host, client, usual[host.user, host.port])
        if refused := [
            keyword for keyword in _REFUSED if _value(settings, keyword, _NONE) not in _OFF
        ]:
            raise InputError(
                f"{files} sets {refused[0]} for {host.name}, which is not supported", hint=_WAY_OUT
            )
        try:
            return _reached(host, name, settings, files)
        except InputError as error:
            raise InputError(
                f"{files}, for {host.name}: {error.message}", hint=error.hint
            ) from error

    with ThreadPoolExecutor(2 * (os.cpu_count() or 1)) as pool:
        return dict(zip(hosts, pool.map(configure, hosts.values()), strict=True))


def _asked(host: Host, client: Client, usual: Settings) -> tuple[str, Settings]:
    """Return what counts for this host: a block that speaks of its name goes before one that speaks of its address."""
    if is_address(host.name) and host.name != host.address:
        # What is wrong with the files is told of the address as well; the name may be one that only
        # the cluster knows.
        with suppress(InputError):
            if _differs(settings := client.ask(host.name, host.user, host.port), usual, host.name):
                return host.name, settings
    return host.address, client.ask(host.address, host.user, host.port)


def _differs(settings: Settings, usual: Settings, name: str) -> bool:
    """Whether they say of the name what they do not say of one that nobody has."""
    return any(
        [value.lower() for value in settings.get(keyword, ())]
        != [value.replace(_NOBODY, name).lower() for value in usual.get(keyword, ())]
        for keyword in (*_FOLLOWED, *_REFUSED)
    )


def _reached(host: Host, asked: str, settings: Settings, files: ConfigFiles) -> Host:
    address = _value(settings, "hostname", asked)
    reached = replace(
        host,
        # A name of the cluster's without a HostName is no address: the cluster says what is.
        address=host.address if asked == host.name == address else address,
        port=host.port or int(_value(settings, "port", str(DEFAULT_SSH_PORT))),
        user=host.user or _value(settings, "user", DEFAULT_SSH_USER),
        known_as=_value(settings, "hostkeyalias").lower(),
        connect_timeout=int(_value(settings, "connecttimeout", "0")) or None,
    )
    # What stands for `%h` and the like.
    tokens = {
        "%": "%",
        "d": str(Path.home()),
        "h": reached.address,
        "n": asked,
        "p": str(reached.port),
        "r": reached.user,
        "u": getpass.getuser(),
    }
    return replace(
        reached,
        known_hosts=_known_hosts(settings),
        identities=_identities(settings, tokens),
        proxy=_proxy(reached, settings, files, tokens),
    )


def _value(settings: Settings, keyword: str, default: str = "") -> str:
    return settings.get(keyword, (default,))[0]


def _known_hosts(settings: Settings) -> HostKeyFiles | None:
    """Return the files of each kind, or none of it; None where the configuration does not say.

    They are printed with their tokens put in: what is still a % stands for itself.
    """
    if not any(keyword in settings for keyword in _FILE_LISTS):
        return None
    own, system = (
        tuple(
            str(Path(file).expanduser()) for file in settings.get(keyword, usual) if file != _NONE
        )
        for keyword, usual in zip(_FILE_LISTS, (USUAL_FILES.own, USUAL_FILES.system), strict=True)
    )
    return HostKeyFiles(own, system)


def _expanded(text: str, tokens: Mapping[str, str]) -> str:
    """Return the text with `%h` and the like; `InputError` where one of them stands for nothing."""

    def value(match: re.Match[str]) -> str:
        if match[1] not in tokens:
            raise InputError(f"{match[0]} in {text!a} is not supported", hint=_WAY_OUT)
        return tokens[match[1]]

    return _TOKEN.sub(value, text)


def _file(text: str, tokens: Mapping[str, str]) -> str:
    if "${" in text:
        raise InputError(f"the variable in {text!a} is not supported", hint=_WAY_OUT)
    return str(Path(_expanded(text, tokens)).expanduser())


def _identities(settings: Settings, tokens: Mapping[str, str]) -> Identities:
    files = tuple(_file(file, tokens) for file in settings.get("identityfile", ()))
    return Identities(
        # Of none alone something is left: not even the usual files are to be tried.
        files=tuple(file for file in files if file != _NONE) or files[:1],
        agent=_agent(_value(settings, "identityagent", "SSH_AUTH_SOCK"), tokens),
        only=_value(settings, "identitiesonly") in ("yes", "true"),
    )


def _agent(value: str, tokens: Mapping[str, str]) -> str | None:
    if value == "SSH_AUTH_SOCK":
        return None
    if value == _NONE:
        return ""
    return os.environ.get(value[1:], "") if re.fullmatch(r"\$\w+", value) else _file(value, tokens)


def _proxy(
    host: Host, settings: Settings, files: ConfigFiles, tokens: Mapping[str, str]
) -> tuple[str, ...]:
    """Return the local command whose input and output are the connection; none where the host is reached directly."""
    jump, command = (_value(settings, keyword, _NONE) for keyword in ("proxyjump", "proxycommand"))
    if jump == command == _NONE:
        return ()
    for word in (tokens["n"], host.address, host.user):
        if not _SAFE.fullmatch(word):
            raise InputError(f"{word!a} may not be part of the command that it is reached by")
    # What else begins with a $ is the shell's.
    way = _expanded(command if jump == _NONE else jump, tokens)
    if jump == _NONE:
        return ("/bin/sh", "-c", f"exec {way}")
    *through, last = (hop.strip() for hop in way.split(","))
    chain = ("-J", ",".join(through)) if through else ()
    # As ssh's command line takes a jump host: as a URI.
    hop = last if last.startswith("ssh://") else f"ssh://{last}"
    target = f"[{host.address}]:{host.port}"
    return (_CLIENT, *files.arguments, "-o", "BatchMode=yes", *chain, "-W", target, "--", hop)
