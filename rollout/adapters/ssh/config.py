"""Applies an OpenSSH client configuration to hosts.

`ssh -G` evaluates it, once for all hosts that it treats alike. Unsupported options are refused if
they matter.
"""

import getpass
import os
import pwd
import re
import shutil
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile

from msgspec import Struct
from msgspec.structs import replace

from rollout.adapters.input_files import Trust, read_input
from rollout.adapters.input_trust import hint_of
from rollout.adapters.local_files import needing_temporary_folder
from rollout.adapters.ssh.known_hosts import USUAL_FILES
from rollout.adapters.ssh.openssh import (
    FILE_LISTS,
    NO_VALUE,
    NOBODY,
    PROGRAM,
    Client,
    Settings,
)
from rollout.errors import InputError
from rollout.model.host import (
    DEFAULT_SSH_PORT,
    DEFAULT_SSH_USER,
    Host,
    HostKeyFiles,
    Identities,
    is_address_or_name,
)

# These change the connection, login or host keys' check.
_REFUSED = (
    *("bindaddress", "bindinterface", "certificatefile", "knownhostscommand"),
    *("pkcs11provider", "proxyusefdpass", "revokedhostkeys", "securitykeyprovider"),
)
_FOLLOWED = (
    *(*FILE_LISTS, "hostname", "port", "user", "hostkeyalias", "connecttimeout"),
    *("identityfile", "identityagent", "identitiesonly", "proxyjump", "proxycommand"),
)
_OFF_VALUES = ("none", "no", "internal")
# So many runs of ssh take seconds.
_SLOW_FROM = 200
_UNSUPPORTED_HINT = (
    "Use OpenSSH with --executor ansible. Or use a configuration without this option with"
    " --ssh-config FILE, or no configuration with --ssh-config none."
)
_NO_CLIENT = "Install openssh-client, or ignore the configuration: --ssh-config none."
# Values from outside, which may become words of a local command.
_UNTRUSTED_TOKENS = frozenset("nhr")
_SAFE_IN_COMMAND = re.compile(r"[A-Za-z0-9_:][A-Za-z0-9_.:-]*")
_USER = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9_.@+-]*)?")
_TOKEN = re.compile(r"%(.?)")
_JUMP = re.compile(
    r"(?:(?P<user>.+)@)?(?:\[(?P<address>[^]]+)\]|(?P<name>[^]@:/[]+))(?::(?P<port>[0-9]+))?"
)

_OWN_FILE = Path("~/.ssh/config")
_SYSTEM_FILE = Path("/etc/ssh/ssh_config")
# As in `ssh -F none`.
NO_FILE = Path("none")


def with_ssh_config(
    hosts: Mapping[str, Host],
    path: Path | None,
    announce: Callable[[str], None] = lambda _: None,
    *,
    from_inventory: bool = False,
) -> Mapping[str, Host]:
    """Return the hosts with settings, or raise `InputError`.

    `path` None means ssh's own files. Only an empty user, port 0 and the address are replaced, but
    no address `from_inventory`.
    """
    files = config_files(path)
    with_defaults = {name: _with_defaults(host) for name, host in hosts.items()}
    if files is None:
        return with_defaults
    if shutil.which(PROGRAM) is None:
        if path is not None:
            message = f"--ssh-config {path} needs OpenSSH's client, which is not installed"
            raise InputError(message, hint=_NO_CLIENT)
        announce(f"{files} is ignored: OpenSSH's client (ssh) is not installed")
        return with_defaults
    with_address = {name: host for name, host in hosts.items() if host.address}
    evaluated = _with_evaluated_settings(
        with_address, files, announce, from_inventory=from_inventory
    )
    return {**with_defaults, **evaluated}


def _with_defaults(host: Host) -> Host:
    port = host.port or DEFAULT_SSH_PORT
    return replace(host, port=port, user=host.user or DEFAULT_SSH_USER)


class ConfigFiles(Struct, frozen=True):
    """Files of an OpenSSH client configuration."""

    # The operator's, else ~/.ssh/config.
    own: Path | None
    system: Path | None = None
    trust: Trust = Trust.NOT_WRITABLE_BY_OTHERS

    def __str__(self) -> str:
        return ", ".join(str(file) for file in (self.own, self.system) if file)

    @property
    def arguments(self) -> tuple[str, ...]:
        """Return arguments to make `ssh` read the same files."""
        return ("-F", str(self.own.resolve())) if self.own and not self.system else ()

    def read_text(self) -> str:
        """Return the own file's text, which includes the system's.

        Its last lines set the default user. Raises `InputError`.
        """
        try:
            # ssh -F checks only the files that this one includes.
            content = read_input(self.own, trust=self.trust) if self.own else b""
        except OSError as error:
            hint = hint_of(error, "Specify another file with --ssh-config.")
            raise InputError(f"cannot read {self.own}: {error.strerror}", hint=hint) from error
        own = content.decode(errors="surrogateescape")
        system = f'Host *\nInclude "{self.system}"\n' if self.system else ""
        return f"{own}\n{system}Host *\nUser {DEFAULT_SSH_USER}\n"


def config_files(path: Path | None) -> ConfigFiles | None:
    """Return the named file, else those that `ssh` reads, or None.

    `ssh` uses the account's home. If HOME is another folder, only its file counts.
    """
    if path is not None:
        return None if path == NO_FILE else ConfigFiles(path)
    own_file = _OWN_FILE.expanduser()
    is_home_of_account = Path.home() == _account_home()
    own = own_file if own_file.is_file() else None
    system = _SYSTEM_FILE if is_home_of_account and _SYSTEM_FILE.is_file() else None
    return ConfigFiles(own, system, Trust.OWNED) if own or system else None


def _account_home() -> Path | None:
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        # ssh then refuses to work.
        return None


def _with_evaluated_settings(
    hosts: Mapping[str, Host],
    files: ConfigFiles,
    announce: Callable[[str], None],
    *,
    from_inventory: bool,
) -> dict[str, Host]:
    for host in hosts.values():
        _check_address_and_user(host)
    # Even without hosts, an unreadable file is an error.
    configuration = files.read_text().encode(errors="surrogateescape")
    if not hosts:
        return {}
    with needing_temporary_folder("ssh"), NamedTemporaryFile() as copy:
        # `Match final` has ssh read it twice, so not a pipe.
        copy.write(configuration)
        copy.flush()
        name_in_messages = str(files.own or files.system)
        client = Client(Path(copy.name), name_in_messages)
        return _configure_hosts(hosts, client, files, announce, from_inventory=from_inventory)


def _check_address_and_user(host: Host) -> None:
    if not is_address_or_name(host.address):
        message = f"{host.name}: {host.address!a} is not a host name or address"
        raise InputError(message)
    if not _USER.fullmatch(host.user):
        message = f"{host.name}: user {host.user!a} contains characters that are special to a shell"
        raise InputError(message)


def _configure_hosts(
    hosts: Mapping[str, Host],
    client: Client,
    files: ConfigFiles,
    announce: Callable[[str], None],
    *,
    from_inventory: bool,
) -> dict[str, Host]:
    logins = dict.fromkeys((host.user, host.port) for host in hosts.values())
    # ssh reads included files even in blocks that do not match.
    any_user, any_port = next(iter(logins))
    client.learn_patterns(any_user, any_port)
    # No line names NOBODY, so this is what the files set for every host.
    common_settings = {(user, port): client.ask(NOBODY, user, port) for user, port in logins}
    runs = client.count_runs(host.address for host in hosts.values())
    if runs >= _SLOW_FROM:
        announce(f"ssh evaluates {files} for {runs} hosts, which may take seconds")

    def configure(host: Host) -> Host:
        common = common_settings[host.user, host.port]
        asked_name, settings = _ask_about_host(host, client, common)
        asked_by_node_name = asked_name != host.address
        if from_inventory and asked_by_node_name:
            # As in `ssh -o HostName=ADDRESS NAME`.
            settings = {**settings, "hostname": (host.address,)}
        return _configure_host(host, asked_name, settings, files)

    with ThreadPoolExecutor(2 * (os.cpu_count() or 1)) as pool:
        return dict(zip(hosts, pool.map(configure, hosts.values()), strict=True))


def _configure_host(host: Host, asked_name: str, settings: Settings, files: ConfigFiles) -> Host:
    """`asked_name` is the Node's name or the address."""
    for keyword in _REFUSED:
        if _first_value(settings, keyword, NO_VALUE) not in _OFF_VALUES:
            message = f"{files} sets {keyword} for {host.name}, which is not supported"
            raise InputError(message, hint=_UNSUPPORTED_HINT)
    try:
        return _with_settings(host, asked_name, settings, files)
    except InputError as error:
        message = f"{files}, for {host.name}: {error.message}"
        raise InputError(message, hint=error.hint) from error


def _ask_about_host(host: Host, client: Client, common: Settings) -> tuple[str, Settings]:
    """Ask about the name, or if the files do not mention it, the address.

    Returns which, with its settings.
    """
    # Other names might be options of ssh.
    may_ask_about_name = is_address_or_name(host.name) and host.name != host.address
    if may_ask_about_name:
        settings: Settings | None = None
        # Asking about the address fails, too, and raises the error.
        with suppress(InputError):
            settings = client.ask(host.name, host.user, host.port)
        if settings is not None and _has_own_settings(host.name, settings, common):
            return host.name, settings
    return host.address, client.ask(host.address, host.user, host.port)


def _has_own_settings(name: str, settings: Settings, common: Settings) -> bool:
    for keyword in (*_FOLLOWED, *_REFUSED):
        values = [value.lower() for value in settings.get(keyword, ())]
        # Values may repeat the asked name.
        common_values = [value.replace(NOBODY, name).lower() for value in common.get(keyword, ())]
        if values != common_values:
            return True
    return False


def _with_settings(host: Host, asked_name: str, settings: Settings, files: ConfigFiles) -> Host:
    hostname = _first_value(settings, "hostname", asked_name)
    # Without a HostName, ssh repeats the Node's name, which may not resolve.
    repeats_node_name = asked_name == host.name and hostname == host.name
    configured = replace(
        host,
        address=host.address if repeats_node_name else hostname,
        port=host.port or int(_first_value(settings, "port", str(DEFAULT_SSH_PORT))),
        user=host.user or _first_value(settings, "user", DEFAULT_SSH_USER),
        known_as=_first_value(settings, "hostkeyalias").lower(),
        connect_timeout=int(_first_value(settings, "connecttimeout", "0")) or None,
    )
    tokens = _tokens(configured, asked_name)
    return replace(
        configured,
        known_hosts=_known_hosts_files(settings),
        identities=_identities(settings, tokens),
        proxy=_proxy_command(settings, files, tokens),
    )


def _tokens(host: Host, asked_name: str) -> Mapping[str, str]:
    return {
        "%": "%",
        "d": str(Path.home()),
        "h": host.address,
        "n": asked_name,
        "p": str(host.port),
        "r": host.user,
        "u": getpass.getuser(),
    }


def _first_value(settings: Settings, keyword: str, default: str = "") -> str:
    return settings.get(keyword, (default,))[0]


def _known_hosts_files(settings: Settings) -> HostKeyFiles | None:
    """Return the named files, or None if none is named.

    ssh has replaced their tokens.
    """
    if not any(keyword in settings for keyword in FILE_LISTS):
        return None
    return HostKeyFiles(
        _expand_home(settings.get("userknownhostsfile", USUAL_FILES.own)),
        _expand_home(settings.get("globalknownhostsfile", USUAL_FILES.system)),
    )


def _expand_home(files: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(str(Path(file).expanduser()) for file in files if file != NO_VALUE)


def _expand(text: str, tokens: Mapping[str, str]) -> str:
    def value_of_token(match: re.Match[str]) -> str:
        token = match[0]
        letter = match[1]
        if letter not in tokens:
            raise InputError(f"{token} in {text!a} is not supported", hint=_UNSUPPORTED_HINT)
        return tokens[letter]

    return _TOKEN.sub(value_of_token, text)


def _expand_in_command(text: str, tokens: Mapping[str, str]) -> str:
    for letter in _TOKEN.findall(text):
        if letter not in _UNTRUSTED_TOKENS:
            continue
        value = tokens[letter]
        if not _SAFE_IN_COMMAND.fullmatch(value):
            raise InputError(f"{value!a} cannot be used in a ProxyCommand or ProxyJump")
    return _expand(text, tokens)


def _expand_file(text: str, tokens: Mapping[str, str]) -> str:
    if "${" in text:
        raise InputError(f"the variable in {text!a} is not supported", hint=_UNSUPPORTED_HINT)
    return str(Path(_expand(text, tokens)).expanduser())


def _identities(settings: Settings, tokens: Mapping[str, str]) -> Identities:
    values = tuple(_expand_file(file, tokens) for file in settings.get("identityfile", ()))
    files = tuple(file for file in values if file != NO_VALUE)
    only_none_is_set = bool(values) and not files
    return Identities(
        # The default ones, which `IdentityFile none` forbids, would be used.
        files=(NO_VALUE,) if only_none_is_set else files,
        agent=_agent_socket(_first_value(settings, "identityagent", "SSH_AUTH_SOCK"), tokens),
        only=_first_value(settings, "identitiesonly") in ("yes", "true"),
    )


def _agent_socket(value: str, tokens: Mapping[str, str]) -> str | None:
    """Return the socket; None for SSH_AUTH_SOCK's, empty for no agent."""
    if value == "SSH_AUTH_SOCK":
        return None
    if value == NO_VALUE:
        return ""
    names_variable = re.fullmatch(r"\$\w+", value)
    if names_variable:
        return os.environ.get(value.removeprefix("$"), "")
    return _expand_file(value, tokens)


def _proxy_command(
    settings: Settings, files: ConfigFiles, tokens: Mapping[str, str]
) -> tuple[str, ...]:
    """Return a command that is the connection; empty for a direct one."""
    jump = _first_value(settings, "proxyjump", NO_VALUE)
    command = _first_value(settings, "proxycommand", NO_VALUE)
    if jump == NO_VALUE:
        if command == NO_VALUE:
            return ()
        return ("/bin/sh", "-c", f"exec {_expand_in_command(command, tokens)}")
    jumps = _expand_in_command(jump, tokens).split(",")
    *earlier_jumps, last_jump = (name.strip() for name in jumps)
    jump_option = ("-J", ",".join(earlier_jumps)) if earlier_jumps else ()
    forward_option = ("-W", _expand_in_command("[%h]:%p", tokens))
    options = (*files.arguments, "-o", "BatchMode=yes", *jump_option, *forward_option)
    return (PROGRAM, *options, *_destination(last_jump))


def _destination(jump: str) -> tuple[str, ...]:
    """Return ssh's arguments for a jump host, as `admin@[::1]:22`.

    OpenSSH 9.2 would refuse an IPv6 address in `ssh://…`.
    """
    match = _JUMP.fullmatch(jump)
    if match is None:
        raise InputError(f"ProxyJump {jump!a} is not supported", hint=_UNSUPPORTED_HINT)
    user, port, address, name = match.group("user", "port", "address", "name")
    user_option = ("-l", user) if user else ()
    port_option = ("-p", port) if port else ()
    return (*user_option, *port_option, "--", address or name)
