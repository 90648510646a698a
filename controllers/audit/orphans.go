package audit

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/controllers/orphan"
	"github.com/holdfast-dev/holdfast/internal/policy"
)

// maxOrphans is how many the status lists.
const maxOrphans = 50

// scanOrphans reports the claims that carry the mark of an orphan, each under the
// one policy that acts on it. looked is what policies look at of each claim.
func scanOrphans(policies []*policy.Policy, seen Observed, looked map[types.NamespacedName]policy.Claim, results map[string]*Result) {
	for _, p := range policies {
		if p.Orphans != nil {
			results[p.Name].Orphans = &v1alpha1.OrphanReport{}
		}
	}
	asTheyAct := slices.Clone(policies)
	policy.Sort(asTheyAct)
	total := map[*v1alpha1.OrphanReport]*resource.Quantity{}
	for i := range seen.Claims {
		c := &seen.Claims[i]
		since, marked := orphan.Since(c)
		of, alive := looked[types.NamespacedName{Namespace: c.Namespace, Name: c.Name}]
		if !marked || !alive {
			continue
		}
		acts := policy.OnOrphan(asTheyAct, of)
		if acts == nil {
			continue
		}
		r := results[acts.Name].Orphans
		entry := v1alpha1.OrphanedClaim{
			Namespace: c.Namespace, Name: c.Name, StatefulSet: cmp.Or(c.Annotations[v1alpha1.AnnotationSetName], "(no stamp)"), Since: metav1.NewTime(since),
		}
		if seen.Told != nil {
			told := seen.Told(c.UID)
			entry.Message = policy.Short(told, maxMessage) // a letter that is cut would differ from what is stored
		}
		if size := c.Status.Capacity.Storage(); !size.IsZero() {
			known := size.DeepCopy()
			entry.Size = &known
			if total[r] == nil {
				total[r] = resource.NewQuantity(0, resource.BinarySI)
			}
			total[r].Add(known)
		}
		r.Count++
		r.Claims = append(r.Claims, entry)
	}
	for _, p := range policies {
		r := results[p.Name].Orphans
		if r == nil {
			continue
		}
		r.TotalSize = total[r]
		slices.SortFunc(r.Claims, func(a, b v1alpha1.OrphanedClaim) int {
			return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
		})
		r.Claims = r.Claims[:min(len(r.Claims), maxOrphans)]
	}
}
