# Importing these modules registers their sentences.
from rollout.wording import blockers, drain, nodes, starts, warnings  # noqa: F401
from rollout.wording.nodes import rescue_text
from rollout.wording.words import brief_of, cause_of, fix_of, note_of, text

__all__ = ["brief_of", "cause_of", "fix_of", "note_of", "rescue_text", "text"]
