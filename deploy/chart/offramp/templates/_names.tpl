{{/* Labels that Helm's users expect, on every object. */}}
{{- define "offramp.labels" -}}
app.kubernetes.io/part-of: offramp
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/instance: {{ .Release.Name }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "offramp.priority" -}}
{{ .Values.priorityClass.name | default "offramp" }}
{{- end }}

{{/* The objects of a file that kustomize has, too, without the namespace. Call with (dict "root" . "file" NAME). */}}
{{- define "offramp.file" -}}
{{- $root := .root }}
{{- $text := .root.Files.Get .file | replace "namespace: offramp\n" (printf "namespace: %s\n" .root.Release.Namespace)
  | replace "offramp-aggregator.offramp" (printf "offramp-aggregator.%s" .root.Release.Namespace)
  | replace "system:serviceaccount:offramp:" (printf "system:serviceaccount:%s:" .root.Release.Namespace) }}
{{- range splitList "\n---\n" $text }}
{{- $object := fromYaml . }}
{{- if and $object (ne $object.kind "Namespace") }}
{{- $labels := merge (fromYaml (include "offramp.labels" $root)) ($object.metadata.labels | default dict) }}
{{- $_ := set $object.metadata "labels" $labels }}
---
{{ toYaml $object }}
{{- end }}
{{- end }}
{{- end }}

{{/* The folders of the host's that the agent always reads. */}}
{{- define "offramp.folders" -}}
- {name: host-proc, path: /proc}
- {name: host-etc, path: /etc}
- {name: host-usr, path: /usr}
- {name: host-lib, path: /lib}
{{- end }}
