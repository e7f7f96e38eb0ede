{{- /* Refuses what a pod cannot use or may not show, and keys that settings.schema.json does not have. */}}
{{- define "check settings" }}
{{- $settings := fromToml .Values.settings }}
{{- with $settings.Error }}
{{- fail (printf "settings: %v" .) }}
{{- end }}
{{- $schema := .Files.Get "settings.schema.json" | fromJson }}
{{- include "check table" (dict "of" "" "table" $settings "schema" $schema) }}
{{- range $index, $line := splitList "\n" .Values.settings }}
{{- if regexMatch (include "secret" $) $line }}
{{- fail (printf "settings:%d may contain a secret and would be stored in a ConfigMap: use envSecret" (add1 $index)) }}
{{- end }}
{{- end }}
{{- $account := "the pod uses its service account" }}
{{- $unfit := dict "cluster.kubeconfig" $account "cluster.context" $account "gates.interactive" "a pod cannot ask for confirmation" "notify.url" "it is secret: use envSecret" }}
{{- if eq .Values.kind "deployment" }}
{{- $_ := set $unfit "operate.every" "set everySeconds instead" }}
{{- else if eq .Values.kind "cronjob" }}
{{- $_ := set $unfit "operate.active-deadline" "set activeDeadlineSeconds instead" }}
{{- end }}
{{- range $name, $why := $unfit }}
{{- $path := splitList "." $name }}
{{- if hasKey (dig (first $path) dict $settings) (last $path) }}
{{- fail (printf "settings: %s: %s" $name $why) }}
{{- end }}
{{- end }}
{{- if and (ne .Values.kind "cronjob") (dig "metrics" "listen" "" $settings) (not (include "metrics port" .)) }}
{{- fail "settings: metrics.listen: set metricsPort instead, which also opens the port" }}
{{- end }}
{{- end }}

{{- define "lock namespace" -}}
{{- dig "lock" "namespace" "kube-system" (fromToml .Values.settings) }}
{{- end }}

{{- /* As in rollout/cli/settings/rules.py. */}}
{{- define "secret" }}(?i)://[^/\s@]*:[^/\s]+@|-----BEGIN|\bbearer\s+\S|(token|passw(or)?d|passphrase|secret|api[-_]?key)\w*['\"]?\s*[=:]\s*\S{{ end }}

{{- /* The keys of a table; `of` is its name with a dot, or empty. */}}
{{- define "check table" }}
{{- range $key, $value := .table }}
{{- $schema := get $.schema.properties $key }}
{{- if not $schema }}
{{- $known := keys $.schema.properties | sortAlpha | join ", " }}
{{- fail (printf "settings: %s%s: unknown setting; known here: %s" $.of $key $known) }}
{{- end }}
{{- include "check value" (dict "name" (print $.of $key) "value" $value "schema" $schema) }}
{{- end }}
{{- end }}

{{- /* A value is a table, a list of tables, or neither, as its schema has it. */}}
{{- define "check value" }}
{{- if eq (dig "items" "type" "" .schema) "object" }}
{{- if not (kindIs "slice" .value) }}
{{- fail (printf "settings: %s: write each one as [[%s]]" .name .name) }}
{{- end }}
{{- range .value }}
{{- include "check value" (dict "name" $.name "value" . "schema" $.schema.items) }}
{{- end }}
{{- else if ne (kindIs "map" .value) (eq (dig "type" "" .schema | toString) "object") }}
{{- fail (printf "settings: %s: %s" .name (kindIs "map" .value | ternary "a value, not a table" "a table, not a value")) }}
{{- else if kindIs "map" .value }}
{{- include "check table" (dict "of" (printf "%s." .name) "table" .value "schema" .schema) }}
{{- end }}
{{- end }}
