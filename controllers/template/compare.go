package template

import (
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/holdfast-dev/holdfast/webhooks/statefulset"
)

// Difference is a template that asks for another size than its claims have.
type Difference struct {
	// Template is the name of the volumeClaimTemplate.
	Template string
	// Asked is what the template asks for, Size what the largest claim does.
	Asked, Size resource.Quantity
	// Unsettled says why the claims are not all at that size; empty: they are.
	Unsettled string
}

// String says what differs.
func (d Difference) String() string {
	return fmt.Sprintf("volumeClaimTemplate %s asks for %s, and its claims have %s", d.Template, d.Asked.String(), d.Size.String())
}

// Compare says where the templates of a set and its claims differ. Claims are the
// set's by their stamp alone, and only those of the ordinals that it has count.
func Compare(set *appsv1.StatefulSet, claims []corev1.PersistentVolumeClaim) []Difference {
	var all []Difference
	for i := range set.Spec.VolumeClaimTemplates {
		template := &set.Spec.VolumeClaimTemplates[i]
		own := statefulset.ClaimsOf(set, template.Name, claims)
		if len(own) == 0 {
			continue
		}
		d := Difference{Template: template.Name, Asked: request(template), Size: largest(own)}
		if d.Size.Cmp(d.Asked) == 0 {
			continue
		}
		d.Unsettled = unsettled(set, own, d.Size)
		all = append(all, d)
	}
	return all
}

// Unsettled says which claims of a set are not all there, bound, of one size for each
// template, and left in peace; empty: all are, also those of templates that do not
// differ.
func Unsettled(set *appsv1.StatefulSet, claims []corev1.PersistentVolumeClaim) string {
	for i := range set.Spec.VolumeClaimTemplates {
		own := statefulset.ClaimsOf(set, set.Spec.VolumeClaimTemplates[i].Name, claims)
		if why := unsettled(set, own, largest(own)); why != "" {
			return fmt.Sprintf("of volumeClaimTemplate %s, %s", set.Spec.VolumeClaimTemplates[i].Name, why)
		}
	}
	return ""
}

// largest is the size that the largest of some claims asks for.
func largest(claims []*corev1.PersistentVolumeClaim) resource.Quantity {
	var most resource.Quantity
	for _, c := range claims {
		if size := request(c); size.Cmp(most) > 0 {
			most = size
		}
	}
	return most
}

func request(c *corev1.PersistentVolumeClaim) resource.Quantity {
	return c.Spec.Resources.Requests[corev1.ResourceStorage]
}

// unsettled says why the claims of a template are not all at a size.
func unsettled(set *appsv1.StatefulSet, own []*corev1.PersistentVolumeClaim, size resource.Quantity) string {
	if wanted := replicas(set); int32(len(own)) < wanted {
		return fmt.Sprintf("%d of %d claims are there and stamped", len(own), wanted)
	}
	for _, c := range own {
		has := c.Status.Capacity[corev1.ResourceStorage]
		asked := request(c)
		switch {
		case c.DeletionTimestamp != nil:
			return fmt.Sprintf("claim %s is being deleted", c.Name)
		case c.Status.Phase != corev1.ClaimBound:
			return fmt.Sprintf("claim %s is not bound", c.Name)
		case asked.Cmp(size) != 0:
			return fmt.Sprintf("claim %s asks for %s, and its largest sibling for %s", c.Name, asked.String(), size.String())
		case has.Cmp(asked) < 0:
			return fmt.Sprintf("claim %s grows from %s to %s", c.Name, has.String(), asked.String())
		case statefulset.Resizing(c):
			return fmt.Sprintf("claim %s is being modified", c.Name)
		}
	}
	return ""
}

func replicas(set *appsv1.StatefulSet) int32 {
	if set.Spec.Replicas == nil {
		return 1 // the API's default
	}
	return *set.Spec.Replicas
}

// sentence joins what is told of several templates.
func sentence(differences []Difference) string {
	parts := make([]string, len(differences))
	for i, d := range differences {
		parts[i] = d.String()
	}
	return strings.Join(parts, "; ")
}
