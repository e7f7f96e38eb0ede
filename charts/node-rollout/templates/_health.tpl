{{- /* The rules of a role that may read these objects, each PLURAL.GROUP/NAMESPACE/NAME. */}}
{{- define "health rules" }}
{{- range default list . }}
{{- $parts := splitList "/" . }}
{{- $resource := splitn "." 2 (first $parts) }}
  - apiGroups: [{{ $resource._1 | default "" | quote }}]
    resources: [{{ $resource._0 | quote }}]
    resourceNames: [{{ last $parts | quote }}]
    verbs: [get]
{{- end }}
{{- end }}
