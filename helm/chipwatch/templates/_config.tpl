{{/* The agent's configuration of one component (agent or scraper). Takes root and component. */}}
{{- define "chipwatch.config" -}}
{{- $v := .root.Values -}}
{{- $agent := eq .component "agent" -}}
{{- $own := dict
  "sink" (concat $v.sinks $v.extraSinks)
  "interval" $v.interval
  "level" $v.level
  "names" $v.names
  "log_level" $v.logLevel
  "common_dims" (ternary $v.commonDims $v.deployment.commonDims $agent)
  "spool" "/var/lib/chipwatch"
  "spool_bytes" $v.spool.bytes
-}}
{{- if hasKey $v "window" }}{{ $_ := set $own "window" $v.window }}{{ end -}}
{{- if $v.highResolutionMetrics }}{{ $_ := set $own "high_resolution_metrics" true }}{{ end -}}
{{- if $v.dims }}{{ $_ := set $own "dims" $v.dims }}{{ end -}}
{{- if eq $v.probes.type "http" -}}
{{- $_ := set $own "health" (printf "%s:%s" (ternary "127.0.0.1" "0.0.0.0" (and $agent $v.hostNetwork)) (include "chipwatch.whole" $v.probes.port)) -}}
{{- end -}}
{{- if $agent -}}
{{- with $v.collectors }}{{ $_ := set $own "collector" (concat . (keys $v.extraCollectors | sortAlpha)) }}{{ end -}}
{{- with $v.noCollectors }}{{ $_ := set $own "no_collector" . }}{{ end -}}
{{- if $v.hostMounts.proc }}{{ $_ := set $own "proc" "/host/proc" }}{{ end -}}
{{- if $v.hostMounts.sys }}{{ $_ := set $own "sys" "/host/sys" }}{{ end -}}
{{- if $v.hostMounts.root }}{{ $_ := set $own "root" "/host/root" }}{{ end -}}
{{- $table := dict -}}
{{- if $v.jobs.enabled }}{{ $_ := set $table "logs" "/host/log" }}{{ end -}}
{{- if $v.jobs.podResources }}{{ $_ := set $table "kubelet" "/host/pod-resources/kubelet.sock" }}{{ end -}}
{{- with $table }}{{ $_ := set $own "collectors" (dict "jobs" .) }}{{ end -}}
{{- else -}}
{{- $_ := set $own "collector" (list "openmetrics") -}}
{{- $_ := set $own "collectors" (dict "openmetrics" (dict "endpoints" $v.deployment.endpoints)) -}}
{{- end -}}
{{- $sinks := dict -}}
{{- if has "cloudwatch" $v.sinks -}}
{{- $table := dict "namespace" $v.cloudwatch.namespace -}}
{{- with $v.cloudwatch.region }}{{ $_ := set $table "region" . }}{{ end -}}
{{- with $v.cloudwatch.endpointUrl }}{{ $_ := set $table "endpoint_url" . }}{{ end -}}
{{- $_ := set $sinks "cloudwatch" $table -}}
{{- end -}}
{{- if has "google" $v.sinks -}}
{{- $table := dict "resource" (ternary $v.google.resource "auto" $agent) -}}
{{- with $v.google.project }}{{ $_ := set $table "project" . }}{{ end -}}
{{- $_ := set $sinks "google" $table -}}
{{- end -}}
{{- if has "prometheus" $v.sinks -}}
{{- $table := dict "listen" (printf "0.0.0.0:%s" (include "chipwatch.whole" $v.prometheus.port)) -}}
{{- if $v.prometheus.webConfigSecret }}{{ $_ := set $table "web_config_file" "/etc/chipwatch-web/web-config.yml" }}{{ end -}}
{{- if $v.prometheus.machineLabels }}{{ $_ := set $table "machine_labels" true }}{{ end -}}
{{- $_ := set $sinks "prometheus" $table -}}
{{- end -}}
{{- if $sinks }}{{ $_ := set $own "sinks" $sinks }}{{ end -}}
{{- $given := deepCopy $v.config -}}
{{- with $v.extraCollectors }}{{ $_ := set $given "collectors" (merge (deepCopy .) (default dict $given.collectors)) }}{{ end -}}
{{- if not $agent }}{{ $given = omit $given "collectors" "pid" }}{{ end -}}
{{- include "chipwatch.toml" (dict "table" (mergeOverwrite $given $own) "path" list) -}}
{{- end -}}
