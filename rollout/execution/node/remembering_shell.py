"""A host's shell that remembers why it last failed: what an operator asks first about a host that is not back."""

from collections.abc import Callable
from typing import TypeVar

from rollout.errors import HostKeyError, SshAuthError, SshError
from rollout.model.host import Host
from rollout.ports import CommandResult, HostShell

T = TypeVar("T")


class RememberingShell:
    """Passes everything on. `error` says why the host did not answer when it was last asked, empty where it did.

    `is_refused`: keys or credentials are why, the host's or ours; that tells nothing of how the host is.
    """

    def __init__(self, shell: HostShell) -> None:
        self._shell = shell
        self.error = ""
        self.is_refused = False

    def run(self, host: Host, command: str, *, timeout: float) -> CommandResult:
        """As the shell does."""
        return self._remembering(lambda: self._shell.run(host, command, timeout=timeout))

    def run_if(
        self, host: Host, question: str, agreed: Callable[[CommandResult], bool], command: str, *, timeout: float
    ) -> CommandResult | None:
        """As the shell does."""
        return self._remembering(lambda: self._shell.run_if(host, question, agreed, command, timeout=timeout))

    def _remembering(self, ask: Callable[[], T]) -> T:
        try:
            answer = ask()
        except SshError as error:
            self.error, self.is_refused = str(error), isinstance(error, HostKeyError | SshAuthError)
            raise
        self.error, self.is_refused = "", False
        return answer
