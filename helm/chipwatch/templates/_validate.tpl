{{/*
End the rendering with a message. `helm lint` lets `fail` pass (helm/helm, pkg/engine: "Don't fail on fail when linting"),
so a template that is not there, and has the message for its name, ends it there.
*/}}
{{- define "chipwatch.refuse" -}}
{{- fail . -}}
{{- include . . -}}
{{- end -}}

{{/* Combinations that no schema can see. What must be given ends a rendering by `fail` alone, so that `helm lint` passes without values. */}}
{{- define "chipwatch.validate" -}}
{{- $v := .Values -}}
{{- $missing := list -}}
{{- if not $v.clusterName }}{{ $missing = append $missing "clusterName: required: the name of the cluster, which a pod cannot find out" }}{{ end -}}
{{- if not $v.image.repository }}{{ $missing = append $missing "image.repository: required: no image is published" }}{{ end -}}
{{- if not (concat $v.sinks $v.extraSinks) }}{{ $missing = append $missing "sinks: none is given, so nothing would be sent; choose from: cloudwatch, cloudwatch-otlp, google, mlflow, otlp, prometheus, stdout" }}{{ end -}}
{{- with $missing }}{{ fail (join "\n" .) }}{{ end -}}
{{- if not (or $v.daemonSet.enabled $v.deployment.enabled) -}}
{{- include "chipwatch.refuse" "daemonSet.enabled, deployment.enabled: both are false, so nothing would run" -}}
{{- end -}}
{{- range $v.extraSinks -}}
{{- if has . (list "cloudwatch" "cloudwatch-otlp" "google" "mlflow" "otlp" "prometheus" "stdout") -}}
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
{{- if and (eq $v.probes.type "exec") $v.sinks (not $v.extraSinks) (not (without $v.sinks "prometheus" "stdout")) -}}
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
{{- $rights := dict -}}
{{- range $key := list "podSecurityContext" "securityContext" -}}
{{- range $name, $value := index $v $key }}{{ $_ := set $rights $name $value }}{{ end -}}
{{- if and (hasKey $rights "runAsUser") $rights.runAsNonRoot (eq (include "chipwatch.whole" $rights.runAsUser) "0") -}}
{{- include "chipwatch.refuse" (printf "%s: runAsUser 0 contradicts runAsNonRoot true" $key) -}}
{{- end -}}
{{- end -}}
{{- if and (eq (default "" $v.securityContext.procMount) "Unmasked") (or (not (hasKey $v "hostUsers")) $v.hostUsers) -}}
{{- include "chipwatch.refuse" "securityContext.procMount: Unmasked takes hostUsers false" -}}
{{- end -}}
{{- if hasKey $v.securityContext "privileged" -}}
{{- include "chipwatch.refuse" "securityContext.privileged: the value privileged says this" -}}
{{- end -}}
{{- range $word := $v.collectors -}}
{{- if has $word $v.noCollectors -}}
{{- include "chipwatch.refuse" (printf "noCollectors: %s is among collectors too; remove it from one of them" $word) -}}
{{- end -}}
{{- end -}}
{{- $windows := dict "window" $v.window -}}
{{- range $name, $table := $tables }}{{ $_ := set $windows (printf "config.sinks.%s.window" $name) (default dict $table).window }}{{ end -}}
{{- range $path, $window := $windows -}}
{{- $seconds := include "chipwatch.seconds" $window | float64 -}}
{{- if and (gt $seconds 0.0) (lt $seconds (toString $v.interval | float64)) -}}
{{- include "chipwatch.refuse" (printf "%s: %v s is below the interval of %v s" $path $window $v.interval) -}}
{{- end -}}
{{- end -}}
{{- if has "google" $v.sinks -}}
{{- $table := default dict $tables.google -}}
{{- $window := ternary $table.window $v.window (hasKey $table "window") -}}
{{- $short := and (kindIs "invalid" $window) $v.highResolutionMetrics -}}
{{- if or $short (and (not (kindIs "invalid" $window)) (lt (include "chipwatch.seconds" $window | float64) 10.0)) -}}
{{- include "chipwatch.refuse" (printf "%s: Google takes two points of a series only if they are 10 s apart; set config.sinks.google.window to 10 or more" (ternary "highResolutionMetrics" "window" $short)) -}}
{{- end -}}
{{- end -}}
{{- include "chipwatch.validate.sinks" . -}}
{{- if has "cloudwatch" $v.sinks -}}
{{- range $name, $value := $v.dims -}}
{{- if not (and (regexMatch "^[ -~]+$" $name) (regexMatch "^[ -~]*[!-~][ -~]*$" $value) (not (hasPrefix ":" $name))) -}}
{{- include "chipwatch.refuse" (printf "dims.%s: CloudWatch takes names and values of printable ASCII, not all blank" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if $v.daemonSet.enabled -}}{{- include "chipwatch.validate.daemonSet" . -}}{{- end -}}
{{- if $v.deployment.enabled -}}{{- include "chipwatch.validate.deployment" . -}}{{- end -}}
{{- range $resource, $least := $v.verticalPodAutoscaler.minAllowed -}}
{{- $most := index $v.verticalPodAutoscaler.maxAllowed $resource -}}
{{- if and $most (gt (include "chipwatch.quantity" $least | float64) (include "chipwatch.quantity" $most | float64)) -}}
{{- include "chipwatch.refuse" (printf "verticalPodAutoscaler.minAllowed: %v %s is above maxAllowed of %v" $least $resource $most) -}}
{{- end -}}
{{- end -}}
{{- if and $v.verticalPodAutoscaler.enabled (not $v.daemonSet.enabled) -}}
{{- include "chipwatch.refuse" "verticalPodAutoscaler.enabled: it is for the DaemonSet, and daemonSet.enabled is false" -}}
{{- end -}}
{{- range $key, $monitor := dict "podMonitor" $v.podMonitor "serviceMonitor" $v.serviceMonitor -}}
{{- if and $monitor.tlsConfig (eq $monitor.scheme "http") -}}
{{- include "chipwatch.refuse" (printf "%s.tlsConfig: %s.scheme is http; set it to https" $key $key) -}}
{{- end -}}
{{- if gt (include "chipwatch.seconds" $monitor.scrapeTimeout | float64) (include "chipwatch.seconds" $monitor.interval | float64) -}}
{{- include "chipwatch.refuse" (printf "%s.scrapeTimeout: %s is above the interval of %s, and Prometheus refuses that" $key $monitor.scrapeTimeout $monitor.interval) -}}
{{- end -}}
{{- end -}}
{{- if and $v.serviceMonitor.enabled (not $v.prometheus.service.enabled) -}}
{{- include "chipwatch.refuse" "serviceMonitor.enabled: takes prometheus.service.enabled too" -}}
{{- end -}}
{{- if and $v.prometheus.service.enabled (regexMatch "^[0-9]" (include "chipwatch.fullname" .)) -}}
{{- include "chipwatch.refuse" "prometheus.service.enabled: the name of a Service begins with a letter; set fullnameOverride" -}}
{{- end -}}
{{- if and $v.serviceAccount.create (eq $v.serviceAccount.name "default") -}}
{{- include "chipwatch.refuse" "serviceAccount.name: every namespace has an account called default; set serviceAccount.create to false, or choose another name" -}}
{{- end -}}
{{- range $rule := concat $v.networkPolicy.extraIngress $v.networkPolicy.extraEgress -}}
{{- range $rule.ports -}}
{{- if and .endPort (or (kindIs "string" .port) (lt (int .endPort) (int .port))) -}}
{{- include "chipwatch.refuse" (printf "networkPolicy: endPort %v takes a port that is a number and not above it, got %v" .endPort .port) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and $v.serviceAccount.annotations (not $v.serviceAccount.create) -}}
{{- include "chipwatch.refuse" "serviceAccount.annotations: serviceAccount.create is false, so nothing would carry them" -}}
{{- end -}}
{{- if not (has "prometheus" $v.sinks) -}}
{{- range $key, $wanted := dict "podMonitor.enabled" $v.podMonitor.enabled "serviceMonitor.enabled" $v.serviceMonitor.enabled "prometheus.service.enabled" $v.prometheus.service.enabled "prometheus.webConfigSecret" $v.prometheus.webConfigSecret "prometheus.machineLabels" $v.prometheus.machineLabels -}}
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
{{- if and (hasKey $v "hostUsers") (not (default false $v.hostUsers)) -}}
{{- range $key := list "hostPID" "hostNetwork" "privileged" -}}
{{- if index $v $key -}}
{{- include "chipwatch.refuse" (printf "hostUsers: false excludes %s" $key) -}}
{{- end -}}
{{- end -}}
{{- range $key, $wanted := $v.jobs -}}
{{- if $wanted -}}
{{- include "chipwatch.refuse" (printf "hostUsers: false excludes jobs.%s" $key) -}}
{{- end -}}
{{- end -}}
{{- range $key := list "proc" "sys" -}}
{{- if index $v.hostMounts $key -}}
{{- include "chipwatch.refuse" (printf "hostUsers: false excludes hostMounts.%s: the kernel has no ID-mapped mounts of /%s, and the container would not start" $key $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and (eq $v.dnsPolicy "None") (not $v.dnsConfig.nameservers) -}}
{{- include "chipwatch.refuse" "dnsConfig: required with dnsPolicy None, with at least one of nameservers" -}}
{{- end -}}
{{- range $key := list "spool.hostPath" "neuron.toolsHostPath" "nvidia.driverHostPath" -}}
{{- $parts := splitList "." $key -}}
{{- $path := index $v (first $parts) (last $parts) -}}
{{- if has ".." (splitList "/" $path) -}}
{{- include "chipwatch.refuse" (printf "%s: Kubernetes refuses a path with .. in it: %s" $key $path) -}}
{{- end -}}
{{- end -}}
{{- if and (eq $v.spool.type "hostPath") (regexMatch "^/(|bin|boot|dev|etc|home|lib(32|64)?|media|mnt|opt|proc|root|run|sbin|srv|sys|tmp|usr|var)$|^/(boot|dev|etc|proc|sys)/|^/var/(cache|lib|lib/(containerd|docker|kubelet)|log|run|spool|tmp)$|^/var/lib/(containerd|docker|kubelet)/" (clean $v.spool.hostPath)) -}}
{{- include "chipwatch.refuse" (printf "spool.hostPath: %s is the host's own folder, and its owner would be changed; name one for the spool alone" $v.spool.hostPath) -}}
{{- end -}}
{{- if and $v.neuron.toolsHostPath (not $v.neuron.enabled) -}}
{{- include "chipwatch.refuse" "neuron.toolsHostPath: neuron.enabled is false" -}}
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
{{- include "chipwatch.validate.component" (dict "root" . "component" "agent" "prefix" "") -}}
{{- end -}}

{{- define "chipwatch.validate.deployment" -}}
{{- $v := .Values -}}
{{- include "chipwatch.validate.component" (dict "root" . "component" "scraper" "prefix" "deployment.") -}}
{{- if not $v.deployment.endpoints -}}
{{- include "chipwatch.refuse" "deployment.endpoints: required with deployment.enabled: what to scrape" -}}
{{- end -}}
{{- range $word := list "instance_id" "instance_type" "ami_id" "availability_zone" "autoscaling_group" "hostname" "k8s_node" "k8s_pod" "run_id" "neuron_runtime_tag" -}}
{{- if has $word $v.deployment.commonDims -}}
{{- include "chipwatch.refuse" (printf "deployment.commonDims: %s would be that of the node or pod where the scraper happens to run" $word) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* What a sink cannot do without: from its table, or from a variable; extraEnvFrom may have any. */}}
{{- define "chipwatch.validate.sinks" -}}
{{- $v := .Values -}}
{{- $names := list -}}
{{- range concat (ternary $v.extraEnv list $v.daemonSet.enabled) (ternary $v.deployment.extraEnv list $v.deployment.enabled) }}{{ $names = append $names .name }}{{ end -}}
{{- $given := join " " $names -}}
{{- if not (concat $v.extraEnvFrom $v.deployment.extraEnvFrom) -}}
{{- $tables := default dict $v.config.sinks -}}
{{- $otlp := default dict $tables.otlp -}}
{{- if and (has "otlp" $v.sinks) (eq (default "plain" $otlp.flavour) "plain") (not $otlp.endpoint_url) (not $v.hostNetwork) -}}
{{- if not (regexMatch "OTEL_EXPORTER_OTLP_(METRICS_)?ENDPOINT|CHIPWATCH_(SINKS__OTLP__)?ENDPOINT_URL" $given) -}}
{{- include "chipwatch.refuse" "config.sinks.otlp.endpoint_url: required, since nothing listens at http://localhost:4318 in the agent's own pod; name the receiver" -}}
{{- end -}}
{{- end -}}
{{- $mlflow := default dict $tables.mlflow -}}
{{- range $key, $variables := dict "tracking_uri" "MLFLOW_TRACKING_URI|CHIPWATCH_SINKS__MLFLOW__TRACKING_URI" "run" "MLFLOW_RUN_ID|CHIPWATCH_SINKS__MLFLOW__RUN" -}}
{{- if and (has "mlflow" $v.sinks) (not (index $mlflow $key)) (not (regexMatch $variables $given)) -}}
{{- include "chipwatch.refuse" (printf "config.sinks.mlflow.%s: required by the sink mlflow, unless extraEnv has %s" $key (first (splitList "|" $variables))) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
