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
{{- $windows := dict "window" $v.window -}}
{{- range $name, $table := $tables }}{{ $_ := set $windows (printf "config.sinks.%s.window" $name) (default dict $table).window }}{{ end -}}
{{- range $path, $window := $windows -}}
{{- $seconds := toString $window | float64 -}}
{{- if and (gt $seconds 0.0) (lt $seconds (toString $v.interval | float64)) -}}
{{- include "chipwatch.refuse" (printf "%s: %v s is below the interval of %v s" $path $window $v.interval) -}}
{{- end -}}
{{- end -}}
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

{{/* What an API server, or CloudWatch, would refuse of one component. Takes root, component, and prefix: where its values are. */}}
{{- define "chipwatch.validate.component" -}}
{{- $prefix := .prefix -}}
{{- $own := ternary .root.Values .root.Values.deployment (eq .component "agent") -}}
{{- $dims := uniq (concat $own.commonDims (keys .root.Values.dims)) -}}
{{- if gt (len $dims) 30 -}}
{{- include "chipwatch.refuse" (printf "%scommonDims, dims: %d dimensions; CloudWatch and Cloud Monitoring take 30" $prefix (len $dims)) -}}
{{- end -}}
{{- $pod := include "chipwatch.podSpec" . | fromYaml -}}
{{- $volumes := list -}}
{{- range $pod.volumes -}}
{{- if has .name $volumes -}}
{{- include "chipwatch.refuse" (printf "%sextraVolumes: the name %s is taken by a volume of this chart, or given twice" $prefix .name) -}}
{{- end -}}
{{- $volumes = append $volumes .name -}}
{{- end -}}
{{- $containers := list -}}
{{- range $n, $container := concat $pod.containers (default list $pod.initContainers) -}}
{{- $where := ternary $prefix (printf "initContainers: %s: " $container.name) (eq $n 0) -}}
{{- if has $container.name $containers -}}
{{- include "chipwatch.refuse" (printf "initContainers: the name %s is given twice" $container.name) -}}
{{- end -}}
{{- $containers = append $containers $container.name -}}
{{- $names := list -}}
{{- range $container.env -}}
{{- if has .name $names -}}
{{- include "chipwatch.refuse" (printf "%sextraEnv: %s is set by this chart, or given twice" $where .name) -}}
{{- end -}}
{{- $names = append $names .name -}}
{{- end -}}
{{- $paths := list -}}
{{- range $container.volumeMounts -}}
{{- if not (has .name $volumes) -}}
{{- include "chipwatch.refuse" (printf "%sextraVolumeMounts: no volume %s is declared; add it to %sextraVolumes" $where .name $prefix) -}}
{{- end -}}
{{- if has (clean .mountPath) $paths -}}
{{- include "chipwatch.refuse" (printf "%sextraVolumeMounts: %s is mounted by this chart, or twice" $where .mountPath) -}}
{{- end -}}
{{- $paths = append $paths (clean .mountPath) -}}
{{- end -}}
{{- $ports := list -}}
{{- range $container.ports -}}
{{- if has .containerPort $ports -}}
{{- include "chipwatch.refuse" (printf "probes.port: the port %v is used twice" .containerPort) -}}
{{- end -}}
{{- $ports = append $ports .containerPort -}}
{{- end -}}
{{- range $resource, $limit := (default dict $container.resources).limits -}}
{{- $request := index (default dict $container.resources.requests) $resource -}}
{{- if and $request (gt (include "chipwatch.quantity" $request | float64) (include "chipwatch.quantity" $limit | float64)) -}}
{{- include "chipwatch.refuse" (printf "%sresources: the request of %v %s is above the limit of %v" $where $request $resource $limit) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* A quantity of Kubernetes, such as 500m or 64Mi -> a plain number. */}}
{{- define "chipwatch.quantity" -}}
{{- $text := ternary (include "chipwatch.whole" .) (toString .) (and (kindIs "float64" .) (eq (toString .) (toString (floor .)))) -}}
{{- $unit := regexFind "[A-Za-z]+$" $text -}}
{{- $factors := dict "" 1.0 "m" 0.001 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "Ki" 1024.0 "Mi" 1048576.0 "Gi" 1073741824.0 "Ti" 1099511627776.0 -}}
{{- mulf (trimSuffix $unit $text | float64) (index $factors $unit) -}}
{{- end -}}

{{- define "chipwatch.validate.daemonSet" -}}
{{- $v := .Values -}}
{{- include "chipwatch.validate.component" (dict "root" . "component" "agent" "prefix" "") -}}
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
