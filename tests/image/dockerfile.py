"""A Dockerfile as values: its stages, and the steps of each. What it does not know, it refuses."""

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

# What the steps may be made of; `roots.py` can do all of these.
KNOWN = {"RUN", "COPY", "WORKDIR", "ENV", "LABEL", "USER", "ENTRYPOINT", "CMD"}
_FROM = re.compile(r"^(?P<base>\S+)(?: AS (?P<name>\S+))?$")


@dataclass(frozen=True, slots=True)
class Step:
    """One instruction; its continued lines are joined."""

    word: str
    text: str

    @property
    def pairs(self) -> dict[str, str]:
        """Of ENV and LABEL: `name=value name="value"`."""
        return dict(word.split("=", 1) for word in shlex.split(self.text))

    @property
    def words(self) -> list[str]:
        """Of ENTRYPOINT and CMD: a JSON list, the form without a shell."""
        words: list[str] = json.loads(self.text)
        return words


@dataclass(frozen=True, slots=True)
class Stage:
    """What begins with FROM: `base` is an image or an earlier stage, `name` empty for the last."""

    base: str
    name: str
    steps: tuple[Step, ...]

    def all_of(self, word: str) -> list[Step]:
        """Its instructions of one kind."""
        return [step for step in self.steps if step.word == word]


@dataclass(frozen=True, slots=True)
class Copied:
    """What a COPY takes, from the source tree or from a stage, and where to."""

    stage: str
    sources: tuple[str, ...]
    target: str


def stages_of(text: str) -> tuple[Stage, ...]:
    """The stages in their order; `ValueError` on whatever is not known here."""
    stages: list[Stage] = []
    for step in _steps(text):
        if step.word == "FROM":
            stages.append(_begun(step.text))
        elif step.word in KNOWN and stages:
            last = stages.pop()
            stages.append(Stage(last.base, last.name, (*last.steps, step)))
        else:
            raise ValueError(f"unknown instruction: {step.word} {step.text}")
    return tuple(stages)


def copied(step: Step) -> Copied:
    """A COPY's words; flags other than `--from` are not known here."""
    *flags, target = step.text.split()
    stage = ""
    if flags[0].startswith("--from="):
        stage = flags.pop(0).removeprefix("--from=")
    if any(word.startswith("-") for word in flags):
        raise ValueError(f"unknown flag: COPY {step.text}")
    return Copied(stage, tuple(flags), target)


def _begun(text: str) -> Stage:
    found = _FROM.match(text)
    if not found:
        raise ValueError(f"FROM {text}")
    return Stage(found["base"], found["name"] or "", ())


def _steps(text: str) -> Iterator[Step]:
    lines = (
        line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")
    )
    whole = re.sub(r"\\\n\s*", "", "\n".join(lines))
    for line in whole.splitlines():
        word, _, rest = line.partition(" ")
        yield Step(word, rest)
