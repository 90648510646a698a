package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/internal/testenv"
)

// namespace is where the story plays.
const namespace = "demo"

// patience bounds each wait. What is waited for takes seconds; the bound is
// for a machine that is busy with something else.
const patience = 90 * time.Second

// demo is the stage: the cluster, EC2, and what one step leaves for the next.
type demo struct {
	*testenv.Cluster
	ec2      *ec2.Client
	volumeID string // of the claim "data"
	checksum string // of the file written into it
	// firstCopies are the EBS snapshots of the run by hand.
	firstCopies []string
	// fillerBefore is the Pod that fills its disk, and sizeBefore its disk in KiB,
	// before that has grown.
	fillerBefore *corev1.Pod
	sizeBefore   int64
}

func (d *demo) chapters() []chapter {
	return []chapter{
		{"A volume is made, attached, mounted", []step{
			{"claim waits for its Pod (WaitForFirstConsumer)", d.claimWaits},
			{"Pod comes: the volume is created in its zone, the claim is bound", d.bound},
			{"volume is attached to the Pod's node", d.attached},
			{"disk is formatted and mounted in the Pod", d.mounted},
			{"data is written", d.write},
		}},
		{"The Pod moves, the data with it", []step{
			{"node cordoned, Pod goes to the other node of the zone, data still there", d.move},
			{"forced into another zone: EC2 refuses, the Pod's events say why", d.wrongZone},
			{"cured: the scheduler chooses the node", d.rightZone},
		}},
		{"A wrong class is refused with the reason", []step{
			{"encrypted: \"yes\" is no value: the claim's event names key, value and what is allowed", d.typo},
		}},
		{"Snapshot and restore", []step{
			{"snapshot of the claim becomes ready", d.snapshot},
			{"restored into a new claim: same content", d.restore},
		}},
		{"Growth under a running Pod", []step{
			{"xfs grows from 1 to 2 GiB, seen by df", func(ctx context.Context) ([]string, error) {
				return d.grow(ctx, "xfs", "grow-xfs.yaml", "growing", "grower")
			}},
			{"ext4 grows from 1 to 2 GiB, seen by df", d.growExt4},
		}},
		{"A volume grows under its writer", []step{
			{"a StoragePolicy says when claims grow and how far, and a Pod fills its disk", d.fill},
			{"half full, the volume grows under the Pod, and nobody asked", d.growsByItself},
			{"the Pod writes more than the disk had at first, and no write fails", d.writesOn},
			{"at the policy's maxSize the claim grows no more, and says why", d.atMaximum},
			{"Pod, claim and policy are deleted", d.endFill},
		}},
		{"A StatefulSet keeps its claims", []step{
			{"three replicas, each with a volume of its own", d.setUp},
			{"scaled down to one and up again: same claims, same data", d.scale},
		}},
		{"A schedule copies the claims, and lets the copies age out", []step{
			{"a SnapshotSchedule of one minute: nothing is copied at its creation", d.schedule},
			{"run by hand: a copy of each claim appears and becomes ready", d.runNow},
			{"the next minute comes: new copies, and the old ones age out", d.ageOut},
			{"the schedule is deleted with its copies", d.endSchedule},
		}},
		{"A policy holds the cluster to the platform's rules", []step{
			{"a StoragePolicy says what EBS volumes must be", d.policy},
			{"a class that does not encrypt and does not wait for the Pod is refused", d.badClass},
			{"a claim that is too large is refused", d.badClaim},
			{"a claim without a copy is not deleted, though no Pod uses it any more", d.protected},
			{"the right ones are accepted: class, claim, deletion after a snapshot", d.right},
		}},
		{"The end", []step{
			{"the policy and everything else is deleted, nothing is left in EC2", d.deleteAll},
		}},
	}
}

// prepare puts a demo that is played again on the same cluster back to its start.
func (d *demo) prepare(ctx context.Context) error {
	if err := d.deleteNamespace(ctx); err != nil {
		return err
	}
	nodes, err := d.Kubectl(ctx, "get", "nodes", "-o", "name")
	if err != nil {
		return err
	}
	if _, err := d.Kubectl(ctx, append([]string{"uncordon"}, strings.Fields(string(nodes))...)...); err != nil {
		return err
	}
	return d.apply(ctx, "00-base.yaml")
}

func (d *demo) apply(ctx context.Context, file string) error {
	_, err := d.Kubectl(ctx, "apply", "-f", d.manifest(file))
	return err
}

func (d *demo) deletePod(ctx context.Context, name string) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if err := d.Client.Delete(ctx, pod); client.IgnoreNotFound(err) != nil {
		return err
	}
	return d.WaitGone(ctx, pod, patience)
}

// event waits for an event about an object whose message contains all of want.
func (d *demo) event(ctx context.Context, object string, want ...string) (string, error) {
	var found string
	err := testenv.Eventually(ctx, patience, "event about "+object+" with "+strings.Join(want, ", "), func(ctx context.Context) (string, error) {
		var events corev1.EventList
		if err := d.Client.List(ctx, &events, client.InNamespace(namespace)); err != nil {
			return "", err
		}
		var others []string
		for _, e := range events.Items {
			if e.InvolvedObject.Name != object {
				continue
			}
			if containsAll(e.Reason+": "+e.Message, want) {
				found = e.Reason + ": " + e.Message
				return "", nil
			}
			others = append(others, e.Reason)
		}
		return fmt.Sprintf("only events %v", others), nil
	})
	return found, err
}

func containsAll(text string, parts []string) bool {
	for _, p := range parts {
		if !strings.Contains(text, p) {
			return false
		}
	}
	return true
}

// volume asks EC2 for a volume; nil where EC2 does not know it.
func (d *demo) volume(ctx context.Context, id string) (*types.Volume, error) {
	out, err := d.ec2.DescribeVolumes(ctx, &ec2.DescribeVolumesInput{VolumeIds: []string{id}})
	var api smithy.APIError
	if errors.As(err, &api) && api.ErrorCode() == "InvalidVolume.NotFound" {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &out.Volumes[0], nil
}

// volumeGone waits until EC2 does not know a volume.
func (d *demo) volumeGone(ctx context.Context, id string) error {
	return testenv.Eventually(ctx, patience, "volume "+id+" gone from EC2", func(ctx context.Context) (string, error) {
		v, err := d.volume(ctx, id)
		if err != nil || v == nil {
			return "", err
		}
		return string(v.State), nil
	})
}

// volumesOfCluster are all volumes that a driver made for Kubernetes.
func (d *demo) volumesOfCluster(ctx context.Context) ([]types.Volume, error) {
	out, err := d.ec2.DescribeVolumes(ctx, &ec2.DescribeVolumesInput{
		Filters: []types.Filter{{Name: aws.String("tag:kubernetes.io/created-for/pvc/namespace"), Values: []string{namespace}}},
	})
	if err != nil {
		return nil, err
	}
	return out.Volumes, nil
}

// persistentVolume returns the PV that a claim is bound to.
func (d *demo) persistentVolume(ctx context.Context, claim string) (*corev1.PersistentVolume, error) {
	c, err := d.WaitClaimBound(ctx, namespace, claim, patience)
	if err != nil {
		return nil, err
	}
	var pv corev1.PersistentVolume
	if err := d.Client.Get(ctx, client.ObjectKey{Name: c.Spec.VolumeName}, &pv); err != nil {
		return nil, err
	}
	if pv.Spec.CSI == nil {
		return nil, fmt.Errorf("PersistentVolume %s has no CSI source", pv.Name)
	}
	return &pv, nil
}
