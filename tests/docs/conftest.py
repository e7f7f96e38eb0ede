from tests.cli.conftest import command, home

__all__ = ["command", "home"]
