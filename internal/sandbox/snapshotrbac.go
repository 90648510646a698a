package sandbox

// snapshotControllerRBAC is what snapshot-controller may do: the rights that its
// project lists for it (external-snapshotter, deploy/kubernetes/snapshot-controller).
const snapshotControllerRBAC = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: sandbox:snapshot-controller}
rules:
- {apiGroups: [""], resources: [persistentvolumes], verbs: [get, list, watch]}
- {apiGroups: [""], resources: [persistentvolumeclaims], verbs: [get, list, watch, update]}
- {apiGroups: [""], resources: [events], verbs: [list, watch, create, update, patch]}
- {apiGroups: [snapshot.storage.k8s.io], resources: [volumesnapshotclasses], verbs: [get, list, watch]}
- {apiGroups: [snapshot.storage.k8s.io], resources: [volumesnapshotcontents], verbs: [create, get, list, watch, update, delete, patch]}
- {apiGroups: [snapshot.storage.k8s.io], resources: [volumesnapshotcontents/status], verbs: [patch]}
- {apiGroups: [snapshot.storage.k8s.io], resources: [volumesnapshots], verbs: [create, get, list, watch, update, patch, delete]}
- {apiGroups: [snapshot.storage.k8s.io], resources: [volumesnapshots/status], verbs: [update, patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: sandbox:snapshot-controller}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: sandbox:snapshot-controller}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: snapshot-controller}
`
