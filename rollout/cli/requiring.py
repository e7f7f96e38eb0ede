"""`--require-all`: every node that was asked for, or none."""

from collections.abc import Sequence

from rollout.errors import IncompleteError
from rollout.model.progress import NotDone
from rollout.report.text import counted

MEND_FOR_PLAN = "`rollout doctor` names the fix of each; --exclude NAME leaves a node out on purpose."
MEND_FOR_FILE = f"{MEND_FOR_PLAN} Then make a new plan: rollout plan --require-all --out FILE."
MEND_FOR_RESUME = (
    "`rollout doctor` names the fix of each. Nodes that failed: --retry-failed. Without --require-all the rest goes on;"
    " what it leaves is for `rollout apply`."
)


def refuse_incomplete(missing: Sequence[NotDone], hint: str) -> None:
    """`IncompleteError` where a node is missing; it names all of them, for nothing else may show them."""
    if missing:
        named = "; ".join(f"{one.node} ({one.reason}: {one.message})" for one in missing)
        raise IncompleteError(
            f"--require-all is given, and {counted(len(missing), 'node')} cannot be taken: {named}",
            hint=hint,
        )
