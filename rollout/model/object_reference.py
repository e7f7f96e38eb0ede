import re

from msgspec import Struct

from rollout.errors import UsageError

_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_NAME = r"[A-Za-z0-9]([A-Za-z0-9._:-]{0,251}[A-Za-z0-9])?"
_WRITTEN = re.compile(
    rf"(?P<plural>{_LABEL})(\.(?P<group>{_LABEL}(\.{_LABEL})*))?/"
    rf"((?P<namespace>{_LABEL})/)?(?P<name>{_NAME})"
)


class ObjectReference(Struct, frozen=True):
    """An object; `group` is empty for core, `namespace` if cluster-scoped."""

    plural: str
    group: str
    namespace: str
    name: str

    @classmethod
    def parse(cls, text: str) -> "ObjectReference":
        """Parse PLURAL.GROUP/NAMESPACE/NAME, or raise `UsageError`."""
        match = _WRITTEN.fullmatch(text)
        if match is None:
            raise UsageError(
                f"{text!r} is not a resource",
                hint="Write it as PLURAL.GROUP/NAMESPACE/NAME, such as"
                " cephclusters.ceph.rook.io/rook-ceph/rook-ceph; leave out NAMESPACE if it has none"
                " and .GROUP for the core API.",
            )
        reference = cls(
            plural=match["plural"],
            group=match["group"] or "",
            namespace=match["namespace"] or "",
            name=match["name"],
        )
        if reference.qualified_plural == "secrets":
            raise UsageError(
                f"{text!r} is a Secret, which rollout does not read",
                hint="Specify an object that reports its health in its status.",
            )
        return reference

    @property
    def qualified_plural(self) -> str:
        """Return kubectl's name: `cephclusters.ceph.rook.io`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural
