package config

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// One replica of the manager can go at any time, by a drain or an update, and
// another one answers: there are two, on two nodes where there are two, and the
// budget and the Service are about them.
func TestManagerAnswersWhileAReplicaGoes(t *testing.T) {
	for _, dir := range kustomizations {
		objects := render(t, dir)
		d := find[*appsv1.Deployment](t, objects, "Deployment/holdfast-manager")
		if n := ptr.Deref(d.Spec.Replicas, 1); n != 2 {
			t.Errorf("%s: %d replicas, want 2", dir, n)
		}
		if u := d.Spec.Strategy.RollingUpdate; u == nil || u.MaxUnavailable == nil || *u.MaxUnavailable != intstr.FromInt32(0) {
			t.Errorf("%s: an update takes a replica away before the next one answers: %+v", dir, u)
		}
		apart := d.Spec.Template.Spec.Affinity
		if apart == nil || apart.PodAntiAffinity == nil || len(apart.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution) != 1 {
			t.Fatalf("%s: the replicas may be on one node while there are two", dir)
		}
		term := apart.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution[0].PodAffinityTerm
		if term.TopologyKey != corev1.LabelHostname {
			t.Errorf("%s: the replicas are kept apart by %s", dir, term.TopologyKey)
		}
		budget := find[*policyv1.PodDisruptionBudget](t, objects, "PodDisruptionBudget/holdfast-manager").Spec
		if budget.MinAvailable == nil || *budget.MinAvailable != intstr.FromInt32(1) || budget.MaxUnavailable != nil {
			t.Errorf("%s: the budget keeps %v and takes %v, want that one of two stays", dir, budget.MinAvailable, budget.MaxUnavailable)
		}
		service := find[*corev1.Service](t, objects, "Service/holdfast-webhook").Spec
		for what, selector := range map[string]*metav1.LabelSelector{
			"the Deployment": d.Spec.Selector, "what keeps replicas apart": term.LabelSelector, "the budget": budget.Selector,
			"the Service": {MatchLabels: service.Selector},
		} {
			if !picksManager(t, selector, objects) {
				t.Errorf("%s: %s is not about the manager's Pods alone: %v", dir, what, selector)
			}
		}
		if p := service.Ports; len(p) != 1 || p[0].Port != 443 || !hasPort(d, p[0].TargetPort.String()) {
			t.Errorf("%s: the Service has ports %+v; the API server asks 443, and the manager answers at its port webhook", dir, p)
		}
	}
}

// The NetworkPolicy lets in what the manager serves and nothing else: a port that
// is in one of the two alone is either shut or open to no purpose.
func TestManagerIsReachedAtItsPorts(t *testing.T) {
	for _, dir := range kustomizations {
		objects := render(t, dir)
		spec := find[*networkingv1.NetworkPolicy](t, objects, "NetworkPolicy/holdfast-manager").Spec
		if !picksManager(t, &spec.PodSelector, objects) {
			t.Errorf("%s: it is not about the manager's Pods alone: %v", dir, spec.PodSelector)
		}
		if !slices.Equal(spec.PolicyTypes, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}) {
			t.Errorf("%s: it is about %v; the manager asks the API server and kubelets, whose addresses differ", dir, spec.PolicyTypes)
		}
		var open, served []string
		for _, rule := range spec.Ingress {
			if len(rule.From) > 0 || len(rule.Ports) == 0 {
				t.Errorf("%s: a rule is from %v, with ports %v; want ports for all, since the API server's address is not known", dir, rule.From, rule.Ports)
			}
			for _, p := range rule.Ports {
				open = append(open, p.Port.String())
			}
		}
		for _, p := range pods(objects)["Deployment/holdfast-manager"].Containers[0].Ports {
			served = append(served, p.Name)
		}
		slices.Sort(open)
		slices.Sort(served)
		if !slices.Equal(open, served) || !slices.Equal(served, []string{"healthz", "metrics", "webhook"}) {
			t.Errorf("%s: open are %v, served %v; want healthz, metrics, webhook", dir, open, served)
		}
	}
}

func hasPort(d *appsv1.Deployment, name string) bool {
	return slices.ContainsFunc(d.Spec.Template.Spec.Containers[0].Ports, func(p corev1.ContainerPort) bool { return p.Name == name })
}

// picksManager says whether a selector picks the manager's Pods, and none of the
// other Pods of the install.
func picksManager(t *testing.T, s *metav1.LabelSelector, objects []object) bool {
	t.Helper()
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		t.Fatal(err)
	}
	right := true
	for _, o := range objects {
		switch w := o.typed.(type) {
		case *appsv1.Deployment:
			right = right && selector.Matches(labels.Set(w.Spec.Template.Labels)) == (w.Name == "holdfast-manager")
		case *appsv1.DaemonSet:
			right = right && !selector.Matches(labels.Set(w.Spec.Template.Labels))
		}
	}
	return right
}
