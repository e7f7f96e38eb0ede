"""Labels to be set on nodes, as flags write them: `name=value`."""

import re
from collections.abc import Iterable, Mapping

from rollout.errors import UsageError
from rollout.model import marks
from rollout.planning.selector import checked_label

_VALUE = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)?[A-Za-z0-9]|")
_LONGEST = 63
_HINT = "Write it as for kubectl label: maintenance=true, or maintenance= for an empty value."
_OWN = {
    marks.EXCLUDED_FROM_BALANCERS: "drain.exclude-from-load-balancers sets it",
    **{f"{marks.FLUO_PREFIX}{word}": "it asks for checks around the reboot" for word in marks.OPERATOR_LABELS},
}


def node_labels(written: Iterable[str]) -> Mapping[str, str]:
    """Values by name; `UsageError` where a text is no label, a name stands twice, or rollout sets it itself."""
    labels: dict[str, str] = {}
    for text in written:
        name, value = _label(text)
        if labels.get(name, value) != value:
            raise UsageError(f"the label {name} is to be {labels[name]!r} and {value!r}", hint="Leave one of them.")
        labels[name] = value
    return labels


def is_label_value(text: str) -> bool:
    """Whether the API server takes it for a label's value."""
    return len(text) <= _LONGEST and _VALUE.fullmatch(text) is not None


def _label(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"{text!r} has no value", hint=_HINT)
    checked_label(name)
    if not is_label_value(value):
        raise UsageError(
            f"{text!r}: {value[:_LONGEST]!r} is not a label's value",
            hint="At most 63 letters, digits, dashes, dots and underscores, the first and last a letter or a digit.",
        )
    if why := _OWN.get(name) or ("it is rollout's own" if name.startswith(marks.PREFIX) else ""):
        raise UsageError(f"the label {name} cannot be set: {why}", hint="Choose another name.")
    return name, value
