{{/* What would not work, told before anything is installed. */}}
{{- define "holdfast.checks" -}}
{{- if ne .Release.Namespace "holdfast-system" -}}
{{- fail (printf "the namespace is %q, and Holdfast lives in holdfast-system: its webhooks, rights and AWS role name that. Use --namespace holdfast-system --create-namespace" .Release.Namespace) -}}
{{- end -}}
{{- if .Values.driver.enabled -}}
{{- $node := lookup "apps/v1" "DaemonSet" "kube-system" "ebs-csi-node" -}}
{{- $controller := lookup "apps/v1" "Deployment" "kube-system" "ebs-csi-controller" -}}
{{- if or $node (and $controller (gt (int (dig "spec" "replicas" 1 $controller)) 0)) -}}
{{- fail "AWS's EBS driver runs in this cluster (daemonset/ebs-csi-node or deployment/ebs-csi-controller in kube-system), and two drivers of one name must not run at once: switch over as docs/install-eks.md says, or install the guardrails alone with driver.enabled=false" -}}
{{- end -}}
{{- end -}}
{{- end -}}
