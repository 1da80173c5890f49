{{/*
End the rendering with a message. `helm lint` lets `fail` pass (helm/helm, pkg/engine: "Don't fail on fail when linting"),
so a template that is not there, and has the message for its name, ends it there.
*/}}
{{- define "chipwatch.refuse" -}}
{{- fail . -}}
{{- include . . -}}
{{- end -}}

{{/* Combinations that no schema can see. */}}
{{- define "chipwatch.validate" -}}
{{- $v := .Values -}}
{{- if not (or $v.daemonSet.enabled $v.deployment.enabled) -}}
{{- include "chipwatch.refuse" "daemonSet.enabled, deployment.enabled: both are false, so nothing would run" -}}
{{- end -}}
{{- if not (concat $v.sinks $v.extraSinks) -}}
{{- include "chipwatch.refuse" "sinks: none is given, so nothing would be sent; choose from: cloudwatch, google, prometheus, stdout" -}}
{{- end -}}
{{- range $v.extraSinks -}}
{{- if has . (list "cloudwatch" "google" "prometheus" "stdout") -}}
{{- include "chipwatch.refuse" (printf "extraSinks: %s is no sink of a plugin; name it in sinks" .) -}}
{{- end -}}
{{- end -}}
{{- if and $v.google.project (not (has "google" $v.sinks)) -}}
{{- include "chipwatch.refuse" "google.project: the sink google is not among sinks" -}}
{{- end -}}
{{- range $key := list "region" "endpointUrl" -}}
{{- if and (index $v.cloudwatch $key) (not (has "cloudwatch" $v.sinks)) -}}
{{- include "chipwatch.refuse" (printf "cloudwatch.%s: the sink cloudwatch is not among sinks" $key) -}}
{{- end -}}
{{- end -}}
{{- if and (eq $v.probes.type "exec") (not $v.extraSinks) (not (without $v.sinks "prometheus" "stdout")) -}}
{{- include "chipwatch.refuse" (printf "probes.type: exec reads the heartbeat beside the spool, and the sink %s keeps none; choose http or none" (join ", " $v.sinks)) -}}
{{- end -}}
{{- $tables := default dict $v.config.sinks -}}
{{- range $name, $_ := $tables -}}
{{- if not (has $name (concat $v.sinks $v.extraSinks)) -}}
{{- include "chipwatch.refuse" (printf "config.sinks.%s: this sink is not among sinks or extraSinks" $name) -}}
{{- end -}}
{{- end -}}
{{- range $path := list "cloudwatch.namespace" "cloudwatch.region" "cloudwatch.endpoint_url" "google.project" "google.resource" "prometheus.listen" "prometheus.web_config_file" "prometheus.machine_labels" -}}
{{- $parts := splitList "." $path -}}
{{- if hasKey (default dict (index $tables (first $parts))) (last $parts) -}}
{{- include "chipwatch.refuse" (printf "config.sinks.%s: the value %s says this; do not give it twice" $path ($path | replace "endpoint_url" "endpointUrl" | replace "listen" "port" | replace "web_config_file" "webConfigSecret" | replace "machine_labels" "machineLabels")) -}}
{{- end -}}
{{- end -}}
{{- if and (hasKey $v.podSecurityContext "runAsUser") $v.podSecurityContext.runAsNonRoot -}}
{{- if eq (include "chipwatch.whole" $v.podSecurityContext.runAsUser) "0" -}}
{{- include "chipwatch.refuse" "podSecurityContext: runAsUser 0 contradicts runAsNonRoot true" -}}
{{- end -}}
{{- end -}}
{{- if hasKey $v.securityContext "privileged" -}}
{{- include "chipwatch.refuse" "securityContext.privileged: the value privileged says this" -}}
{{- end -}}
{{- range $volume := $v.extraVolumes -}}
{{- if has $volume.name (list "config" "spool" "tmp" "web" "proc" "sys" "root" "kmsg" "neuron" "nvidia") -}}
{{- include "chipwatch.refuse" (printf "extraVolumes: the name %s is taken by a volume of this chart" $volume.name) -}}
{{- end -}}
{{- end -}}
{{- if $v.daemonSet.enabled -}}{{- include "chipwatch.validate.daemonSet" . -}}{{- end -}}
{{- if $v.deployment.enabled -}}{{- include "chipwatch.validate.deployment" . -}}{{- end -}}
{{- if and $v.serviceAccount.annotations (not $v.serviceAccount.create) -}}
{{- include "chipwatch.refuse" "serviceAccount.annotations: serviceAccount.create is false, so nothing would carry them" -}}
{{- end -}}
{{- if not (has "prometheus" $v.sinks) -}}
{{- range $key, $wanted := dict "podMonitor.enabled" $v.podMonitor.enabled "prometheus.service.enabled" $v.prometheus.service.enabled "prometheus.webConfigSecret" $v.prometheus.webConfigSecret -}}
{{- if $wanted -}}
{{- include "chipwatch.refuse" (printf "%s: the sink prometheus is not among sinks" $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "chipwatch.validate.daemonSet" -}}
{{- $v := .Values -}}
{{- if and $v.networkPolicy.enabled $v.hostNetwork -}}
{{- include "chipwatch.refuse" "networkPolicy.enabled: a policy does not bind pods with hostNetwork; turn one of them off" -}}
{{- end -}}
{{- if and $v.jobs.podResources (not $v.jobs.enabled) -}}
{{- include "chipwatch.refuse" "jobs.podResources: takes jobs.enabled too" -}}
{{- end -}}
{{- if and (hasKey $v "hostUsers") (not (default false $v.hostUsers)) -}}
{{- range $key := list "hostPID" "hostNetwork" "privileged" -}}
{{- if index $v $key -}}
{{- include "chipwatch.refuse" (printf "hostUsers: false excludes %s" $key) -}}
{{- end -}}
{{- end -}}
{{- if $v.jobs.enabled -}}
{{- include "chipwatch.refuse" "hostUsers: false excludes jobs.enabled" -}}
{{- end -}}
{{- range $key := list "proc" "sys" -}}
{{- if index $v.hostMounts $key -}}
{{- include "chipwatch.refuse" (printf "hostUsers: false excludes hostMounts.%s: the kernel has no ID-mapped mounts of /%s, and the container would not start" $key $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and (eq $v.dnsPolicy "None") (not $v.dnsConfig) -}}
{{- include "chipwatch.refuse" "dnsConfig: required with dnsPolicy None" -}}
{{- end -}}
{{- range $key := list "spool.hostPath" "neuron.toolsHostPath" "nvidia.driverHostPath" -}}
{{- $parts := splitList "." $key -}}
{{- $path := index $v (first $parts) (last $parts) -}}
{{- if has ".." (splitList "/" $path) -}}
{{- include "chipwatch.refuse" (printf "%s: Kubernetes refuses a path with .. in it: %s" $key $path) -}}
{{- end -}}
{{- end -}}
{{- if and (eq $v.spool.type "hostPath") (eq $v.spool.hostPath "/") -}}
{{- include "chipwatch.refuse" "spool.hostPath: / is no folder for a spool" -}}
{{- end -}}
{{- if and $v.nvidia.driverHostPath (not $v.nvidia.enabled) -}}
{{- include "chipwatch.refuse" "nvidia.driverHostPath: nvidia.enabled is false" -}}
{{- end -}}
{{- if and $v.nvidia.driverHostPath (not $v.privileged) -}}
{{- include "chipwatch.refuse" "nvidia.driverHostPath: without a container runtime that hands out GPUs their device files need privileged" -}}
{{- end -}}
{{- if and $v.hostMounts.kmsg (not $v.privileged) -}}
{{- include "chipwatch.refuse" "hostMounts.kmsg: a container may open /dev/kmsg only with privileged" -}}
{{- end -}}
{{- if and $v.neuron.enabled (not $v.hostMounts.sys) -}}
{{- include "chipwatch.refuse" "neuron.enabled: the devices are looked for in the host's /sys; turn hostMounts.sys on" -}}
{{- end -}}
{{- if and (has "k8s_node" $v.commonDims) (hasKey $v.dims "k8s_node") -}}
{{- include "chipwatch.refuse" "dims.k8s_node: all nodes would send the same series; leave it to the downward API" -}}
{{- end -}}
{{- end -}}

{{- define "chipwatch.validate.deployment" -}}
{{- $v := .Values -}}
{{- if not $v.deployment.endpoints -}}
{{- include "chipwatch.refuse" "deployment.endpoints: required with deployment.enabled: what to scrape" -}}
{{- end -}}
{{- range $word := list "instance_id" "instance_type" "ami_id" "availability_zone" "autoscaling_group" "hostname" "k8s_node" "k8s_pod" "run_id" "neuron_runtime_tag" -}}
{{- if has $word $v.deployment.commonDims -}}
{{- include "chipwatch.refuse" (printf "deployment.commonDims: %s would be that of the node or pod where the scraper happens to run" $word) -}}
{{- end -}}
{{- end -}}
{{- end -}}
