package world

import (
	"cmp"
	"context"
	"fmt"
	"slices"

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
// what is missing, as a sentence. Who may override every policy is asked about
// once. An answer that cannot be had is a no: what is refused can be tried again,
// and an override that is let in unasked stays.
func (a Authorizer) MayOverride(ctx context.Context, user authenticationv1.UserInfo, policies []string) (missing string) {
	if len(policies) == 0 {
		return ""
	}
	names := policies
	if len(policies) > 1 {
		names = slices.Concat([]string{every}, policies)
	}
	for _, name := range names {
		allowed, err := a.mayOverride(ctx, user, name)
		switch {
		case err != nil:
			return fmt.Sprintf("whether user %q may override StoragePolicy %q cannot be asked now, try again: %v", user.Username, cmp.Or(name, policies[0]), err)
		case allowed && name == every:
			return ""
		case !allowed && name != every:
			return fmt.Sprintf("user %q may not override StoragePolicy %q: this takes the verb %q on storagepolicies.%s of that name, in a ClusterRole bound to the user",
				user.Username, name, Override, v1alpha1.GroupVersion.Group)
		}
	}
	return ""
}

// every stands for all policies in a review of access.
const every = ""

func (a Authorizer) mayOverride(ctx context.Context, user authenticationv1.UserInfo, name string) (bool, error) {
	return a.may(ctx, user, authorizationv1.ResourceAttributes{
		Verb: Override, Group: v1alpha1.GroupVersion.Group, Version: v1alpha1.GroupVersion.Version, Resource: "storagepolicies", Name: name,
	})
}

// MayExec says whether a user may run commands in the Pods of a namespace, and
// if not, what is missing, as a sentence. An answer that cannot be had is a no.
func (a Authorizer) MayExec(ctx context.Context, user authenticationv1.UserInfo, namespace string) (missing string) {
	allowed, err := a.may(ctx, user, authorizationv1.ResourceAttributes{
		Verb: "create", Version: "v1", Resource: "pods", Subresource: "exec", Namespace: namespace,
	})
	switch {
	case err != nil:
		return fmt.Sprintf("whether user %q may run commands in Pods of namespace %s cannot be asked now, try again: %v", user.Username, namespace, err)
	case !allowed:
		return fmt.Sprintf("user %q may not run commands in Pods of namespace %s: this takes the verb \"create\" on pods/exec there", user.Username, namespace)
	}
	return ""
}

// may asks the API server.
func (a Authorizer) may(ctx context.Context, user authenticationv1.UserInfo, what authorizationv1.ResourceAttributes) (bool, error) {
	extra := map[string]authorizationv1.ExtraValue{}
	for k, v := range user.Extra {
		extra[k] = authorizationv1.ExtraValue(v)
	}
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra, ResourceAttributes: &what,
	}}
	err := a.Client.Create(ctx, review)
	return review.Status.Allowed, err
}
