{{- define "gossamer.labels" -}}
app.kubernetes.io/name: gossamer
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end }}

{{- define "gossamer.image" -}}
{{ .image.repository }}:{{ .image.tag | default .root.Chart.AppVersion }}
{{- end }}

{{- define "gossamer.secret" -}}
{{ .Values.secret.existing | default .Release.Name }}
{{- end }}

{{/* Names of the parts that run. */}}
{{- define "gossamer.parts" -}}
{{ ternary (list "service" "worker" "browser") (list "service" "worker") .Values.browser.enabled | toJson }}
{{- end }}

{{/* Labels and annotations of pods. `port`: of metrics. The last one starts new pods when settings have changed. */}}
{{- define "gossamer.podMetadata" -}}
labels: {{- include "gossamer.labels" . | nindent 2 }}
annotations:
  prometheus.io/scrape: "true"
  prometheus.io/port: {{ .port | quote }}
  prometheus.io/path: /metrics
  checksum/settings: {{ include (print .root.Template.BasePath "/settings.yaml") .root | sha256sum }}
{{- end }}

{{/* What all pods have: no rights, and the time to end safely. `seccomp`: profile on the nodes, or empty. */}}
{{- define "gossamer.pod" -}}
{{- with .root.Values.image.pullSecrets -}}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{ end -}}
terminationGracePeriodSeconds: {{ .root.Values.terminationGracePeriodSeconds }}
automountServiceAccountToken: false
# Kubernetes would set GOSSAMER_SERVICE_PORT and others for the Service, which are no settings of Gossamer.
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  {{- if .seccomp }}
  seccompProfile: {type: Localhost, localhostProfile: {{ .seccomp }}}
  {{- else }}
  seccompProfile: {type: RuntimeDefault}
  {{- end }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{- include "gossamer.labels" . | nindent 8 }}
{{- with .root.Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
volumes:
  - {name: data, emptyDir: {}}
  - {name: tmp, emptyDir: {}}
{{- end }}

{{/* What all containers have: a file system that cannot be written, and the settings. */}}
{{- define "gossamer.container" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
volumeMounts:
  - {name: data, mountPath: /data}
  - {name: tmp, mountPath: /tmp}
envFrom:
  - configMapRef: {name: {{ .Release.Name }}}
  {{- with .Values.secret.settings }}
  - secretRef: {name: {{ . }}}
  {{- end }}
{{- end }}

{{- define "gossamer.password" -}}
- name: GOSSAMER_FRONTIER_PASSWORD
  valueFrom: {secretKeyRef: {name: {{ include "gossamer.secret" . }}, key: frontier-password}}
{{- end }}

{{/* Deployment of workers. `part`: worker or browser; `values`: those of the part. */}}
{{- define "gossamer.workers" -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .root.Release.Name }}-{{ .part }}
  labels: {{- include "gossamer.labels" . | nindent 4 }}
spec:
  {{- if not .values.autoscaling.enabled }}
  replicas: {{ .values.replicas }}
  {{- end }}
  selector:
    matchLabels: {{- include "gossamer.labels" . | nindent 6 }}
  template:
    metadata: {{- include "gossamer.podMetadata" (merge (dict "port" 9090) .) | nindent 6 }}
    spec:
      {{- include "gossamer.pod" . | nindent 6 }}
      containers:
        - name: worker
          image: {{ include "gossamer.image" . }}
          imagePullPolicy: {{ .root.Values.image.pullPolicy }}
          args: {{ .args | toJson }}
          {{- include "gossamer.container" .root | nindent 10 }}
          env:
            {{- include "gossamer.password" .root | nindent 12 }}
            - {name: GOSSAMER_WORKER__METRICS, value: "0.0.0.0:9090"}
            {{- if eq .part "browser" }}
            - {name: GOSSAMER_BROWSER__SANDBOX, value: {{ ternary "yes" "no" .values.sandbox | quote }}}
            {{- end }}
          ports:
            - {name: metrics, containerPort: 9090}
          # Alive without the frontier, too: a restart would not bring it back. Ready while the worker can work.
          livenessProbe: {httpGet: {path: /healthz, port: metrics}, periodSeconds: 10, timeoutSeconds: 5}
          readinessProbe: {httpGet: {path: /readyz, port: metrics}, periodSeconds: 10, timeoutSeconds: 5}
          resources: {{- toYaml .values.resources | nindent 12 }}
{{- end }}

{{- define "gossamer.autoscaler" -}}
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: {{ .root.Release.Name }}-{{ .part }}
  labels: {{- include "gossamer.labels" . | nindent 4 }}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: {{ .root.Release.Name }}-{{ .part }}}
  minReplicas: {{ .values.autoscaling.minReplicas }}
  maxReplicas: {{ .values.autoscaling.maxReplicas }}
  metrics:
    - type: External
      external:
        metric: {name: {{ .values.autoscaling.metric }}}
        target: {type: AverageValue, averageValue: {{ .values.autoscaling.perWorker | int64 | quote }}}
  behavior:
    # Requests wait for their sites, too: fewer workers only when that has lasted.
    scaleDown: {stabilizationWindowSeconds: 600}
{{- end }}
