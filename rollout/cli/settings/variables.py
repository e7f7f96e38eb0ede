"""Variables of the environment that look like settings and are none: a slip of the pen would pass for a default.

The names alone are told; values may be secrets.
"""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

_PREFIX = "ROLLOUT_"
# What a kubelet tells the pods beside Services named rollout, rollout-lab and the like.
_OF_SERVICES = re.compile(r"ROLLOUT_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)")


def unknown_variables(command: Any, environ: Mapping[str, str], first: str | None = None) -> Iterator[str]:
    """A sentence for each; `command` is the program's, with all its commands in it.

    The others are looked through where one is not the `first` command's, which is about to run.
    """
    written = {name for name in environ if name.startswith(_PREFIX)}
    if not written - set(_variables(command.commands[first]) if first else ()):
        return
    valid = {*_variables(command), *_without_flag()}
    for name in sorted(written - valid):
        if not _is_somebody_elses(name):
            settings = {setting.removeprefix(_PREFIX): setting for setting in sorted(valid)}
            close = difflib.get_close_matches(name.removeprefix(_PREFIX), settings, n=1)
            hint = f"did you mean {settings[close[0]]}?" if close else "settings have the names of flags, see --help"
            yield f"{name} is not a setting of rollout: {hint}"


def _without_flag() -> set[str]:
    """What is taken from the environment alone."""
    from rollout.adapters.own_pod import OWN_POD_VARIABLES
    from rollout.adapters.prometheus import TOKEN_VARIABLE
    from rollout.adapters.ssh.passphrase import PASSPHRASE_VARIABLE

    return {TOKEN_VARIABLE, PASSPHRASE_VARIABLE, *OWN_POD_VARIABLES}


def _is_somebody_elses(name: str) -> bool:
    """A gate's word to the operator's own command, which may be rollout again; or a kubelet's to its pods."""
    from rollout.model.gates import GateVariable

    return name in set(GateVariable) or bool(_OF_SERVICES.fullmatch(name))


def _variables(command: Any) -> Iterable[str]:
    for option in command.params:
        yield from [option.envvar] if isinstance(option.envvar, str) else option.envvar or ()
    for inner in getattr(command, "commands", {}).values():
        yield from _variables(inner)
