{{/* What a PodMonitor and a ServiceMonitor have in common: the endpoint that is scraped. Takes its values. */}}
{{- define "chipwatch.endpoint" -}}
port: {{ .port }}
path: {{ .path | quote }}
interval: {{ .interval }}
scheme: {{ .scheme }}
{{- with .scrapeTimeout }}
scrapeTimeout: {{ . }}
{{- end }}
{{- range $key := list "relabelings" "metricRelabelings" "tlsConfig" "basicAuth" }}
{{- with index $ $key }}
{{ $key }}:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Which targets, and what of them the series get. Takes root and monitor. */}}
{{- define "chipwatch.targets" -}}
selector:
  matchLabels:
    {{- include "chipwatch.selector" (dict "root" .root "component" "") | nindent 4 }}
namespaceSelector:
  matchNames: [{{ include "chipwatch.namespace" .root }}]
{{- range $key := list "podTargetLabels" "targetLabels" "attachMetadata" }}
{{- with index $.monitor $key }}
{{ $key }}:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end -}}
