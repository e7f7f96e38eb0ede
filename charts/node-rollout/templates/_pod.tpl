{{- define "labels" -}}
app.kubernetes.io/name: node-rollout
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- if eq .Values.kind "fleetlock" }}
app.kubernetes.io/component: fleetlock
{{- end }}
{{- end }}

{{- define "metadata" -}}
name: {{ .Release.Name | quote }}
namespace: {{ .Release.Namespace | quote }}
labels:
  {{- include "labels" . | nindent 2 }}
{{- end }}

{{- /* The port for metrics, or nothing. */}}
{{- define "metrics port" -}}
{{- if ne .Values.kind "cronjob" }}{{ with .Values.metricsPort }}{{ . }}{{ end }}{{ end }}
{{- end }}

{{- /* The name of the port for probes, which also has metrics, or nothing. */}}
{{- define "port" -}}
{{- if eq .Values.kind "fleetlock" }}fleetlock{{ else if include "metrics port" . }}metrics{{ end }}
{{- end }}

{{- define "probe" }}
httpGet:
  path: {{ .path }}
  port: {{ include "port" .root }}
  {{- if eq .root.Values.kind "fleetlock" }}
  scheme: {{ ternary "HTTP" "HTTPS" (empty .root.Values.tlsSecret) }}
  {{- end }}
periodSeconds: {{ .every }}
timeoutSeconds: 5
failureThreshold: {{ .failures }}
{{- end }}

{{- define "pod" -}}
{{- $serves := eq .Values.kind "fleetlock" }}
{{- $host := splitList "/" .Values.image | first }}
{{- $metricsPort := include "metrics port" . }}
{{- $measured := empty $metricsPort | ternary "" (printf "--set, \"metrics.listen=:%s\", " $metricsPort) }}
metadata:
  labels:
    {{- include "labels" . | nindent 4 }}
  annotations:
    {{- if ne .Values.kind "cronjob" }}
    node-rollout.dev/settings-sha256: {{ .Values.settings | sha256sum }}
    {{- end }}
    {{- if not $serves }}
    cluster-autoscaler.kubernetes.io/safe-to-evict: "false"
    karpenter.sh/do-not-disrupt: "true"
    {{- end }}
spec:
  {{- if eq .Values.kind "cronjob" }}
  restartPolicy: Never
  {{- end }}
  serviceAccountName: {{ .Release.Name | quote }}
  automountServiceAccountToken: true
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ $serves | ternary 60 .Values.terminationGracePeriodSeconds }}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets: {{ toJson . }}
  {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector: {{ toJson . }}
  {{- end }}
  tolerations:
    - {key: node-role.kubernetes.io/control-plane, operator: Exists}
    - {key: node-role.kubernetes.io/etcd, operator: Exists}
    - {key: node-role.kubernetes.io/controller, operator: Exists}
    - {key: CriticalAddonsOnly, operator: Exists}
    {{- range .Values.tolerations }}
    - {{ toJson . }}
    {{- end }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 65532
    runAsGroup: 65532
    fsGroup: 65532
    seccompProfile: {type: RuntimeDefault}
  affinity:
    nodeAffinity:
      preferredDuringSchedulingIgnoredDuringExecution:
        - weight: 100
          preference:
            matchExpressions:
              - {key: node-rollout.dev/deferred, operator: DoesNotExist}
        - weight: 10
          preference:
            matchExpressions:
              - {key: node-role.kubernetes.io/control-plane, operator: Exists}
        - weight: 10
          preference:
            matchExpressions:
              - {key: node.kubernetes.io/controller, operator: Exists}
    {{- if $serves }}
    podAntiAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        - topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels:
              {{- include "labels" . | nindent 14 }}
  topologySpreadConstraints:
    - maxSkew: 1
      topologyKey: topology.kubernetes.io/zone
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "labels" . | nindent 10 }}
    {{- else if eq .Values.kind "deployment" }}
    podAntiAffinity:
      preferredDuringSchedulingIgnoredDuringExecution:
        - weight: 100
          podAffinityTerm:
            topologyKey: kubernetes.io/hostname
            labelSelector:
              matchLabels:
                {{- include "labels" . | nindent 16 }}
    {{- end }}
  containers:
    - name: rollout
      image: {{ required "image: the one that you built" .Values.image | quote }}
      imagePullPolicy: {{ and (contains "/" .Values.image) (or (regexMatch "[.:]" $host) (eq $host "localhost")) | ternary "IfNotPresent" "Never" }}
      {{- if $serves }}
      args: [fleetlock, serve, --listen, ":8080", {{ if .Values.tlsSecret }}--tls-cert, /etc/rollout/tls/tls.crt, --tls-key, /etc/rollout/tls/tls.key, {{ end }}{{ $measured }}--output, json, --set, "lock.namespace={{ include "lock namespace" . }}"]
      {{- else if eq .Values.kind "deployment" }}
      args: [operate, --every, {{ .Values.everySeconds }}s, {{ $measured }}--output, json, --set, "lock.namespace={{ include "lock namespace" . }}"]
      {{- else }}
      args: [operate, --once, --active-deadline, {{ .Values.activeDeadlineSeconds | int }}s, --output, json, --set, "lock.namespace={{ include "lock namespace" . }}"]
      {{- end }}
      env:
        {{- if or .Values.settings $serves }}
        - {name: ROLLOUT_CONFIG, value: /etc/rollout/settings/rollout.toml}
        {{- end }}
        {{- if not $serves }}
        - {name: ROLLOUT_KNOWN_HOSTS, value: /etc/rollout/settings/known_hosts}
        - {name: ROLLOUT_SSH_KEY, value: /etc/rollout/ssh/ssh-privatekey}
        {{- end }}
        - {name: HOME, value: /tmp}
        - {name: TMPDIR, value: /tmp}
        - {name: XDG_STATE_HOME, value: /tmp/state}
        {{- if dig "drain" "disable-eviction" false (fromToml .Values.settings) }}
        - {name: ROLLOUT_DISABLE_EVICTION, value: "true"}
        {{- end }}
        - {name: ROLLOUT_NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
        - {name: ROLLOUT_POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
        - {name: ROLLOUT_POD_NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
      {{- with .Values.envSecret }}
      envFrom:
        - secretRef: {name: {{ . | quote }}}
      {{- end }}
      resources: {{ toJson .Values.resources }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {drop: [ALL]}
      {{- with include "port" . }}
      ports:
        {{- if $serves }}
        - {name: fleetlock, containerPort: 8080, protocol: TCP}
        {{- end }}
        {{- with $metricsPort }}
        - {name: metrics, containerPort: {{ . }}, protocol: TCP}
        {{- end }}
      startupProbe:
        {{- include "probe" (dict "root" $ "path" "/healthz" "every" 5 "failures" 24) | indent 8 }}
      livenessProbe:
        {{- include "probe" (dict "root" $ "path" "/healthz" "every" ($serves | ternary 10 30) "failures" 6) | indent 8 }}
      {{- if $serves }}
      readinessProbe:
        {{- include "probe" (dict "root" $ "path" "/readyz" "every" 10 "failures" 3) | indent 8 }}
      {{- end }}
      {{- end }}
      volumeMounts:
        - {name: settings, mountPath: /etc/rollout/settings, readOnly: true}
        {{- if not $serves }}
        - {name: ssh, mountPath: /etc/rollout/ssh, readOnly: true}
        {{- else if .Values.tlsSecret }}
        - {name: tls, mountPath: /etc/rollout/tls, readOnly: true}
        {{- end }}
        - {name: scratch, mountPath: /tmp}
  volumes:
    - name: settings
      configMap:
        name: {{ .Release.Name }}-config
    {{- if not $serves }}
    - name: ssh
      secret: {secretName: {{ .Values.sshSecret | quote }}, defaultMode: 0440}
    {{- else if .Values.tlsSecret }}
    - name: tls
      secret: {secretName: {{ .Values.tlsSecret | quote }}, defaultMode: 0440}
    {{- end }}
    - name: scratch
      emptyDir: {sizeLimit: 256Mi}
{{- end }}
