// Package admit carries the verdict of the rules to the API server and tells it
// to the user. It stands between HTTP and the packages that judge a kind.
//
//	findings with Deny     the request is refused, with all findings in one message
//	findings with Warn     a warning each
//	findings with Audit    silence
//	overridden findings    silence
//	any finding            counted, and an event on the policy, unless it is a dry run
//	cannot judge           HTTP 500: the webhook's failurePolicy decides, Fail in
//	                       namespaces labelled holdfast.dev/enforce=strict, else Ignore
//
// An AdmissionResponse that is not allowed is a refusal whatever failurePolicy
// says, so a fault of ours must not be one.
// https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#failure-policy
package admit
