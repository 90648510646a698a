package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/testenv"
)

// What the chapter is about, as policy-growth.yaml and fill.yaml have it.
const (
	growthPolicy = "demo-growth"
	filling      = "filling" // the claim
	filler       = "filler"  // the Pod that writes into it
	grownSize    = "2Gi"
	// written is how much the Pod writes in all: more than the disk had at first.
	written = "1280 MiB"
)

func (d *demo) fill(ctx context.Context) ([]string, error) {
	for _, file := range []string{"policy-growth.yaml", "fill.yaml"} {
		if err := d.apply(ctx, file); err != nil {
			return nil, err
		}
	}
	pod, err := d.WaitPodReady(ctx, namespace, filler, patience)
	if err != nil {
		return nil, err
	}
	d.fillerBefore = pod
	if d.sizeBefore, err = d.df(ctx, filler); err != nil {
		return nil, err
	}
	return []string{
		fmt.Sprintf("StoragePolicy %s: from 50 %% used, by 1 GiB, up to %s", growthPolicy, grownSize),
		fmt.Sprintf("Pod %s writes into 1 GiB of xfs: half of it at once, then 2 MiB each second", filler),
	}, nil
}

// growsByItself waits until the policy has grown the claim; nobody asks for it here.
func (d *demo) growsByItself(ctx context.Context) ([]string, error) {
	claim := &corev1.PersistentVolumeClaim{}
	var sizeAfter int64
	err := testenv.Eventually(ctx, 2*patience, "claim "+filling+" grown to "+grownSize, func(ctx context.Context) (string, error) {
		if err := d.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: filling}, claim); err != nil {
			return "", err
		}
		if got := claim.Status.Capacity[corev1.ResourceStorage]; got.Cmp(resource.MustParse(grownSize)) < 0 {
			return fmt.Sprintf("it asks for %s and has %s; %s", claim.Spec.Resources.Requests.Storage(), &got, blockedOf(claim)), nil
		}
		var err error
		if sizeAfter, err = d.df(ctx, filler); err != nil {
			return "", err
		}
		if sizeAfter < d.sizeBefore*3/2 {
			return fmt.Sprintf("df still shows %d KiB", sizeAfter), nil
		}
		return "", nil
	})
	if err != nil {
		return nil, err
	}
	told, err := d.event(ctx, filling, "Expanded", "to "+grownSize)
	if err != nil {
		return nil, err
	}
	pv, err := d.persistentVolume(ctx, filling)
	if err != nil {
		return nil, err
	}
	v, err := d.volume(ctx, pv.Spec.CSI.VolumeHandle)
	if err != nil {
		return nil, err
	}
	if v == nil || aws.ToInt32(v.Size) != 2 {
		return nil, fmt.Errorf("EC2 has not 2 GiB for volume %s: %+v", pv.Spec.CSI.VolumeHandle, v)
	}
	return []string{
		told,
		fmt.Sprintf("EC2: volume %s, 2 GiB; df /data (xfs): %d KiB before, %d KiB after", aws.ToString(v.VolumeId), d.sizeBefore, sizeAfter),
	}, nil
}

// blockedOf is why a claim does not grow; empty: nothing stops it.
func blockedOf(claim *corev1.PersistentVolumeClaim) string {
	for _, c := range claim.Status.Conditions {
		if c.Type == v1alpha1.ConditionExpansionBlocked && c.Status == corev1.ConditionTrue {
			return c.Reason + ": " + c.Message
		}
	}
	return ""
}

// writesOn has the Pod write past what the disk had at first.
func (d *demo) writesOn(ctx context.Context) ([]string, error) {
	if _, err := d.Exec(ctx, namespace, filler, "touch", "/data/hurry"); err != nil {
		return nil, err
	}
	err := testenv.Eventually(ctx, patience, written+" written", func(ctx context.Context) (string, error) {
		said, err := d.Kubectl(ctx, "-n", namespace, "logs", filler)
		if text := strings.TrimSpace(string(said)); err == nil && text != "every write succeeded" {
			return fmt.Sprintf("the Pod says %q", text), nil
		}
		return "", err
	})
	if err != nil {
		return nil, err
	}
	after, err := d.WaitPodReady(ctx, namespace, filler, patience)
	if err != nil {
		return nil, err
	}
	if after.UID != d.fillerBefore.UID || after.Status.ContainerStatuses[0].RestartCount != 0 {
		return nil, errors.New("the Pod was restarted on the way")
	}
	size, err := d.Exec(ctx, namespace, filler, "stat", "-c", "%s", "/data/file")
	if err != nil {
		return nil, err
	}
	bytes, err := strconv.ParseInt(size, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("stat in pod %s said %q", filler, size)
	}
	if bytes>>10 <= d.sizeBefore {
		return nil, fmt.Errorf("the file has %d KiB, the disk had %d at first", bytes>>10, d.sizeBefore)
	}
	return []string{fmt.Sprintf("the file has %d KiB, where there was room for %d KiB at most; no write failed, the Pod ran on", bytes>>10, d.sizeBefore)}, nil
}

func (d *demo) atMaximum(ctx context.Context) ([]string, error) {
	why := ""
	err := testenv.Eventually(ctx, patience, "claim "+filling+" says that it has its maximum", func(ctx context.Context) (string, error) {
		claim := &corev1.PersistentVolumeClaim{}
		if err := d.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: filling}, claim); err != nil {
			return "", err
		}
		if why = blockedOf(claim); !containsAll(why, []string{v1alpha1.ReasonAtMaximum, growthPolicy, grownSize}) {
			return fmt.Sprintf("it says %q", why), nil
		}
		return "", nil
	})
	return []string{why}, err
}

func (d *demo) endFill(ctx context.Context) ([]string, error) {
	pv, err := d.persistentVolume(ctx, filling)
	if err != nil {
		return nil, err
	}
	if err := d.deletePod(ctx, filler); err != nil {
		return nil, err
	}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: filling}}
	if err := d.Client.Delete(ctx, claim); err != nil {
		return nil, err
	}
	if err := d.WaitGone(ctx, claim, patience); err != nil {
		return nil, err
	}
	if _, err := d.Kubectl(ctx, "delete", "storagepolicy", growthPolicy); err != nil {
		return nil, err
	}
	id := pv.Spec.CSI.VolumeHandle
	return []string{fmt.Sprintf("volume %s is gone from EC2", id)}, d.volumeGone(ctx, id)
}
