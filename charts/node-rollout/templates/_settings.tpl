{{- /* Refuses settings that are not TOML, and keys that settings.schema.json does not have. */}}
{{- define "check settings" }}
{{- $settings := fromToml .Values.settings }}
{{- with $settings.Error }}
{{- fail (printf "settings: %v" .) }}
{{- end }}
{{- $schema := .Files.Get "settings.schema.json" | fromJson }}
{{- include "check table" (dict "of" "" "table" $settings "schema" $schema) }}
{{- end }}

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
