"""Annotations, labels, taints and object names of rollout and other coordinators.

rollout's are an interface for other tools. Others' are written only if a setting says so.
"""

PREFIX = "node-rollout.dev/"
# The run ID of the rollout that works on the Node; also on the Lease and the record. It is the plan
# ID of the rollout's first plan, and stays when a resume plans the rest. A FleetLock slot is a
# rollout of one node, with a random run ID.
RUN = PREFIX + "run"
PHASE = PREFIX + "phase"
BOOT_ID_BEFORE = PREFIX + "boot-id-before"
MACHINE_ID = PREFIX + "machine-id"
STAGED_VERSION = PREFIX + "staged-version"
# Each source that reported the reboot, with what it must report after; absent if only
# update_engine.
DETECTED = PREFIX + "detected"
CORDONED_BY_US = PREFIX + "cordoned-by-us"
EXCLUDED_BY_US = PREFIX + "excluded-by-us"
LAST_RESULT = PREFIX + "last-result"
PAUSED = PREFIX + "paused"
# An annotation (who and when), and a label ("true") for pod affinity.
DEFERRED = PREFIX + "deferred"
# Who, when, why and until when, as JSON.
PAUSED_DETAILS = PREFIX + "paused-details"
# Its value is the label that requests checks around the reboot.
HOOK_LABEL_ANNOTATION = PREFIX + "hook-label"
# Static and DaemonSet pods to wait for after the reboot, as JSON.
READY_BEFORE = PREFIX + "ready-before"
# The boot ID that `reboot.rescue` ran for, once per reboot.
RESCUED = PREFIX + "rescued"
STARTED_BY = PREFIX + "started-by"
STARTED_AT = PREFIX + "started-at"
ENDED = PREFIX + "ended"
STOPPED = PREFIX + "stopped"
# "operate" if unattended; absent if a person started the rollout.
ORIGIN = PREFIX + "origin"
OPERATE = "operate"

# On the Lease: the holder's unique ID, as in its journal.
PROCESS = PREFIX + "process"

# These make a Node part of a rollout, even before its cordon.
OF_RUN = (RUN, PHASE, BOOT_ID_BEFORE, MACHINE_ID)
# Removed when a node is done; the last result stays.
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
# "true" requests a reboot; removed after it.
REBOOT_NEEDED = PREFIX + "reboot-needed"
# All that this version knows with its prefix.
ON_NODE = (*TRANSIENT, LAST_RESULT, PAUSED, PAUSED_DETAILS, DEFERRED, REBOOT_NEEDED)
ON_RECORD = (RUN, STARTED_BY, STARTED_AT, ENDED, STOPPED, ORIGIN)

# The soft taint on pending nodes.
AWAITING_REBOOT = PREFIX + "awaiting-reboot"
EXCLUDED_FROM_BALANCERS = "node.kubernetes.io/exclude-from-external-load-balancers"

FLUO_PREFIX = "flatcar-linux-update.v1.flatcar-linux.net/"
CLUO_PREFIX = "container-linux-update.v1.coreos.com/"
KURED_IN_PROGRESS = "weave.works/kured-reboot-in-progress"
# The reboot manager (KRM): `Rebooting` comes with its cordon, `Ready` with its uncordon.
KRM_STATUS = "rebootmanager/status"
KRM_REBOOTING = "Rebooting"
# The coreos-reboot-operator (CRO): only the presence counts.
CRO_PREFIX = "reboot-agent.v1.demo.local/"
CRO_IN_HAND = (CRO_PREFIX + "reboot", CRO_PREFIX + "reboot-in-progress")
# OpenShift's machine-config-operator (MCO) changes the next node's desired configuration.
MCO_PREFIX = "machineconfiguration.openshift.io/"
MCO_STATE = MCO_PREFIX + "state"
MCO_CURRENT = MCO_PREFIX + "currentConfig"
MCO_DESIRED = MCO_PREFIX + "desiredConfig"
MCO_AT_WORK = frozenset({"Working", "Rebooting"})
TUPPR_UPGRADING = "tuppr.home-operations.com/upgrading"
# The Kairos operator cordons with this annotation: https://github.com/kairos-io/kairos-operator,
# internal/controller/nodeop_controller.go
KAIROS_CORDONED = "operator.kairos.io/cordoned-by"
# NodeWright: one annotation per object, whose name follows: https://github.com/NVIDIA/nodewright,
# operator/internal/wrapper/node.go
NODEWRIGHT_STATUS = "skyhook.nvidia.com/status_"
NODEWRIGHT_AT_WORK = "in_progress"
# NVSentinel's label, and the states that it leaves by itself: https://github.com/NVIDIA/NVSentinel,
# package statemanager
NVSENTINEL_STATE = "dgxc.nvidia.com/nvsentinel-state"
NVSENTINEL_AT_WORK = frozenset({"quarantined", "draining", "drain-succeeded", "remediating"})
# The node-maintenance-orchestrator's label on a planned node:
# https://github.com/Nils-Svensson/node-maintenance-orchestrator, api/v1alpha1/annotations.go
ORCHESTRATOR_MAINTAINS = "maintenance.nmoo.io/in-maintenance"
# The system-upgrade-controller's label on its pods.
UPGRADED_NODE = "upgrade.cattle.io/node"

# FLUO's agent writes annotations, which rollout reads, and labels, which rollout can maintain.
FLUO_STATUS = FLUO_PREFIX + "status"
FLUO_NEW_VERSION = FLUO_PREFIX + "new-version"
FLUO_ID = FLUO_PREFIX + "id"
FLUO_GROUP = FLUO_PREFIX + "group"
FLUO_VERSION = FLUO_PREFIX + "version"

# These request a reboot. kured's stay after it, or report a running one.
OTHERS_REQUESTS = (FLUO_PREFIX + "reboot-needed", CLUO_PREFIX + "reboot-needed")
REQUESTS = (REBOOT_NEEDED, *OTHERS_REQUESTS)
RIVAL_PAUSES = (FLUO_PREFIX + "reboot-paused", CLUO_PREFIX + "reboot-paused")
# Set to "true", after the prefix, on a node that FLUO or CLUO works on.
OPERATOR_ANNOTATIONS = ("reboot-in-progress", "reboot-ok")
OPERATOR_LABELS = ("before-reboot", "after-reboot")

LEASE_NAME = "node-rollout"
RECORD_NAME = LEASE_NAME
MEMORY_NAME = "node-rollout-memory"
SLOTS_NAME = "node-rollout-fleetlock"
EVIDENCE_NAME = "node-rollout-evidence"
LEASE_NAMESPACE = "kube-system"
