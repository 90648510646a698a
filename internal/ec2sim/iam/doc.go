// Package iam evaluates identity-based policies of AWS's identity and access
// management: actions, resources and conditions, an explicit deny over any
// allow, and nothing allowed that is not said.
//
// A policy that holds something this package does not evaluate (an operator, a
// condition key, a policy variable, an element) does not parse: better no
// simulation than one that lets pass what AWS would refuse.
//
// Sources:
// https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_grammar.html
// https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_evaluation-logic.html
// https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_elements_condition_operators.html
// https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_condition-single-vs-multi-valued-context-keys.html
package iam
