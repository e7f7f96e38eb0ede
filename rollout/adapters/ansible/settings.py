"""Settings for Ansible; the user's own configuration comes first."""

import configparser
import importlib.resources
import os
import shlex
import sys
import tempfile
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from msgspec import Struct, field

from rollout.adapters.input_files import Trust, check_input, check_tree
from rollout.adapters.input_trust import distrust_if_writable, hint_of, why_maybe_planted
from rollout.adapters.local_files import needing_temporary_folder
from rollout.adapters.secrets import is_secret
from rollout.errors import InputError, RolloutError, UsageError
from rollout.model.host import DEFAULT_SSH_USER, HostKeyChecking
from rollout.model.text import escape_quotes, printable, ssh_path

_MISSING = (
    "--executor ansible and --inventory need Ansible, which is not installed in rollout's"
    " environment"
)
_INSTALL = f"{sys.executable} -m pip install ansible-core ansible-runner"
_NO_FILE = Path("none")
_VARIABLES = ("group_vars", "host_vars")
# Ansible also loads them from a playbook's folder.
_CODE = ("roles", "collections", "library", "module_utils", "doc_fragments", "*_plugins")
# A connection must not outlive a boot.
_OWN_SSH_ARGUMENTS = (
    *("-o", "ControlMaster=no", "-o", "ControlPath=none"),
    *("-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3"),
)
_USE_CONFIG_HINT = "To use it: ANSIBLE_CONFIG=ansible.cfg. "
_CONFIG_HINT = "Specify another file with ANSIBLE_CONFIG, or no file: ANSIBLE_CONFIG=/dev/null."
_CHECKING: Mapping[HostKeyChecking, tuple[str, ...]] = {
    HostKeyChecking.STRICT: ("-o", "StrictHostKeyChecking=yes"),
    HostKeyChecking.ACCEPT_NEW: ("-o", "StrictHostKeyChecking=accept-new"),
}


class AnsibleSettings(Struct, frozen=True, dict=True):
    """How Ansible reaches hosts; None for what is not given."""

    # None: the Nodes are the inventory.
    inventory: Path | None = None
    user: str | None = None
    port: int | None = None
    key_file: Path | None = None
    known_hosts: Path | None = None
    # `none`: no file.
    ssh_config: Path | None = None
    host_key_checking: HostKeyChecking = HostKeyChecking.STRICT
    folder: Path = field(default_factory=Path.cwd)
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    def check_configuration(self) -> None:
        """Raise an error without Ansible, or for unsafe configuration."""
        try:
            import ansible_runner  # noqa: F401, PLC0415 - loaded only when needed
        except ImportError as error:
            raise RolloutError(_MISSING, hint=_INSTALL) from error
        find_programs()
        _ = self._config
        for file in (self.known_hosts, self.ssh_config, self.key_file):
            if file is not None and file.exists():
                _check_file(file)
        if self.key_file is not None and "$" in str(self.key_file.absolute()):
            key = printable(str(self.key_file))
            raise InputError(
                f"--ssh-key {key}: Ansible would read the $ in this path as a variable",
                hint="Move the key to a path without $, or use a link to it.",
            )

    def variables(self, run_folder: Path | None = None) -> dict[str, str]:
        """Return additions to the environment of Ansible's programs."""
        program_folders = [str(find_programs()), self.environment.get("PATH", os.defpath)]
        if run_folder is not None:
            program_folders.insert(0, str(run_folder / "bin"))
        with needing_temporary_folder("Ansible"):
            temporary_folder = str(run_folder or tempfile.gettempdir())
        variables = {
            "PATH": os.pathsep.join(program_folders),
            "ANSIBLE_HOST_KEY_CHECKING": "True",
            "ANSIBLE_SSH_ARGS": shlex.join(self._ssh_arguments(run_folder)),
            # ansible-runner would pass on our secrets.
            **{name: "" for name in self.environment if is_secret(name)},
            **self._preferences(temporary_folder),
        }
        if self.key_file is not None:
            # ssh would expand %h and the like.
            variables["ANSIBLE_PRIVATE_KEY_FILE"] = escape_quotes(str(self.key_file.absolute()))
        if self._config_file is not None:
            variables["ANSIBLE_CONFIG"] = str(self._config_file)
        return variables

    def ssh_config_text(self) -> str:
        """Return an ssh_config: the user's files, then the default user."""
        files = ["~/.ssh/config", "/etc/ssh/ssh_config"]
        if self.ssh_config == _NO_FILE:
            files = []
        elif self.ssh_config is not None:
            files = [ssh_path(str(self.ssh_config.absolute()), tokens=False)]
        includes = [f"Include {file}\n" for file in files]
        return "".join((*includes, f"Host *\nUser {DEFAULT_SSH_USER}\n"))

    def _ssh_arguments(self, run_folder: Path | None) -> tuple[str, ...]:
        arguments = list(_CHECKING[self.host_key_checking])
        if self.known_hosts is not None:
            arguments += ["-o", f"UserKnownHostsFile={ssh_path(str(self.known_hosts.absolute()))}"]
        if run_folder is not None:
            arguments += ["-F", str(run_folder / "ssh_config")]
        # For ssh, the first value counts, so ours do.
        user_arguments = self._user_value("ssh_connection", "ssh_args", "ANSIBLE_SSH_ARGS")
        if user_arguments is None:
            return (*arguments, *_OWN_SSH_ARGUMENTS)
        return (*arguments, *shlex.split(user_arguments))

    def _preferences(self, temporary_folder: str) -> dict[str, str]:
        # Section and key in ansible.cfg, variable, value.
        preferred = [
            ("ssh_connection", "usetty", "ANSIBLE_SSH_USETTY", "False"),
            ("paramiko_connection", "pty", "ANSIBLE_PARAMIKO_PTY", "False"),
            ("defaults", "localhost_warning", "ANSIBLE_LOCALHOST_WARNING", "False"),
            ("defaults", "deprecation_warnings", "ANSIBLE_DEPRECATION_WARNINGS", "False"),
            ("defaults", "nocolor", "ANSIBLE_NOCOLOR", "True"),
            # Half an inventory would lack hosts.
            (
                "inventory",
                "any_unparsed_is_failed",
                "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED",
                "True",
            ),
            # The default, the home folder, may be read-only.
            ("defaults", "local_tmp", "ANSIBLE_LOCAL_TEMP", temporary_folder),
        ]
        preferences = {
            variable: value
            for section, key, variable, value in preferred
            if self._user_value(section, key, variable) is None
        }
        if self.user is not None:
            preferences["ANSIBLE_REMOTE_USER"] = self.user
        if self.port is not None:
            preferences["ANSIBLE_REMOTE_PORT"] = str(self.port)
        return preferences

    def _user_value(self, section: str, key: str, variable: str) -> str | None:
        return self.environment.get(variable) or self._config.get(section, key, fallback=None)

    @cached_property
    def _config_file(self) -> Path | None:
        """`UsageError` if others may write the file: it can run programs."""
        configured = self.environment.get("ANSIBLE_CONFIG")
        if configured:
            named_file = self.folder / Path(configured).expanduser()
            if named_file.is_dir():
                named_file /= "ansible.cfg"
            if _is_readable(named_file):
                return _check_file(named_file, _CONFIG_HINT)
        file_in_folder = self.folder / "ansible.cfg"
        if _is_readable(file_in_folder):
            _check_not_planted(file_in_folder)
            return file_in_folder
        home = Path(self.environment.get("HOME", "/"))
        for usual_file in (home / ".ansible.cfg", Path("/etc/ansible/ansible.cfg")):
            if _is_readable(usual_file):
                return _check_file(usual_file, _CONFIG_HINT)
        return None

    @cached_property
    def _config(self) -> configparser.ConfigParser:
        parser = configparser.ConfigParser(inline_comment_prefixes=(";",), interpolation=None)
        try:
            if self._config_file is not None:
                parser.read(self._config_file, encoding="utf-8")
        except (configparser.Error, OSError, UnicodeDecodeError) as error:
            raise InputError(f"cannot read {self._config_file}: {error}") from error
        return parser


def _is_readable(path: Path) -> bool:
    return os.access(path, os.R_OK) and not path.is_dir()


def _check_file(file: Path, hint: str = "") -> Path:
    try:
        check_input(file, trust=Trust.NOT_WRITABLE_BY_OTHERS)
    except OSError as error:
        raise UsageError(
            f"cannot use {file}: {error.strerror}", hint=hint_of(error, hint)
        ) from error
    return file


def _check_not_planted(config: Path) -> None:
    reason = why_maybe_planted(config)
    if not reason:
        return
    may_be_named = distrust_if_writable(config) is None
    use_hint = _USE_CONFIG_HINT if may_be_named else ""
    raise UsageError(
        f"ansible.cfg in the current directory is refused: {reason}",
        hint=f"{use_hint}To continue without it, run rollout in another directory.",
    )


def check_inventory(path: Path, working_folder: Path) -> None:
    """Raise `OSError` if others can write the inventory or its variables."""
    check_tree(path)
    inventory_folder = path if path.is_dir() else path.parent
    for folder in (inventory_folder, working_folder):
        _check_matching_files(folder, _VARIABLES)


def check_playbook(path: Path) -> None:
    """Raise `OSError` if others can write what Ansible would load."""
    check_tree(path)
    _check_matching_files(path.parent, (*_VARIABLES, *_CODE))


def _check_matching_files(folder: Path, patterns: tuple[str, ...]) -> None:
    for pattern in patterns:
        for found in folder.glob(pattern):
            check_tree(found)


def find_programs() -> Path:
    """Return the folder of Ansible's programs, or raise `RolloutError`."""
    folder = Path(sys.executable).parent
    if not (folder / "ansible-playbook").exists():
        raise RolloutError(_MISSING, hint=_INSTALL)
    return folder


def find_playbooks() -> Path:
    """Return the folder of rollout's playbooks."""
    package = Path(str(importlib.resources.files("rollout")))
    installed = package / "playbooks"
    return installed if installed.is_dir() else package.parent / "playbooks"
