"""How `exit`, `return`, `break` and `continue` leave what they are in."""


class ControlFlow(Exception):  # noqa: N818 - no errors
    """A jump out of the commands being run."""


class ExitShell(ControlFlow):
    """`exit N`."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class ReturnFunction(ControlFlow):
    """`return N`."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class BreakLoop(ControlFlow):
    """`break`."""


class ContinueLoop(ControlFlow):
    """`continue`."""
