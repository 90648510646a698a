package modification

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Label is on the classes that are made here.
const Label = "holdfast.dev/modification"

// driver is the one whose volumes have these annotations.
const driver = "ebs.csi.aws.com"

// asked are the annotations, each with the parameter of the driver.
var asked = []struct{ annotation, parameter string }{
	{driver + "/volumeType", "type"}, {driver + "/iops", "iops"}, {driver + "/throughput", "throughput"},
}

// volumeType is how EC2 writes its types of volumes.
var volumeType = regexp.MustCompile(`^[a-z]+[0-9]*$`)

// Parameters are what the annotations of a claim ask for; none: nothing. An error
// names the annotation, what was found and what is allowed.
func Parameters(annotations map[string]string) (map[string]string, error) {
	var parameters map[string]string
	for _, a := range asked {
		value, there := annotations[a.annotation]
		if !there {
			continue
		}
		if a.parameter == "type" {
			if value = strings.ToLower(value); !volumeType.MatchString(value) || len(value) > 16 {
				return nil, fmt.Errorf("the annotation %s is %q, want a type of EBS volumes such as gp3 or io2", a.annotation, annotations[a.annotation])
			}
		} else if n, err := strconv.ParseInt(value, 10, 32); err != nil || n <= 0 || strconv.FormatInt(n, 10) != value {
			return nil, fmt.Errorf("the annotation %s is %q, want a whole number above 0", a.annotation, value)
		}
		if parameters == nil {
			parameters = map[string]string{}
		}
		parameters[a.parameter] = value
	}
	return parameters, nil
}

// ClassOf is the class for some parameters.
func ClassOf(parameters map[string]string) *storagev1.VolumeAttributesClass {
	name := "holdfast-ebs"
	if t := parameters["type"]; t != "" {
		name += "-" + t
	}
	for _, number := range []string{"iops", "throughput"} {
		if n := parameters[number]; n != "" {
			name += "-" + number + n
		}
	}
	return &storagev1.VolumeAttributesClass{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{Label: ""}},
		DriverName: driver, Parameters: parameters,
	}
}

// Step is what is to be done with a claim.
type Step int

// The steps.
const (
	Nothing Step = iota // nothing is asked for, or it is done
	Wait                // something is under way
	Tell                // something is in the way
	Set                 // the class is to be set
)

// Decide says what is to be done with a claim of the driver; class is nil where
// nothing is to be set. ours are the names of our classes.
func Decide(c *corev1.PersistentVolumeClaim, ours []string) (step Step, why string, class *storagev1.VolumeAttributesClass) {
	if c.DeletionTimestamp != nil || c.Status.Phase != corev1.ClaimBound {
		return Nothing, "", nil
	}
	parameters, err := Parameters(c.Annotations)
	switch {
	case err != nil:
		return Tell, err.Error(), nil
	case len(parameters) == 0:
		return Nothing, "", nil
	}
	class = ClassOf(parameters)
	now := ""
	if c.Spec.VolumeAttributesClassName != nil {
		now = *c.Spec.VolumeAttributesClassName
	}
	switch s := c.Status.ModifyVolumeStatus; {
	case now == class.Name:
		return Nothing, "", nil
	case now != "" && !slices.Contains(ours, now):
		return Tell, fmt.Sprintf("spec.volumeAttributesClassName is %q, which its owner set: the annotations %s/… are left alone; take them off, or let the class say what they say", now, driver), nil
	case s != nil && s.Status == corev1.PersistentVolumeClaimModifyVolumeInProgress:
		return Wait, "", nil
	}
	return Set, "", class
}
