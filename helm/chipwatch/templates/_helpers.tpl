{{/* Names and labels. */}}

{{- define "chipwatch.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "chipwatch.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "chipwatch.name" . -}}
{{- ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "chipwatch.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride -}}
{{- end -}}

{{/* What tells the pods of one component from all others; never changes in an upgrade. Takes root and component. */}}
{{- define "chipwatch.selector" -}}
app.kubernetes.io/name: {{ include "chipwatch.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- with .component }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end -}}

{{- define "chipwatch.labels" -}}
{{- $own := dict "helm.sh/chart" (printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-")
  "app.kubernetes.io/version" .root.Chart.AppVersion "app.kubernetes.io/managed-by" .root.Release.Service
-}}
{{- $parent := dict "app.kubernetes.io/part-of" "chipwatch" -}}
{{- toYaml (merge (include "chipwatch.selector" . | fromYaml) $own .root.Values.commonLabels $parent) -}}
{{- end -}}

{{/* Metadata of an object. Takes root and component, and perhaps suffix, annotations and labels. */}}
{{- define "chipwatch.metadata" -}}
name: {{ include "chipwatch.fullname" .root }}{{ .suffix }}
namespace: {{ include "chipwatch.namespace" .root }}
labels:
  {{- toYaml (merge (include "chipwatch.labels" . | fromYaml) (default dict .labels)) | nindent 2 }}
{{- with merge (dict) (default dict .annotations) .root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "chipwatch.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "chipwatch.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "chipwatch.image" -}}
{{- with .Values -}}
{{- $registry := default .image.registry (default dict .global).imageRegistry -}}
{{- if $registry }}{{ trimSuffix "/" $registry }}/{{ end }}{{ .image.repository -}}
{{- if .image.digest }}@{{ .image.digest }}{{ else }}:{{ default $.Chart.AppVersion .image.tag }}{{ end -}}
{{- end -}}
{{- end -}}

{{/* A number as Helm may hold it (from a file, from --set, from the chart's own values) -> a whole number. */}}
{{- define "chipwatch.whole" -}}
{{- if kindIs "float64" . }}{{ printf "%.0f" . }}{{ else }}{{ . }}{{ end -}}
{{- end -}}

{{/* The port of a URL, or nothing. */}}
{{- define "chipwatch.port" -}}
{{- regexFind ":[0-9]+$" (urlParse .).host | trimPrefix ":" -}}
{{- end -}}
