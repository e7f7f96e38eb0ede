"""Objects and marks of rollout and other coordinators.

rollout's are an interface for other tools. Others' are written only if a setting says so.
"""

PREFIX = "node-rollout.dev/"
# On the Node, the Lease and the record: the plan ID of the rollout's first plan, also after a
# resume, or a random ID for a FleetLock slot.
RUN = PREFIX + "run"
PHASE = PREFIX + "phase"
BOOT_ID_BEFORE = PREFIX + "boot-id-before"
MACHINE_ID = PREFIX + "machine-id"
STAGED_VERSION = PREFIX + "staged-version"
# What each source must report after the reboot; absent for update_engine alone.
DETECTED = PREFIX + "detected"
CORDONED_BY_US = PREFIX + "cordoned-by-us"
EXCLUDED_BY_US = PREFIX + "excluded-by-us"
LAST_RESULT = PREFIX + "last-result"
PAUSED = PREFIX + "paused"
# The annotation says who and when; the label, "true", serves pod affinity.
DEFERRED = PREFIX + "deferred"
# JSON.
PAUSED_DETAILS = PREFIX + "paused-details"
# The label that requests checks.
HOOK_LABEL_ANNOTATION = PREFIX + "hook-label"
# Static and DaemonSet pods to wait for, as JSON.
READY_BEFORE = PREFIX + "ready-before"
# A boot ID: the command runs once per reboot.
RESCUED = PREFIX + "rescued"
STARTED_BY = PREFIX + "started-by"
STARTED_AT = PREFIX + "started-at"
ENDED = PREFIX + "ended"
STOPPED = PREFIX + "stopped"
# `OPERATE`; absent if a person started it.
ORIGIN = PREFIX + "origin"
OPERATE = "operate"

# On the Lease: the holder's unique ID.
PROCESS = PREFIX + "process"

# A Node with one belongs to a rollout.
OF_RUN = (RUN, PHASE, BOOT_ID_BEFORE, MACHINE_ID)
# Removed when a node is done.
TRANSIENT = (
    *OF_RUN,
    STAGED_VERSION,
    DETECTED,
    CORDONED_BY_US,
    EXCLUDED_BY_US,
    HOOK_LABEL_ANNOTATION,
    READY_BEFORE,
    RESCUED,
)
# "true" requests a reboot.
REBOOT_NEEDED = PREFIX + "reboot-needed"
# Everything that this version knows.
ON_NODE = (*TRANSIENT, LAST_RESULT, PAUSED, PAUSED_DETAILS, DEFERRED, REBOOT_NEEDED)
ON_RECORD = (RUN, STARTED_BY, STARTED_AT, ENDED, STOPPED, ORIGIN)

AWAITING_REBOOT = PREFIX + "awaiting-reboot"
EXCLUDED_FROM_BALANCERS = "node.kubernetes.io/exclude-from-external-load-balancers"

FLUO_PREFIX = "flatcar-linux-update.v1.flatcar-linux.net/"
CLUO_PREFIX = "container-linux-update.v1.coreos.com/"
KURED_IN_PROGRESS = "weave.works/kured-reboot-in-progress"
# `Rebooting` comes with the cordon, `Ready` with the uncordon.
KRM_STATUS = "rebootmanager/status"
KRM_REBOOTING = "Rebooting"
# Only the presence counts.
CRO_PREFIX = "reboot-agent.v1.demo.local/"
CRO_IN_HAND = (CRO_PREFIX + "reboot", CRO_PREFIX + "reboot-in-progress")
# OpenShift changes the next node's desired configuration.
MCO_PREFIX = "machineconfiguration.openshift.io/"
MCO_STATE = MCO_PREFIX + "state"
MCO_CURRENT = MCO_PREFIX + "currentConfig"
MCO_DESIRED = MCO_PREFIX + "desiredConfig"
MCO_AT_WORK = frozenset({"Working", "Rebooting"})
TUPPR_UPGRADING = "tuppr.home-operations.com/upgrading"
# https://github.com/kairos-io/kairos-operator, internal/controller/nodeop_controller.go
KAIROS_CORDONED = "operator.kairos.io/cordoned-by"
# One per object, whose name follows: https://github.com/NVIDIA/nodewright,
# operator/internal/wrapper/node.go
NODEWRIGHT_STATUS = "skyhook.nvidia.com/status_"
NODEWRIGHT_AT_WORK = "in_progress"
# States that NVSentinel leaves by itself: https://github.com/NVIDIA/NVSentinel,
# package statemanager
NVSENTINEL_STATE = "dgxc.nvidia.com/nvsentinel-state"
NVSENTINEL_AT_WORK = frozenset({"quarantined", "draining", "drain-succeeded", "remediating"})
# https://github.com/Nils-Svensson/node-maintenance-orchestrator, api/v1alpha1/annotations.go
ORCHESTRATOR_MAINTAINS = "maintenance.nmoo.io/in-maintenance"
UPGRADED_NODE = "upgrade.cattle.io/node"

# rollout reads the annotations, and can maintain the labels.
FLUO_STATUS = FLUO_PREFIX + "status"
FLUO_NEW_VERSION = FLUO_PREFIX + "new-version"
FLUO_ID = FLUO_PREFIX + "id"
FLUO_GROUP = FLUO_PREFIX + "group"
FLUO_VERSION = FLUO_PREFIX + "version"

# kured's are missing: they stay after the reboot, or report a running one.
OTHERS_REQUESTS = (FLUO_PREFIX + "reboot-needed", CLUO_PREFIX + "reboot-needed")
REQUESTS = (REBOOT_NEEDED, *OTHERS_REQUESTS)
RIVAL_PAUSES = (FLUO_PREFIX + "reboot-paused", CLUO_PREFIX + "reboot-paused")
# FLUO and CLUO set these to "true", after their prefix.
OPERATOR_ANNOTATIONS = ("reboot-in-progress", "reboot-ok")
OPERATOR_LABELS = ("before-reboot", "after-reboot")

LEASE_NAME = "node-rollout"
RECORD_NAME = LEASE_NAME
MEMORY_NAME = "node-rollout-memory"
SLOTS_NAME = "node-rollout-fleetlock"
EVIDENCE_NAME = "node-rollout-evidence"
LEASE_NAMESPACE = "kube-system"
