"""Sentences for findings, each registered in one of these modules."""

# Registers their sentences.
from rollout.wording import blockers, drain, nodes, starts, warnings  # noqa: F401
from rollout.wording.nodes import rescue_text
from rollout.wording.words import brief, cause, fix, note, text

__all__ = ["brief", "cause", "fix", "note", "rescue_text", "text"]
