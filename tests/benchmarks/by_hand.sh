#!/bin/bash
# Reboots all nodes one after another, as an operator's script does, and prints the time of each step.
# KUBECONFIG names the cluster, SSH_CONFIG has the hosts by the names of their nodes, VERSION is the
# one that each host reports afterwards, and PAUSE is how many seconds pass between two looks at it.
set -euo pipefail

step() {
  echo "$EPOCHREALTIME $node $1"
}

on_host() {
  ssh -F "$SSH_CONFIG" -o BatchMode=yes -o ConnectTimeout=5 "$node" "$@"
}

is_back() {
  local state
  state=$(kubectl get node "$node" -o "jsonpath={.status.nodeInfo.bootID} \
{.status.conditions[?(@.type=='Ready')].status}")
  [[ $state != "$boot "* && $state == *" True" ]] &&
    [[ $(on_host "sed -n s/^VERSION=//p /etc/os-release") == "$VERSION" ]]
}

await_workloads() {
  local namespace kind name
  while read -r namespace kind name; do
    kubectl rollout status --namespace "$namespace" "$kind/$name" --timeout=300s >&2
  done <<<"$workloads"
}

columns="custom-columns=:.metadata.namespace,:.kind,:.metadata.name"
workloads=$(kubectl get deployments,daemonsets --all-namespaces --no-headers -o "$columns")

for node in $(kubectl get nodes -o "jsonpath={.items[*].metadata.name}"); do
  step started
  boot=$(kubectl get node "$node" -o "jsonpath={.status.nodeInfo.bootID}")
  kubectl drain "$node" --ignore-daemonsets --delete-emptydir-data >&2
  step drained
  on_host sudo systemctl reboot || true # The host may close the connection before it answers.
  step rebooting
  give_up=$((SECONDS + 600))
  until is_back; do
    ((SECONDS < give_up)) || exit 1
    sleep "$PAUSE"
  done
  step ready
  kubectl uncordon "$node" >&2
  await_workloads
  step done
done
