{{- define "penstock.account" -}}
{{ .Values.serviceAccount.name | default .Release.Name }}
{{- end }}

{{- define "penstock.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag }}
{{- end }}

{{- define "penstock.labels" -}}
app.kubernetes.io/name: penstock
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- /* A key of the configuration as the variable that Penstock reads it from. */ -}}
{{- define "penstock.env" -}}
{{- range $key, $value := .Values.settings }}
{{- if hasPrefix "penstock.operator-storage." $key }}
{{- fail (printf "%s has no variable of the environment: give it among the settings of a job" $key) }}
{{- end }}
- name: PENSTOCK_{{ $key | trimPrefix "penstock." | replace "." "_" | replace "-" "_" | upper }}
  value: {{ include "penstock.value" $value | quote }}
{{- end }}
{{- end }}

{{- /* A value of the configuration as text: whole numbers, which Helm reads as floats, without an exponent. */ -}}
{{- define "penstock.value" -}}
{{ if kindIs "string" . }}{{ . }}{{ else }}{{ toJson . }}{{ end }}
{{- end }}

{{- define "penstock.envFrom" -}}
{{- range .Values.envFromSecrets }}
- secretRef: {name: {{ . }}}
{{- end }}
{{- end }}

{{- /* What head and workers have in common: dict "root" $ "resources" .. "nodeSelector" .. "tolerations" .. "name" .. "ports" bool */ -}}
{{- define "penstock.pod" -}}
{{- $root := .root -}}
serviceAccountName: {{ include "penstock.account" $root }}
restartPolicy: Never
terminationGracePeriodSeconds: {{ if .ports }}60{{ else }}120{{ end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 1000
  fsGroup: 1000
{{- with $root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with .nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
containers:
  - name: {{ .name }}
    image: {{ include "penstock.image" $root }}
    imagePullPolicy: {{ $root.Values.image.pullPolicy }}
    {{- if .ports }}
    ports:
      - {name: gcs-server, containerPort: 6379}
      - {name: dashboard, containerPort: 8265}
      - {name: client, containerPort: 10001}
      - {name: console, containerPort: 8365}
    {{- end }}
    {{- if not .ports }}
    lifecycle:
      preStop:
        exec:
          command: [penstock, drain, --this-node, --wait, --timeout, 110s]
    {{- end }}
    env: {{- include "penstock.env" $root | nindent 6 }}
    {{- with include "penstock.envFrom" $root }}
    envFrom: {{- . | nindent 6 }}
    {{- end }}
    securityContext:
      allowPrivilegeEscalation: false
      capabilities: {drop: [ALL]}
      seccompProfile: {type: RuntimeDefault}
    resources: {{- toYaml .resources | nindent 6 }}
    {{- if $root.Values.jobs }}
    volumeMounts:
      {{- range $root.Values.jobs }}
      - {name: {{ .name }}, mountPath: /app/flows/{{ .name }}}
      {{- end }}
    {{- end }}
{{- if $root.Values.jobs }}
volumes:
  {{- range $root.Values.jobs }}
  - name: {{ .name }}
    configMap: {name: {{ .name }}}
  {{- end }}
{{- end }}
{{- end }}
