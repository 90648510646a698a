{{/*
The objects of a folder of config/, as kustomize makes them of its
kustomization.yaml: resources, namespace, labels. Objects are written down once,
in config/; the chart's values then change them. Answers a JSON list.
  root: the chart's root, folder: below objects/
*/}}
{{- define "holdfast.objects" -}}
{{- $folder := printf "objects/%s/" .folder -}}
{{- $kustomization := .root.Files.Get (print $folder "kustomization.yaml") | fromYaml -}}
{{- $clusterScoped := list "ClusterRole" "ClusterRoleBinding" "CSIDriver" "CustomResourceDefinition" "MutatingWebhookConfiguration" "ValidatingWebhookConfiguration" -}}
{{- $objects := list -}}
{{- range $file := $kustomization.resources -}}
{{- range $text := regexSplit "(?m)^---$" ($.root.Files.Get (print $folder $file)) -1 -}}
{{- $object := fromYaml $text -}}
{{- if and $object (not $object.kind) -}}
{{- fail (printf "%s%s holds a document that is no object: %v" $folder $file $object) -}}
{{- end -}}
{{- if $object -}}
{{- if and $kustomization.namespace (not (has $object.kind $clusterScoped)) -}}
{{- $_ := set $object.metadata "namespace" $kustomization.namespace -}}
{{- end -}}
{{- $labels := dict "app.kubernetes.io/managed-by" $.root.Release.Service "helm.sh/chart" (printf "%s-%s" $.root.Chart.Name $.root.Chart.Version) -}}
{{- range $kustomization.labels -}}
{{- $labels = merge $labels .pairs -}}
{{- if and .includeTemplates $object.spec $object.spec.template -}}
{{- $_ := set $object.spec.template.metadata "labels" (merge (dict) ($object.spec.template.metadata.labels | default dict) .pairs) -}}
{{- end -}}
{{- end -}}
{{- $_ := set $object.metadata "labels" (merge (dict) ($object.metadata.labels | default dict) $labels) -}}
{{- $objects = append $objects $object -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson $objects -}}
{{- end -}}

{{/*
What the values change of a Deployment or DaemonSet, in place.
  root: the chart's root, object, settings: the values of this workload,
  args: more flags for its first container, which is Holdfast's own
*/}}
{{- define "holdfast.workload" -}}
{{- $images := .root.Values.images -}}
{{- $settings := .settings -}}
{{- $pod := .object.spec.template.spec -}}
{{- with $settings.replicas -}}
{{- $_ := set $.object.spec "replicas" . -}}
{{- end -}}
{{- range $container := $pod.containers -}}
{{- $name := regexReplaceAll "^.*/" $container.image "" -}}
{{- if hasPrefix "ghcr.io/holdfast-dev/" $container.image -}}
{{- with $images.tag -}}
{{- $name = printf "%s:%s" (splitList ":" $name | first) . -}}
{{- end -}}
{{- $_ := set $container "image" (printf "%s/%s" $images.repository $name) -}}
{{- else -}}
{{- $_ := set $container "image" (printf "%s/%s" $images.sidecarRepository $name) -}}
{{- with $settings.sidecarResources -}}
{{- $_ := set $container "resources" (mergeOverwrite $container.resources (deepCopy .)) -}}
{{- end -}}
{{- end -}}
{{- $_ := set $container "imagePullPolicy" $images.pullPolicy -}}
{{- end -}}
{{- with $images.pullSecrets -}}
{{- $secrets := list -}}
{{- range . -}}
{{- $secrets = append $secrets (dict "name" .) -}}
{{- end -}}
{{- $_ := set $pod "imagePullSecrets" $secrets -}}
{{- end -}}
{{- $own := first $pod.containers -}}
{{- $args := .args | default list -}}
{{- with .root.Values.logLevel -}}
{{- $args = append $args (printf "--v=%d" (int .)) -}}
{{- end -}}
{{- $_ := set $own "args" (concat $own.args $args $settings.extraArgs) -}}
{{- $_ := set $own "resources" (mergeOverwrite $own.resources (deepCopy $settings.resources)) -}}
{{- with $settings.env -}}
{{- $_ := set $own "env" (concat ($own.env | default list) .) -}}
{{- end -}}
{{- $_ := set $pod "nodeSelector" (mergeOverwrite ($pod.nodeSelector | default dict) (deepCopy $settings.nodeSelector)) -}}
{{- $_ := set $pod "tolerations" (concat ($pod.tolerations | default list) $settings.tolerations) -}}
{{- with $settings.affinity -}}
{{- $_ := set $pod "affinity" (mergeOverwrite ($pod.affinity | default dict) (deepCopy .)) -}}
{{- end -}}
{{- end -}}

{{/*
A volume of a workload's Pods, and its mount in Holdfast's own container. In front
of the others, where kustomize puts what a patch brings.
  object, volume, mount
*/}}
{{- define "holdfast.volume" -}}
{{- $pod := .object.spec.template.spec -}}
{{- $own := first $pod.containers -}}
{{- $_ := set $pod "volumes" (prepend ($pod.volumes | default list) .volume) -}}
{{- $_ := set $own "volumeMounts" (prepend ($own.volumeMounts | default list) (mergeOverwrite (dict "name" .volume.name) .mount)) -}}
{{- end -}}
