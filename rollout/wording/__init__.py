"""Make sentences of findings, for screens, JSON, annotations and Events.

The modules beside `words` register the sentences of each kind.
"""

from rollout.wording import blockers as _blockers  # noqa: F401 - it registers its sentences
from rollout.wording import drain as _drain  # noqa: F401 - so does this one
from rollout.wording import nodes as _nodes  # noqa: F401 - so does this one
from rollout.wording import starts as _starts  # noqa: F401 - so does this one
from rollout.wording import warnings as _warnings  # noqa: F401 - so does this one
from rollout.wording.words import brief, cause, fix, note, text

__all__ = ["brief", "cause", "fix", "note", "text"]
