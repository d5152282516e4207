{{- define "perf-exporter.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "perf-exporter.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains (include "perf-exporter.name" .) .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "perf-exporter.name" .) | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "perf-exporter.selectorLabels" -}}
app.kubernetes.io/name: {{ include "perf-exporter.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "perf-exporter.labels" -}}
{{ include "perf-exporter.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "perf-exporter.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "perf-exporter.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "perf-exporter.image" -}}
{{- if .Values.image.digest }}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}
{{- end }}

{{/* Priority class of the pods; empty for none. */}}
{{- define "perf-exporter.priorityClassName" -}}
{{- .Values.priorityClassName | default (ternary (include "perf-exporter.fullname" .) "" .Values.priorityClass.create) }}
{{- end }}

{{/* Name of the ConfigMap. It ends with a hash of the configuration, so a change is rolled out. */}}
{{- define "perf-exporter.configName" -}}
{{- printf "%s-%s" (include "perf-exporter.fullname" . | trunc 52 | trimSuffix "-") (include "perf-exporter.config" . | sha256sum | trunc 10) }}
{{- end }}

{{/* Scheme of the HTTP server, for probes and `helm test`. */}}
{{- define "perf-exporter.scheme" -}}
{{- .Values.probes.scheme | default (ternary "HTTPS" "HTTP" (not (empty (dig "web" "tls_server_config" "" .Values.config)))) }}
{{- end }}

{{/* probe CONTEXT PATH TIMES: the HTTP request of a probe, and its times */}}
{{- define "perf-exporter.probe" -}}
{{- $scheme := include "perf-exporter.scheme" .root -}}
httpGet: {path: {{ .path }}, port: http{{ if eq $scheme "HTTPS" }}, scheme: HTTPS{{ end }}}
{{- with .times }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Source of pod metadata: cri, api-server, kubelet or off. */}}
{{- define "perf-exporter.names" -}}
{{- .Values.names | default (ternary "api-server" "cri" (eq .Values.mode "least-privilege")) }}
{{- end }}

{{/* The configuration file. Without changes it is the file of the mode, including comments. */}}
{{- define "perf-exporter.config" -}}
{{- $file := .Files.Get (printf "files/config/%s.yaml" .Values.mode) }}
{{- $names := include "perf-exporter.names" . }}
{{- $base := fromYaml $file }}
{{- $changes := deepCopy .Values.config }}
{{- if and (eq $names "cri") (eq .Values.mode "least-privilege") }}
{{- fail "names: cri needs root's uid, which the mode least-privilege does not have; choose api-server, kubelet or off, or another mode" }}
{{- else if ne $names (ternary "api-server" "cri" (eq .Values.mode "least-privilege")) }}
{{- $sources := dict "cri" "off" "docker" "off" }}
{{- if ne $names "off" }}
{{- $_ := set $sources (replace "-" "_" $names) dict }}
{{- end }}
{{- $base = omit $base "containers" }}
{{- $changes = mergeOverwrite (dict "containers" $sources) $changes }}
{{- end }}
{{- if .Values.authorization.enabled }}
{{- $changes = mergeOverwrite (dict "web" (dict "kubernetes" dict)) $changes }}
{{- end }}
{{- if $changes }}
{{- mergeOverwrite $base $changes | toYaml }}
{{- else }}
{{- $file }}
{{- end }}
{{- end }}

{{/* Capabilities of the mode, as JSON. deploy/kubernetes describes each one. */}}
{{- define "perf-exporter.capabilities" -}}
{{- $added := list "PERFMON" }}
{{- if has .Values.mode (list "profiles" "full") }}
{{- $added = concat $added (list "SYS_PTRACE" "SYSLOG" "DAC_READ_SEARCH" "CHECKPOINT_RESTORE" "IPC_LOCK") }}
{{- end }}
{{- concat $added .Values.extraCapabilities | uniq | toJson }}
{{- end }}

{{- define "perf-exporter.resources" -}}
{{- if .Values.resources }}
{{- toYaml .Values.resources }}
{{- else if has .Values.mode (list "profiles" "full") -}}
requests: {cpu: 100m, memory: 128Mi}
limits: {memory: 512Mi}
{{- else -}}
requests: {cpu: 50m, memory: 64Mi}
limits: {memory: 256Mi}
{{- end }}
{{- end }}

{{/* Relabeling of both kinds of monitors. */}}
{{- define "perf-exporter.relabelings" -}}
# Drops the exporter's own labels. Otherwise, series without these labels, such as those of CPUs, would get them.
- {action: labeldrop, regex: namespace|pod|container|endpoint|service}
- {sourceLabels: [__meta_kubernetes_pod_node_name], targetLabel: node}
# The instance is the node, so it does not change when the pod is replaced.
- {sourceLabels: [__meta_kubernetes_pod_node_name], targetLabel: instance}
{{- with .Values.monitor.relabelings }}
{{ toYaml . }}
{{- end }}
{{- end }}
