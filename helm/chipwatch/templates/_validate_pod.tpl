{{/* What an API server, or CloudWatch, would refuse of one component. Takes root, component, and prefix: where its values are. */}}
{{- define "chipwatch.validate.component" -}}
{{- $prefix := .prefix -}}
{{- $own := ternary .root.Values .root.Values.deployment (eq .component "agent") -}}
{{- $dims := uniq (concat $own.commonDims (keys .root.Values.dims)) -}}
{{- if gt (len $dims) 30 -}}
{{- include "chipwatch.refuse" (printf "%scommonDims, dims: %d dimensions; CloudWatch and Cloud Monitoring take 30" $prefix (len $dims)) -}}
{{- end -}}
{{- range $option, $value := dict "sink" "sinks" "spool" "spool" "health" "probes" "proc" "hostMounts" "sys" "hostMounts" "root" "hostMounts" -}}
{{- range $own.extraEnv -}}
{{- if eq .name (printf "CHIPWATCH_%s" (upper $option)) -}}
{{- include "chipwatch.refuse" (printf "%sextraEnv: %s: the value %s says this; do not give it twice" $prefix .name $value) -}}
{{- end -}}
{{- end -}}
{{- range $own.extraArgs -}}
{{- if eq (first (splitList "=" .)) (printf "--%s" $option) -}}
{{- include "chipwatch.refuse" (printf "%sextraArgs: %s: the value %s says this; do not give it twice" $prefix . $value) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $pod := include "chipwatch.podSpec" . | fromYaml -}}
{{- $volumes := list -}}
{{- range $pod.volumes -}}
{{- if and .hostPath (has ".." (splitList "/" (default dict .hostPath).path)) -}}
{{- include "chipwatch.refuse" (printf "%sextraVolumes: %s: Kubernetes refuses a path with .. in it: %s" $prefix .name .hostPath.path) -}}
{{- end -}}
{{- if has .name $volumes -}}
{{- include "chipwatch.refuse" (printf "%sextraVolumes: the name %s is taken by a volume of this chart, or given twice" $prefix .name) -}}
{{- end -}}
{{- $volumes = append $volumes .name -}}
{{- end -}}
{{- $containers := list -}}
{{- range $n, $container := concat $pod.containers (default list $pod.initContainers) -}}
{{- $key := ternary "extraContainers" "initContainers" (lt $n (len $pod.containers)) -}}
{{- $where := ternary $prefix (printf "%s: %s: " $key $container.name) (eq $n 0) -}}
{{- if has $container.name $containers -}}
{{- include "chipwatch.refuse" (printf "%s: the name %s is given twice" $key $container.name) -}}
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
{{- if regexMatch "^/(app(/.*)?|etc/chipwatch(-web)?/.+)?$" (clean .mountPath) -}}
{{- include "chipwatch.refuse" (printf "%sextraVolumeMounts: %s would hide the program or lie in a volume that is read-only; choose another path" $where .mountPath) -}}
{{- end -}}
{{- if and (eq (default "" .mountPropagation) "Bidirectional") (not (default dict $container.securityContext).privileged) -}}
{{- include "chipwatch.refuse" (printf "%sextraVolumeMounts: %s: mountPropagation Bidirectional takes a privileged container" $where .mountPath) -}}
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
{{- $resources := default dict $container.resources -}}
{{- range $resource, $request := $resources.requests -}}
{{- if and (contains "/" $resource) (ne (toString $request) (toString (index (default dict $resources.limits) $resource))) -}}
{{- include "chipwatch.refuse" (printf "%sresources: %s takes a limit that equals its request of %v" $where $resource $request) -}}
{{- end -}}
{{- end -}}
{{- range $resource, $limit := $resources.limits -}}
{{- $bytes := include "chipwatch.quantity" $limit | float64 -}}
{{- $request := index (default dict $resources.requests) $resource -}}
{{- if and $request (gt (include "chipwatch.quantity" $request | float64) $bytes) -}}
{{- include "chipwatch.refuse" (printf "%sresources: the request of %v %s is above the limit of %v" $where $request $resource $limit) -}}
{{- end -}}
{{- if and (eq $n 0) (eq $resource "memory") (lt $bytes 33554432.0) -}}
{{- include "chipwatch.refuse" (printf "%sresources.limits.memory: %v is below the 32Mi that the agent needs at least" $where $limit) -}}
{{- end -}}
{{- if and (eq $n 0) (eq $resource "ephemeral-storage") (lt $bytes (mulf 1048576.0 (include "chipwatch.spoolLimit" $.root | trimSuffix "Mi" | float64))) -}}
{{- include "chipwatch.refuse" (printf "%sresources.limits.ephemeral-storage: %v is below the %s of the spool, and the pod would be evicted; raise it, or lower spool.bytes" $where $limit (include "chipwatch.spoolLimit" $.root)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* A quantity of Kubernetes, such as 500m or 64Mi -> a plain number. */}}
{{- define "chipwatch.quantity" -}}
{{- $text := ternary (include "chipwatch.whole" .) (toString .) (and (kindIs "float64" .) (eq (toString .) (toString (floor .)))) -}}
{{- $unit := regexFind "[A-Za-z]+$" $text -}}
{{- $factors := dict "" 1.0 "m" 0.001 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "E" 1e18 "Ki" 1024.0 "Mi" 1048576.0 "Gi" 1073741824.0 "Ti" 1099511627776.0 "Pi" 1125899906842624.0 "Ei" 1152921504606846976.0 -}}
{{- mulf (trimSuffix $unit $text | float64) (index $factors $unit) -}}
{{- end -}}

{{/* A time of the configuration, such as 30, 1m or 500ms -> seconds. */}}
{{- define "chipwatch.seconds" -}}
{{- $text := toString . | replace " " "" -}}
{{- $unit := regexFind "[a-z]+$" $text -}}
{{- $seconds := index (dict "" 1.0 "ms" 0.001 "s" 1.0 "m" 60.0 "h" 3600.0) $unit -}}
{{- if $seconds }}{{ mulf (trimSuffix $unit $text | float64) $seconds }}{{ else }}0{{ end -}}
{{- end -}}
