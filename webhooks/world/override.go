package world

import (
	"context"
	"fmt"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
)

// Override is the verb on a StoragePolicy that lets somebody override it.
const Override = "override"

// Authorizer asks the API server what somebody may do.
type Authorizer struct{ Client client.Writer }

// MayOverride says whether a user may override all of the policies, and if not,
// what is missing, as a sentence.
func (a Authorizer) MayOverride(ctx context.Context, user authenticationv1.UserInfo, policies []string) (missing string, err error) {
	extra := map[string]authorizationv1.ExtraValue{}
	for k, v := range user.Extra {
		extra[k] = authorizationv1.ExtraValue(v)
	}
	var refused []string
	for _, name := range policies {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: Override, Group: v1alpha1.GroupVersion.Group, Version: v1alpha1.GroupVersion.Version, Resource: "storagepolicies", Name: name,
			},
		}}
		if err := a.Client.Create(ctx, review); err != nil {
			return "", fmt.Errorf("ask whether %s may override StoragePolicy %s: %w", user.Username, name, err)
		}
		if !review.Status.Allowed {
			refused = append(refused, fmt.Sprintf("%q", name))
		}
	}
	if refused == nil {
		return "", nil
	}
	return fmt.Sprintf("user %q may not override StoragePolicy %s: this takes the verb %q on storagepolicies.%s of that name, in a ClusterRole bound to the user",
		user.Username, strings.Join(refused, ", "), Override, v1alpha1.GroupVersion.Group), nil
}
