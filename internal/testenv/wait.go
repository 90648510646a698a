package testenv

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// pollInterval is short against what is waited for (seconds) and long against
// a call to the API server (milliseconds).
const pollInterval = 200 * time.Millisecond

// Eventually polls until check reports "" for what is still missing, and fails
// after timeout with what was missing last. An error of check is taken for
// something missing: the API server may be restarting.
func Eventually(ctx context.Context, timeout time.Duration, what string, check func(context.Context) (missing string, err error)) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	last := "not looked at yet"
	for {
		missing, err := check(ctx)
		switch {
		case err == nil && missing == "":
			return nil
		case err == nil:
			last = missing
		case ctx.Err() == nil:
			last = err.Error()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: not after %v: %s", what, timeout, last)
		case <-tick.C:
		}
	}
}

// WaitPodReady waits until the Pod's containers are ready.
func (c *Cluster) WaitPodReady(ctx context.Context, namespace, name string, timeout time.Duration) (*corev1.Pod, error) {
	var pod corev1.Pod
	err := Eventually(ctx, timeout, "pod "+namespace+"/"+name+" ready", func(ctx context.Context) (string, error) {
		pod = corev1.Pod{}
		if err := c.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &pod); err != nil {
			return "", err
		}
		for _, cond := range pod.Status.Conditions {
			if cond.Type == corev1.PodReady && cond.Status == corev1.ConditionTrue {
				return "", nil
			}
		}
		return "phase " + string(pod.Status.Phase), nil
	})
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, c.events(ctx, namespace, name))
	}
	return &pod, nil
}

// WaitClaimBound waits until the claim is bound and returns it.
func (c *Cluster) WaitClaimBound(ctx context.Context, namespace, name string, timeout time.Duration) (*corev1.PersistentVolumeClaim, error) {
	var claim corev1.PersistentVolumeClaim
	err := Eventually(ctx, timeout, "claim "+namespace+"/"+name+" bound", func(ctx context.Context) (string, error) {
		claim = corev1.PersistentVolumeClaim{}
		if err := c.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &claim); err != nil {
			return "", err
		}
		if claim.Status.Phase != corev1.ClaimBound {
			return "phase " + string(claim.Status.Phase), nil
		}
		return "", nil
	})
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, c.events(ctx, namespace, name))
	}
	return &claim, nil
}

// WaitGone waits until the object is not found.
func (c *Cluster) WaitGone(ctx context.Context, obj client.Object, timeout time.Duration) error {
	what := fmt.Sprintf("%T %s/%s gone", obj, obj.GetNamespace(), obj.GetName())
	return Eventually(ctx, timeout, what, func(ctx context.Context) (string, error) {
		err := c.Client.Get(ctx, client.ObjectKeyFromObject(obj), obj)
		if client.IgnoreNotFound(err) != nil {
			return "", err
		}
		if err != nil {
			return "", nil
		}
		return fmt.Sprintf("still there, finalizers %v, deletion %v", obj.GetFinalizers(), obj.GetDeletionTimestamp()), nil
	})
}

// Exec runs a command in the first container of a Pod and returns its output.
func (c *Cluster) Exec(ctx context.Context, namespace, pod string, argv ...string) (string, error) {
	out, err := c.Kubectl(ctx, append([]string{"-n", namespace, "exec", pod, "--"}, argv...)...)
	return strings.TrimSpace(string(out)), err
}

// events are the messages about an object, for the text of a failure.
func (c *Cluster) events(ctx context.Context, namespace, name string) string {
	out, err := c.Kubectl(context.WithoutCancel(ctx), "-n", namespace, "get", "events",
		"--field-selector", "involvedObject.name="+name, "-o", "custom-columns=TYPE:.type,REASON:.reason,MESSAGE:.message")
	if err != nil {
		return "events: " + err.Error()
	}
	return string(out)
}

func fields(out []byte) []string { return strings.Fields(string(out)) }
