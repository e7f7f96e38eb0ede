"""A line that is being typed into a real shell, on a terminal of its own."""

import os
import re
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

# What each shell is started with: no settings of the machine's, a prompt that is known, nothing that moves.
COMMANDS = {
    "bash": ("bash", "--norc", "--noprofile", "-i"),
    "zsh": ("zsh", "-f", "-i"),
    "fish": ("fish", "--no-config", "-i"),
}
PROMPT = "READY>"
_SETTINGS = {
    "bash": f"PS1='{PROMPT}'; bind 'set bell-style none'; bind 'set enable-bracketed-paste off'",
    "zsh": f"PS1='{PROMPT}'; autoload -U compinit && compinit -u -D; unsetopt ZLE_BRACKETED_PASTE 2>/dev/null",
    "fish": f"function fish_prompt; echo -n '{PROMPT}'; end; set fish_greeting; set fish_autosuggestion_enabled 0",
}
_CONTROLS = re.compile(r"\x1b\[[0-9;?<>=]*[a-zA-Z]|\x1b[()][A-Z0-9]|\x1b[=>]|\x1b\][^\x07\x1b]*(\x07|\x1b\\)|[\x07\r]")
_SECONDS = 60.0


# A command `rollout` which completes as the program does, and when it is run shows the words that it was given.
_PROGRAM = f"""#!/bin/sh
[ -n "$_ROLLOUT_COMPLETE" ] || [ "$1" = completion ] && exec {sys.executable} -m rollout "$@"
for word; do printf '[%s]' "$word"; done
echo END
"""


def program_in(home: Path) -> Path:
    """A folder with `rollout`."""
    folder = home / "bin"
    folder.mkdir(exist_ok=True)
    program = folder / "rollout"
    program.write_text(_PROGRAM)
    program.chmod(0o755)
    return folder


class Shell:
    """A shell that has loaded the program's completion."""

    def __init__(self, terminal: int) -> None:
        self._terminal = terminal

    def until(self, mark: str) -> str:
        """What it shows until this is shown, and the prompt after it."""
        shown, over = "", time.monotonic() + _SECONDS
        while PROMPT not in shown.partition(mark)[2]:
            if not select.select([self._terminal], [], [], max(0.0, over - time.monotonic()))[0]:
                raise AssertionError(f"{mark!r} is not shown: {shown!r}")
            shown += _CONTROLS.sub("", os.read(self._terminal, 65536).decode(errors="replace"))
        return shown

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self._terminal, text.encode())

    def words(self, line: str) -> list[str]:
        """What the program is given for this line, in which a tab completes."""
        self.type(f"{line}\n")
        shown = self.until("END")
        return re.findall(r"\[([^\[\]]*)\]", shown[: shown.rindex("END")].rpartition("\n")[2])


@contextmanager
def shell(kind: str, home: Path, environment: Mapping[str, str], load: str) -> Iterator[Shell]:
    """One in this home, which has loaded what `rollout completion` prints for it by this line."""
    executable = shutil.which(COMMANDS[kind][0])
    assert executable is not None
    path = f"{program_in(home)}:{os.environ['PATH']}"
    variables = {"PATH": path, "HOME": str(home), "TERM": "xterm", "LC_ALL": "C.UTF-8", **environment}
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        ["setsid", "--ctty", executable, *COMMANDS[kind][1:]],
        env=variables,
        cwd=home,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    try:
        opened = Shell(ours)
        opened.type(f"{_SETTINGS[kind]}; {load}; echo LOAD''ED\n")
        opened.until("LOADED")
        yield opened
    finally:
        # whoever has this terminal ends with it
        os.close(ours)
        process.wait(timeout=_SECONDS)
