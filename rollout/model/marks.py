"""The words that rollouts, ours and others', write on Nodes.

Ours are an interface: other tools read them. The rivals' are read, and written only where a rule
asks for it.
"""

PREFIX = "node-rollout.dev/"
RUN = PREFIX + "run"
PHASE = PREFIX + "phase"
BOOT_ID_BEFORE = PREFIX + "boot-id-before"
MACHINE_ID = PREFIX + "machine-id"
STAGED_VERSION = PREFIX + "staged-version"
# What said that the reboot is needed, and what each has to be shown after it, as JSON; not where it
# was update_engine.
DETECTED = PREFIX + "detected"
CORDONED_BY_US = PREFIX + "cordoned-by-us"
EXCLUDED_BY_US = PREFIX + "excluded-by-us"
LAST_RESULT = PREFIX + "last-result"
PAUSED = PREFIX + "paused"
# A node left for a run from elsewhere, because the last run's process was on it: an annotation that
# says of whom and since when, and a label, "true", which the affinity of pods can name.
DEFERRED = PREFIX + "deferred"
# Beside it: who paused the node, when, why, and until when, as JSON.
PAUSED_DETAILS = PREFIX + "paused-details"
# The label that asks for checks around the reboot, where we have set one.
HOOK_LABEL = PREFIX + "hook-label"
# Which static and DaemonSet pods were ready on the node when it was begun, as JSON; it is back once
# they are again.
READY_BEFORE = PREFIX + "ready-before"
# On the record of a run, beside its id.
STARTED_BY = PREFIX + "started-by"
STARTED_AT = PREFIX + "started-at"
ENDED = PREFIX + "ended"
# On the record of a rollout that ended because someone stopped it.
STOPPED = PREFIX + "stopped"
# Who began it, where that is an operating process; without it a person did.
ORIGIN = PREFIX + "origin"
OPERATE = "operate"

# On the lock: which process holds it, by a word that no other has; the journal of that process has
# it, too.
PROCESS = PREFIX + "process"

# What goes once a node is done; the last result stays.
TRANSIENT = (
    *(RUN, PHASE, BOOT_ID_BEFORE, MACHINE_ID, STAGED_VERSION, DETECTED),
    *(CORDONED_BY_US, EXCLUDED_BY_US, HOOK_LABEL, READY_BEFORE),
)
# A person's word, "true", that the node is to be rebooted; taken away once it was.
REBOOT_NEEDED = PREFIX + "reboot-needed"
# All that this version writes, or reads, under its prefix: whatever else stands there is not
# understood.
ON_NODE = (*TRANSIENT, LAST_RESULT, PAUSED, PAUSED_DETAILS, DEFERRED, REBOOT_NEEDED)
ON_RECORD = (RUN, STARTED_BY, STARTED_AT, ENDED, STOPPED, ORIGIN)

# The key of the soft taint on nodes that still wait for their turn.
AWAITING_REBOOT = PREFIX + "awaiting-reboot"
# Kubernetes' own label, by whose presence external load balancers leave a node out.
EXCLUDED_FROM_BALANCERS = "node.kubernetes.io/exclude-from-external-load-balancers"

FLUO_PREFIX = "flatcar-linux-update.v1.flatcar-linux.net/"
CLUO_PREFIX = "container-linux-update.v1.coreos.com/"
KURED_IN_PROGRESS = "weave.works/kured-reboot-in-progress"
KURED_LOCK = "weave.works/kured-node-lock"
# The reboot manager (KRM) writes `Rebooting` together with its cordon, and `Ready` when it takes
# that back.
KRM_STATUS = "rebootmanager/status"
KRM_REBOOTING = "Rebooting"
# The coreos-reboot-operator (CRO) goes by the mere presence of its annotations.
CRO_PREFIX = "reboot-agent.v1.demo.local/"
CRO_IN_HAND = (CRO_PREFIX + "reboot", CRO_PREFIX + "reboot-in-progress")
# OpenShift's machine-config-operator (MCO) gives a node whose turn it is another configuration to
# come to.
MCO_PREFIX = "machineconfiguration.openshift.io/"
MCO_STATE, MCO_CURRENT, MCO_DESIRED = (
    MCO_PREFIX + word for word in ("state", "currentConfig", "desiredConfig")
)
MCO_AT_WORK = frozenset({"Working", "Rebooting"})
# tuppr's, on the node that it upgrades.
TUPPR_UPGRADING = "tuppr.home-operations.com/upgrading"
# On the pods with which the system-upgrade-controller changes a node.
UPGRADED_NODE = "upgrade.cattle.io/node"

# What FLUO's agent says of a host: annotations that are read, and labels that may be kept up to
# date without it.
FLUO_STATUS = FLUO_PREFIX + "status"
FLUO_NEW_VERSION = FLUO_PREFIX + "new-version"
FLUO_ID = FLUO_PREFIX + "id"
FLUO_GROUP = FLUO_PREFIX + "group"
FLUO_VERSION = FLUO_PREFIX + "version"

# Who sets them says that the node needs a reboot; kured's annotations do not, for they stay after
# it, or tell of one that is under way.
OTHERS_REQUESTS = (FLUO_PREFIX + "reboot-needed", CLUO_PREFIX + "reboot-needed")
REQUESTS = (REBOOT_NEEDED, *OTHERS_REQUESTS)
RIVAL_PAUSES = (FLUO_PREFIX + "reboot-paused", CLUO_PREFIX + "reboot-paused")
# What FLUO and CLUO write on a node that they have in hand, after their prefix, with the value
# "true".
OPERATOR_ANNOTATIONS = ("reboot-in-progress", "reboot-ok")
OPERATOR_LABELS = ("before-reboot", "after-reboot")

LEASE_NAME = "node-rollout"
# The ConfigMap of what outlives a rollout, beside the record.
MEMORY_NAME = "node-rollout-memory"
# The ConfigMap of FleetLock's slots.
SLOTS_NAME = "node-rollout-fleetlock"
# The ConfigMap of what other clusters have proved.
EVIDENCE_NAME = "node-rollout-evidence"
LEASE_NAMESPACE = "kube-system"
