{{- define "shapetrace.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}
{{- define "shapetrace.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- define "shapetrace.labels" -}}
{{ include "shapetrace.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}
{{- define "shapetrace.serviceAccount" -}}
{{- default (include "shapetrace.name" .) .Values.serviceAccount.name }}
{{- end }}
{{- define "shapetrace.image" -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end }}
{{- define "shapetrace.engineImage" -}}
{{ .Values.engineImage.repository }}:{{ default .Chart.AppVersion .Values.engineImage.tag }}
{{- end }}
{{- define "shapetrace.rules" -}}
# exactly what the operator calls (checked by a test against operator/shapetrace_operator/rbac.py)
- apiGroups: [shapetrace.dev]
  resources: [profileruns]
  verbs: [get, list, watch, delete]  # delete: ttlSecondsAfterFinished
- apiGroups: [shapetrace.dev]
  resources: [profileruns/status]
  verbs: [patch]
- apiGroups: [batch]
  resources: [jobs]
  verbs: [list, watch, create, delete]  # delete: suspend
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch]
- apiGroups: [""]
  resources: [events]
  verbs: [list]  # quota and admission refusals are told nowhere else
{{- end }}
