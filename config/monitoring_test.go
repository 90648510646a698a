package config

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// podMonitor is as much of a PodMonitor as these tests read.
type podMonitor struct {
	Spec struct {
		Selector struct {
			MatchLabels map[string]string `json:"matchLabels"`
		} `json:"selector"`
		PodMetricsEndpoints []struct {
			Port          string `json:"port"`
			Scheme        string `json:"scheme"`
			HonorLabels   bool   `json:"honorLabels"`
			Authorization *struct {
				Credentials corev1.SecretKeySelector `json:"credentials"`
			} `json:"authorization"`
			Relabelings []struct {
				TargetLabel string `json:"targetLabel"`
				Replacement string `json:"replacement"`
			} `json:"relabelings"`
		} `json:"podMetricsEndpoints"`
	} `json:"spec"`
}

func podMonitorOf(t *testing.T, name string) podMonitor {
	t.Helper()
	var m podMonitor
	raw, err := yaml.Marshal(byName(render(t, "monitoring"))["PodMonitor/"+name])
	if err == nil {
		err = yaml.Unmarshal(raw, &m)
	}
	if err != nil || len(m.Spec.PodMetricsEndpoints) == 0 {
		t.Fatalf("PodMonitor %s: %v", name, err)
	}
	return m
}

// What is scraped is there: Pods with the labels, containers with the ports, and
// all ports that serve metrics.
func TestPodMonitorsFindThePods(t *testing.T) {
	for name, ports := range map[string][]string{
		"holdfast-manager":    {"metrics"},
		"holdfast-controller": {"metrics", "provisioner", "attacher", "resizer", "snapshotter"},
	} {
		m := podMonitorOf(t, name)
		template := find[*appsv1.Deployment](t, render(t, "default"), "Deployment/"+name).Spec.Template
		for key, value := range m.Spec.Selector.MatchLabels {
			if template.Labels[key] != value {
				t.Errorf("%s looks for Pods with %s=%s, and these have %q", name, key, value, template.Labels[key])
			}
		}
		if len(m.Spec.Selector.MatchLabels) == 0 {
			t.Errorf("%s takes every Pod of the namespace", name)
		}
		there := map[string]bool{}
		for _, c := range template.Spec.Containers {
			for _, p := range c.Ports {
				there[p.Name] = true
			}
		}
		var scraped []string
		for _, e := range m.Spec.PodMetricsEndpoints {
			if !there[e.Port] {
				t.Errorf("%s scrapes port %s, and no container has one", name, e.Port)
			}
			scraped = append(scraped, e.Port)
		}
		if !slices.Equal(scraped, ports) {
			t.Errorf("%s scrapes %v, want %v", name, scraped, ports)
		}
	}
}

// The job is what alerts and dashboard go by. The manager's own label namespace,
// a schedule's, is not replaced by that of its Pod.
func TestScrapedSeriesKeepTheirLabels(t *testing.T) {
	for name, jobs := range map[string][]string{
		"holdfast-manager":    {"holdfast-manager"},
		"holdfast-controller": {"holdfast-controller", "holdfast-sidecars", "holdfast-sidecars", "holdfast-sidecars", "holdfast-sidecars"},
	} {
		var got []string
		for _, e := range podMonitorOf(t, name).Spec.PodMetricsEndpoints {
			for _, r := range e.Relabelings {
				if r.TargetLabel == "job" {
					got = append(got, r.Replacement)
				}
			}
		}
		if !slices.Equal(got, jobs) {
			t.Errorf("jobs of %s are %v, want %v", name, got, jobs)
		}
	}
	if !podMonitorOf(t, "holdfast-manager").Spec.PodMetricsEndpoints[0].HonorLabels {
		t.Error("the label namespace of schedules would be exported_namespace")
	}
}

// The token that is sent to whoever answers in the manager's place is of an
// account that may read metrics, and nothing else.
func TestMetricsAreReadWithATokenForThat(t *testing.T) {
	objects := render(t, "monitoring")
	e := podMonitorOf(t, "holdfast-manager").Spec.PodMetricsEndpoints[0]
	if e.Scheme != "https" || e.Authorization == nil {
		t.Fatalf("the manager is scraped by %s, with credentials %v", e.Scheme, e.Authorization)
	}
	secret := find[*corev1.Secret](t, objects, "Secret/"+e.Authorization.Credentials.Name)
	if secret.Type != corev1.SecretTypeServiceAccountToken || e.Authorization.Credentials.Key != corev1.ServiceAccountTokenKey || len(secret.Data)+len(secret.StringData) > 0 {
		t.Errorf("Secret %s is no token that Kubernetes makes: type %s, key %s", secret.Name, secret.Type, e.Authorization.Credentials.Key)
	}
	account := find[*corev1.ServiceAccount](t, objects, "ServiceAccount/"+secret.Annotations[corev1.ServiceAccountNameKey])
	if account.Namespace != secret.Namespace || account.Namespace != "holdfast-system" {
		t.Errorf("account in %s, its Secret in %s", account.Namespace, secret.Namespace)
	}
	var bound []string
	for _, o := range objects {
		switch b := o.typed.(type) {
		case *rbacv1.ClusterRoleBinding:
			for _, s := range b.Subjects {
				bound = append(bound, b.RoleRef.Kind+" "+b.RoleRef.Name+" to "+s.Namespace+"/"+s.Name)
			}
		case *rbacv1.Role, *rbacv1.RoleBinding, *rbacv1.ClusterRole:
			t.Errorf("%s widens rights", o.name)
		}
	}
	if diff := cmp.Diff([]string{"ClusterRole holdfast-metrics-reader to holdfast-system/" + account.Name}, bound); diff != "" {
		t.Errorf("bindings (-want +got)\n%s", diff)
	}
	role := find[*rbacv1.ClusterRole](t, render(t, "default"), "ClusterRole/holdfast-metrics-reader")
	if diff := cmp.Diff([]rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}}, role.Rules); diff != "" {
		t.Errorf("rights (-want +got)\n%s", diff)
	}
}

// Nobody needs an operator of Prometheus to install Holdfast.
func TestMonitoringIsApart(t *testing.T) {
	own := byName(render(t, "monitoring"))
	for _, dir := range kustomizations {
		for name := range byName(render(t, dir)) {
			if _, both := own[name]; both {
				t.Errorf("%s has %s of config/monitoring", dir, name)
			}
		}
	}
	want := []string{
		"ClusterRoleBinding/holdfast-metrics", "ConfigMap/holdfast-dashboards",
		"PodMonitor/holdfast-controller", "PodMonitor/holdfast-manager",
		"PrometheusRule/holdfast-driver", "PrometheusRule/holdfast-manager",
		"Secret/holdfast-metrics", "ServiceAccount/holdfast-metrics",
	}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(own))); diff != "" {
		t.Errorf("objects of config/monitoring (-want +got)\n%s", diff)
	}
}

// The alert about missing rights knows the codes that internal/ec2 takes for
// them. They are read from its table, which it does not export.
func TestAlertKnowsTheCodesOfMissingRights(t *testing.T) {
	code, err := os.ReadFile("../internal/ec2/errors.go")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, m := range regexp.MustCompile(`"([A-Za-z.]+)": +ebs\.ErrUnauthorized,`).FindAllStringSubmatch(string(code), -1) {
		want = append(want, m[1])
	}
	slices.Sort(want)
	alerts, err := os.ReadFile("monitoring/driver/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	got := regexp.MustCompile(`aws_ebs_csi_api_request_errors_total\{code=~"([^"]+)"\}`).FindStringSubmatch(string(alerts))
	if got == nil || len(want) < 5 {
		t.Fatalf("alert HoldfastEC2Denied names %v, internal/ec2 %v", got, want)
	}
	if diff := cmp.Diff(want, strings.Split(got[1], "|")); diff != "" {
		t.Errorf("codes of internal/ec2 and of the alert HoldfastEC2Denied (-code +alert)\n%s", diff)
	}
}
