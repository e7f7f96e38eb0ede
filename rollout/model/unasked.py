"""What a host could be asked as well whether it needs a reboot: the sources that it shows, and the flag for them."""

from collections.abc import Iterable, Sequence

from rollout.model.cluster import Node
from rollout.model.detection import Source
from rollout.model.host import HostFacts
from rollout.model.reboot_request import annotation_sign

_OTHERS = ", ".join(source for source in Source if source is not Source.UPDATE_ENGINE)


def unasked(node: Node, facts: HostFacts) -> tuple[Source, ...]:
    """Those that host or Node show, and that were not asked."""
    is_annotated = Source.ANNOTATION not in facts.sources and annotation_sign(node).is_needed
    return (*((Source.ANNOTATION,) if is_annotated else ()), *facts.shows)


def detect_flag(asked: Sequence[Source], shown: Iterable[Source]) -> str:
    """The flag that asks by all of them: `--set detect.sources=update-engine,rpm-ostree`."""
    return f"--set detect.sources={','.join(dict.fromkeys((*asked, *shown)))}"


def way_to_judge(facts: HostFacts, shown: Sequence[Source]) -> str:
    """By which flag a host could be judged that gave no answer; empty where none is known to help."""
    if shown:
        return f"it has {', '.join(shown)}: {detect_flag(facts.sources, shown)}"
    if facts.lacks_engine:
        return f"detect.sources names what else says that it needs a reboot: {_OTHERS}"
    return ""
