"""Paths in options and configurations of OpenSSH's client, which splits at spaces and puts values in for tokens."""

_SPLIT_AT = frozenset(" \t\"'\\")


def ssh_path(path: str, *, tokens: bool = True) -> str:
    """A path as an option takes it: quoted where it has to be. `tokens` is whether the option knows `%h` and such."""
    if not _SPLIT_AT.intersection(path):
        return path.replace("%", "%%") if tokens else path
    return f'"{escaped(path, tokens=tokens)}"'


def escaped(path: str, *, tokens: bool = True) -> str:
    """The same as it stands between quotes."""
    plain = path.replace("%", "%%") if tokens else path
    return plain.replace("\\", "\\\\").replace('"', '\\"')
