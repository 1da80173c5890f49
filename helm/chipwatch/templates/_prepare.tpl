{{/*
The kubelet makes a host's folder as root's; this gives it, and what another user's agent left there, to the agent's
user and to nobody else. Root without CAP_FOWNER and CAP_DAC_OVERRIDE changes and reads only what is its own, so it
takes the folder first.
*/}}
{{- define "chipwatch.prepare" -}}
{{- $user := 65532 -}}
{{- range list .Values.podSecurityContext .Values.securityContext }}{{ if hasKey . "runAsUser" }}{{ $user = .runAsUser }}{{ end }}{{ end -}}
{{- $user = include "chipwatch.whole" (ternary 0 $user .Values.jobs.podResources) -}}
- name: prepare
  image: {{ include "chipwatch.image" . | quote }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  command: [python3, -c]
  args:
    - |
      import os
      path, user = "/var/lib/chipwatch", {{ $user }}
      if os.stat(path).st_uid != user:
          os.chown(path, 0, 0)
          os.chmod(path, 0o700)
          for name in os.listdir(path):
              os.lchown(os.path.join(path, name), user, user)
          os.chown(path, user, user)
  securityContext:
    runAsNonRoot: false
    runAsUser: 0
    runAsGroup: 0
    allowPrivilegeEscalation: false
    readOnlyRootFilesystem: true
    capabilities: {drop: [ALL], add: [CHOWN]}
  resources:
    requests: {cpu: 10m, memory: 32Mi}
    limits: {memory: 64Mi}
  volumeMounts:
    - {name: spool, mountPath: /var/lib/chipwatch}
{{- end -}}
