{{/* The pod of one component, from metadata on. Takes root and component. */}}
{{- define "chipwatch.podTemplate" -}}
{{- $own := ternary .root.Values .root.Values.deployment (eq .component "agent") -}}
metadata:
  labels:
    {{- toYaml (merge (include "chipwatch.selector" . | fromYaml) (deepCopy $own.podLabels) .root.Values.commonLabels) | nindent 4 }}
  annotations:
    checksum/config: {{ include "chipwatch.config" . | sha256sum }}
    {{- with $own.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  {{- include "chipwatch.podSpec" . | nindent 2 }}
{{- end -}}

{{/* The pod's specification; with `check`, one that runs `chipwatch check` once. */}}
{{- define "chipwatch.podSpec" -}}
{{- $v := .root.Values -}}
{{- $agent := eq .component "agent" -}}
{{- $own := ternary $v $v.deployment $agent -}}
serviceAccountName: {{ include "chipwatch.serviceAccountName" .root }}
automountServiceAccountToken: {{ $v.serviceAccount.automountServiceAccountToken }}
enableServiceLinks: false
{{- $secrets := list }}
{{- range concat (default list (default dict $v.global).imagePullSecrets) $v.imagePullSecrets }}
{{- if kindIs "string" . }}{{ $secrets = append $secrets (dict "name" .) }}{{ else }}{{ $secrets = append $secrets . }}{{ end }}
{{- end }}
{{- with uniq $secrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- toYaml $v.podSecurityContext | nindent 2 }}
{{- if $agent }}
{{- if or $v.hostPID $v.jobs.enabled }}
hostPID: true
{{- end }}
{{- if $v.hostNetwork }}
hostNetwork: true
{{- end }}
{{- if hasKey $v "hostUsers" }}
hostUsers: {{ $v.hostUsers }}
{{- end }}
{{- with $v.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
dnsPolicy: {{ default (ternary "ClusterFirstWithHostNet" "ClusterFirst" $v.hostNetwork) $v.dnsPolicy }}
{{- with $v.dnsConfig }}
dnsConfig:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- with $own.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $v.schedulerName }}
schedulerName: {{ . }}
{{- end }}
terminationGracePeriodSeconds: {{ include "chipwatch.whole" $v.terminationGracePeriodSeconds }}
{{- if .check }}
restartPolicy: Never
{{- end }}
{{- with $own.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $own.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $own.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $own.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- $prepare := and $agent (eq $v.spool.type "hostPath") $v.spool.prepare (not .check) -}}
{{- if or $prepare (and $agent $v.initContainers) }}
initContainers:
  {{- if $prepare }}
  {{- include "chipwatch.prepare" .root | nindent 2 }}
  {{- end }}
  {{- with $v.initContainers }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
containers:
  - {{ include "chipwatch.container" . | indent 4 | trim }}
  {{- if and $agent (not .check) }}
  {{- with $v.extraContainers }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- end }}
volumes:
  {{- include "chipwatch.volumes" . | nindent 2 }}
{{- end -}}

{{- define "chipwatch.container" -}}
{{- $v := .root.Values -}}
{{- $agent := eq .component "agent" -}}
{{- $own := ternary $v $v.deployment $agent -}}
name: {{ .component }}
image: {{ include "chipwatch.image" .root | quote }}
imagePullPolicy: {{ $v.image.pullPolicy }}
command: [agent]
args:
  {{- toYaml (concat (list (ternary "check" "run" (default false .check))) $own.extraArgs) | nindent 2 }}
securityContext:
  {{- $rights := $v.securityContext }}
  {{- if and $agent $v.jobs.podResources }}
  {{- /* Not merge, which takes 0 and false for values that are missing. */}}
  {{- $rights = deepCopy $rights }}
  {{- range $key, $value := dict "runAsNonRoot" false "runAsUser" 0 }}{{ $_ := set $rights $key $value }}{{ end }}
  {{- end }}
  {{- if and $agent $v.privileged }}
  {{- $rights = merge (dict "privileged" true) (omit $rights "allowPrivilegeEscalation") }}
  {{- end }}
  {{- toYaml $rights | nindent 2 }}
env:
  - {name: CHIPWATCH_CONFIG, value: /etc/chipwatch/chipwatch.toml}
  - {name: K8S_CLUSTER_NAME, value: {{ $v.clusterName | quote }}}
  {{- with $v.clusterLocation }}
  - {name: K8S_LOCATION, value: {{ . | quote }}}
  {{- end }}
  - {name: K8S_NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
  - {name: K8S_NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
  - {name: K8S_POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
  - {name: K8S_CONTAINER_NAME, value: {{ .component }}}
  {{- if and $agent $v.nvidia.enabled }}
  - {name: NVIDIA_VISIBLE_DEVICES, value: {{ $v.nvidia.visibleDevices | quote }}}
  - {name: NVIDIA_DRIVER_CAPABILITIES, value: {{ $v.nvidia.driverCapabilities | quote }}}
  {{- if $v.nvidia.driverHostPath }}
  - {name: LD_LIBRARY_PATH, value: /usr/local/nvidia/lib64}
  {{- end }}
  {{- end }}
  {{- if and $agent $v.neuron.enabled }}
  - {name: GOMEMLIMIT, value: {{ $v.neuron.goMemLimit | quote }}}
  {{- end }}
  {{- with $own.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with $own.extraEnvFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- $health := eq $v.probes.type "http" }}
{{- $scraped := has "prometheus" $v.sinks }}
{{- if and (or $health $scraped) (not .check) }}
ports:
  {{- if $health }}
  - {name: health, containerPort: {{ include "chipwatch.whole" $v.probes.port }}, protocol: TCP}
  {{- end }}
  {{- if $scraped }}
  - {name: metrics, containerPort: {{ include "chipwatch.whole" $v.prometheus.port }}, protocol: TCP}
  {{- end }}
{{- end }}
{{- if not .check }}
{{- range $name := list "startup" "liveness" "readiness" }}
{{- $custom := index $v.probes.custom $name }}
{{- if or $custom (ne $v.probes.type "none") }}
{{ $name }}Probe:
  {{- if $custom }}
  {{- toYaml $custom | nindent 2 }}
  {{- else }}
  {{- include "chipwatch.probe" (dict "values" $v "probe" (index $v.probes $name) "agent" $agent "ready" (eq $name "readiness")) | nindent 2 }}
  {{- end }}
{{- end }}
{{- end }}
{{- if $agent }}
{{- with $v.lifecycle }}
lifecycle:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}
resources:
  {{- toYaml (ternary $v.neuron.resources $own.resources (and $agent $v.neuron.enabled)) | nindent 2 }}
volumeMounts:
  - {name: config, mountPath: /etc/chipwatch, readOnly: true}
  - {name: spool, mountPath: /var/lib/chipwatch}
  - {name: tmp, mountPath: /tmp}
  {{- if $v.prometheus.webConfigSecret }}
  - {name: web, mountPath: /etc/chipwatch-web, readOnly: true}
  {{- end }}
  {{- if $agent }}
  {{- range $name := list "proc" "sys" "root" }}
  {{- if index $v.hostMounts $name }}
  - {name: {{ $name }}, mountPath: /host/{{ $name }}, readOnly: true{{ if eq $name "root" }}, mountPropagation: HostToContainer{{ end }}}
  {{- end }}
  {{- end }}
  {{- if $v.hostMounts.kmsg }}
  - {name: kmsg, mountPath: /dev/kmsg, readOnly: true}
  {{- end }}
  {{- if $v.jobs.enabled }}
  - {name: pods, mountPath: /host/log/pods, readOnly: true}
  - {name: containers, mountPath: /host/log/containers, readOnly: true}
  {{- end }}
  {{- if $v.jobs.podResources }}
  - {name: pod-resources, mountPath: /host/pod-resources, readOnly: true}
  {{- end }}
  {{- if and $v.neuron.enabled $v.neuron.toolsHostPath }}
  - {name: neuron, mountPath: /opt/aws/neuron, readOnly: true}
  {{- end }}
  {{- if $v.nvidia.driverHostPath }}
  - {name: nvidia, mountPath: /usr/local/nvidia, readOnly: true}
  {{- end }}
  {{- end }}
  {{- with $own.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{- define "chipwatch.probe" -}}
{{- toYaml .probe }}
{{- if eq .values.probes.type "http" }}
httpGet:
  path: {{ ternary "/readyz" "/healthz" .ready }}
  port: health
  {{- if and .agent .values.hostNetwork }}
  host: 127.0.0.1
  {{- end }}
{{- else }}
exec:
  command: [agent, status, --health{{ if .ready }}, --ready{{ end }}]
{{- end }}
{{- end -}}

{{- define "chipwatch.volumes" -}}
{{- $v := .root.Values -}}
{{- $agent := eq .component "agent" -}}
{{- $own := ternary $v $v.deployment $agent -}}
- name: config
  configMap:
    name: {{ include "chipwatch.fullname" .root }}{{ ternary "" "-scraper" $agent }}
- name: spool
  {{- if and $agent (eq $v.spool.type "hostPath") (not .check) }}
  hostPath: {path: {{ $v.spool.hostPath | quote }}, type: DirectoryOrCreate}
  {{- else if and (not $agent) $v.deployment.spoolClaim (not .check) }}
  persistentVolumeClaim: {claimName: {{ $v.deployment.spoolClaim }}}
  {{- else }}
  {{- /* What the spools may hold, and half as much again for SQLite's own files. */}}
  emptyDir: {sizeLimit: {{ include "chipwatch.spoolLimit" .root }}}
  {{- end }}
- name: tmp
  emptyDir: {medium: Memory, sizeLimit: 16Mi}
{{- with $v.prometheus.webConfigSecret }}
- name: web
  secret: {secretName: {{ . }}, defaultMode: 0440}
{{- end }}
{{- if $agent }}
{{- range $name, $path := dict "proc" "/proc" "sys" "/sys" "root" "/" }}
{{- if index $v.hostMounts $name }}
- name: {{ $name }}
  hostPath: {path: {{ $path }}, type: Directory}
{{- end }}
{{- end }}
{{- if $v.hostMounts.kmsg }}
- name: kmsg
  hostPath: {path: /dev/kmsg, type: CharDevice}
{{- end }}
{{- if $v.jobs.enabled }}
{{- range $name, $path := dict "pods" "/var/log/pods" "containers" "/var/log/containers" }}
- name: {{ $name }}
  hostPath: {path: {{ $path }}, type: DirectoryOrCreate}
{{- end }}
{{- end }}
{{- if $v.jobs.podResources }}
- name: pod-resources
  hostPath: {path: /var/lib/kubelet/pod-resources, type: Directory}
{{- end }}
{{- if and $v.neuron.enabled $v.neuron.toolsHostPath }}
- name: neuron
  hostPath: {path: {{ $v.neuron.toolsHostPath | quote }}, type: Directory}
{{- end }}
{{- if $v.nvidia.driverHostPath }}
- name: nvidia
  hostPath: {path: {{ $v.nvidia.driverHostPath | quote }}, type: Directory}
{{- end }}
{{- end }}
{{- with $own.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "chipwatch.spoolLimit" -}}
{{- $sinks := len (concat .Values.sinks .Values.extraSinks) -}}
{{- $bytes := include "chipwatch.whole" .Values.spool.bytes | int64 -}}
{{- add 16 (div (mul $bytes $sinks 3) 2097152) }}Mi
{{- end -}}
