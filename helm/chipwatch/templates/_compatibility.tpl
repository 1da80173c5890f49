{{/*
In the place of another exporter: what still has the chart's own value gets the one that this exporter's dashboards, rules and
ServiceMonitors expect. Each file of templates begins with it, since Helm promises no order; twice gives the same as once.
*/}}
{{- define "chipwatch.compatible" -}}
{{- $v := .Values -}}
{{- if $v.compatibility -}}
{{- $operator := eq $v.compatibility "gpu-operator" -}}
{{- $name := ternary "nvidia-dcgm-exporter" "dcgm-exporter" $operator -}}
{{- if not $v.nameOverride }}{{ $_ := set $v "nameOverride" $name }}{{ end -}}
{{- if and $operator (not $v.fullnameOverride) }}{{ $_ := set $v "fullnameOverride" $name }}{{ end -}}
{{- $labels := ternary (dict "app" $name) (dict "app.kubernetes.io/component" $name) $operator -}}
{{- $_ := set $v.prometheus.service "labels" (merge (dict) $v.prometheus.service.labels $labels) -}}
{{- if $operator -}}
{{- $_ := set $v "podLabels" (merge (dict) $v.podLabels $labels) -}}
{{- $_ := set $v.serviceMonitor "labels" (merge (dict) $v.serviceMonitor.labels $labels) -}}
{{- if eq (toJson $v.nodeSelector) (toJson (dict "kubernetes.io/os" "linux")) }}{{ $_ := set $v.nodeSelector "nvidia.com/gpu.deploy.dcgm-exporter" "true" }}{{ end -}}
{{- $scrape := dict "prometheus.io/scrape" "true" "prometheus.io/port" "9400" -}}
{{- $_ := set $v.prometheus.service "annotations" (merge (dict) $v.prometheus.service.annotations $scrape) -}}
{{- end -}}
{{- if not (has "prometheus" $v.sinks) }}{{ $_ := set $v "sinks" (append $v.sinks "prometheus") }}{{ end -}}
{{- if eq (include "chipwatch.whole" $v.prometheus.port) "9465" }}{{ $_ := set $v.prometheus "port" 9400 }}{{ end -}}
{{- $_ := set $v.prometheus "machineLabels" true -}}
{{- $_ := set $v.prometheus.service "enabled" true -}}
{{- if .Capabilities.APIVersions.Has "monitoring.coreos.com/v1/ServiceMonitor" }}{{ $_ := set $v.serviceMonitor "enabled" true }}{{ end -}}
{{- if eq $v.names "native" }}{{ $_ := set $v "names" "dcgm" }}{{ end -}}
{{- if eq $v.level "basic" }}{{ $_ := set $v "level" "detailed" }}{{ end -}}
{{- if eq ($v.commonDims | join ",") "k8s_cluster,k8s_node" -}}
{{- $_ := set $v "commonDims" (list "hostname") -}}
{{- $_ := set $v "extraArgs" (concat $v.extraArgs (list "--dim" "hostname=$(K8S_NODE_NAME)")) -}}
{{- end -}}
{{- $_ := set $v.nvidia "enabled" true -}}
{{- $_ := set $v.jobs "podResources" true -}}
{{- if and (eq $v.probes.type "exec") (not $v.extraSinks) (not (without $v.sinks "prometheus" "stdout")) }}{{ $_ := set $v.probes "type" "http" }}{{ end -}}
{{- end -}}
{{- end -}}

{{/* The name of the port that is scraped. */}}
{{- define "chipwatch.portName" -}}
{{- ternary "gpu-metrics" "metrics" (eq (default "" .Values.compatibility) "gpu-operator") -}}
{{- end -}}
