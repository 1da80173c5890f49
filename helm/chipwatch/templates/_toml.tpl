{{/*
A map of values -> TOML 1.0. Texts are written as JSON does, whose escapes TOML shares, but for DEL, which TOML
forbids, and NEL, which ends a line in YAML. What is null is left out.

chipwatch.toml takes table (a map) and path (a list of keys); chipwatch.toml.value takes value and path.
*/}}

{{- define "chipwatch.toml" -}}
{{- $plain := dict -}}
{{- $tables := dict -}}
{{- range $key, $value := .table -}}
{{- if kindIs "map" $value -}}
{{- $_ := set $tables $key $value -}}
{{- else if not (kindIs "invalid" $value) -}}
{{- $_ := set $plain $key $value -}}
{{- end -}}
{{- end -}}
{{- if and .path (or $plain (not $tables)) -}}
{{- $keys := list -}}
{{- range .path }}{{ $keys = append $keys (include "chipwatch.toml.key" .) }}{{ end -}}
{{- printf "\n[%s]\n" (join "." $keys) -}}
{{- end -}}
{{- range $key, $value := $plain -}}
{{- $text := include "chipwatch.toml.value" (dict "value" $value "path" (append $.path $key)) -}}
{{- printf "%s = %s\n" (include "chipwatch.toml.key" $key) $text -}}
{{- end -}}
{{- range $key, $value := $tables -}}
{{- include "chipwatch.toml" (dict "table" $value "path" (append $.path $key)) -}}
{{- end -}}
{{- end -}}

{{- define "chipwatch.toml.key" -}}
{{- if regexMatch "^[A-Za-z0-9_-]+$" . }}{{ . }}{{ else }}{{ include "chipwatch.toml.text" . }}{{ end -}}
{{- end -}}

{{- define "chipwatch.toml.text" -}}
{{- toRawJson . | replace "\x7f" "\\u007f" | replace "\u0085" "\\u0085" -}}
{{- end -}}

{{- define "chipwatch.toml.value" -}}
{{- $path := .path -}}
{{- if eq (typeOf .value) "json.Number" -}}
{{- .value -}}
{{- else if kindIs "string" .value -}}
{{- include "chipwatch.toml.text" .value -}}
{{- else if kindIs "float64" .value -}}
{{- if and (eq .value (floor .value)) (lt .value 9e18) (gt .value -9e18) }}{{ printf "%.0f" .value }}{{ else }}{{ .value }}{{ end -}}
{{- else if kindIs "slice" .value -}}
{{- $items := list -}}
{{- range .value }}{{ $items = append $items (include "chipwatch.toml.value" (dict "value" . "path" $path)) }}{{ end -}}
[{{ join ", " $items }}]
{{- else if kindIs "map" .value -}}
{{- $items := list -}}
{{- range $key, $item := .value -}}
{{- if not (kindIs "invalid" $item) -}}
{{- $text := include "chipwatch.toml.value" (dict "value" $item "path" (append $path $key)) -}}
{{- $items = append $items (printf "%s = %s" (include "chipwatch.toml.key" $key) $text) -}}
{{- end -}}
{{- end -}}
{{- printf "{%s}" (join ", " $items) -}}
{{- else if kindIs "invalid" .value -}}
{{- include "chipwatch.refuse" (printf "%s: null is no item of a list" (join "." $path)) -}}
{{- else -}}
{{- .value -}}
{{- end -}}
{{- end -}}
