package ec2sim

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/ec2sim/iam"
)

// resource is something a call acts on, with the condition keys that AWS
// lists for it.
// https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazonec2.html
type resource struct {
	arn     string
	context map[string][]string
}

// Permission is how often a policy was asked for an action on a kind of
// resource, and which statement decided.
type Permission struct {
	Principal string `json:"principal"`
	// Action is ec2:… as policies write it. CreateVolume and CreateSnapshot
	// with tags ask for ec2:CreateTags as well.
	Action string `json:"action"`
	// Kind is the kind of resource: volume, snapshot, instance or "*".
	Kind    string `json:"kind"`
	Allowed bool   `json:"allowed"`
	// Statement is the Sid or number of the policy's statement that decided.
	Statement string `json:"statement,omitempty"`
	Count     int    `json:"count"`
}

// KnownConditionKey tells which condition keys of policies can be evaluated.
func KnownConditionKey(key string) bool {
	key = strings.ToLower(key)
	for _, prefix := range []string{"aws:requesttag/", "aws:resourcetag/", "ec2:resourcetag/"} {
		if strings.HasPrefix(key, prefix) && len(key) > len(prefix) {
			return true
		}
	}
	return slices.Contains([]string{"aws:tagkeys", "ec2:createaction", "ec2:region", "aws:requestedregion", "ec2:availabilityzone",
		"ec2:encrypted", "ec2:volumesize", "ec2:volumetype", "ec2:volumeiops", "ec2:volumethroughput", "ec2:parentsnapshot",
		"ec2:parentvolume", "ec2:instancetype"}, key)
}

// anything is the resource of actions that cannot be limited to one.
func anything() resource { return resource{arn: "*", context: map[string][]string{}} }

// arn of a resource of this account; snapshots have none in theirs.
func (s *Sim) arn(kind, id string) string {
	account := s.cfg.Account
	if kind == "snapshot" {
		account = ""
	}
	return fmt.Sprintf("arn:aws:ec2:%s:%s:%s/%s", s.cfg.Region, account, kind, id)
}

func (s *Sim) volumeResource(v *Volume) resource {
	res := resource{s.arn("volume", v.ID), resourceTags(v.Tags)}
	res.shape(v)
	return res
}

// shape adds what conditions can ask of a volume.
func (res resource) shape(v *Volume) {
	res.context["ec2:AvailabilityZone"] = []string{v.Zone}
	res.context["ec2:Encrypted"] = []string{strconv.FormatBool(v.Encrypted)}
	res.context["ec2:VolumeSize"] = []string{strconv.Itoa(int(v.SizeGiB))}
	res.context["ec2:VolumeType"] = []string{v.Type}
	res.context["ec2:VolumeIops"] = []string{strconv.Itoa(int(v.IOPS))}
	res.context["ec2:VolumeThroughput"] = []string{strconv.Itoa(int(v.ThroughputMiBs))}
}

func (s *Sim) snapshotResource(sn *Snapshot) resource {
	res := resource{s.arn("snapshot", sn.ID), resourceTags(sn.Tags)}
	res.context["ec2:ParentVolume"] = []string{s.arn("volume", sn.VolumeID)}
	res.context["ec2:VolumeSize"] = []string{strconv.Itoa(int(sn.SizeGiB))}
	return res
}

func (s *Sim) instanceResource(i *Instance) resource {
	res := resource{s.arn("instance", i.ID), resourceTags(i.Tags)}
	res.context["ec2:AvailabilityZone"] = []string{i.Zone}
	res.context["ec2:InstanceType"] = []string{i.Type}
	return res
}

func resourceTags(tags map[string]string) map[string][]string {
	ctx := map[string][]string{}
	for k, v := range tags {
		ctx["aws:ResourceTag/"+k] = []string{v}
		ctx["ec2:ResourceTag/"+k] = []string{v}
	}
	return ctx
}

// requestTags adds the tags that a call asks for to what conditions can ask.
func (res resource) requestTags(tags map[string]string) resource {
	for k, v := range tags {
		res.context["aws:RequestTag/"+k] = []string{v}
	}
	if len(tags) > 0 {
		res.context["aws:TagKeys"] = slices.Sorted(maps.Keys(tags))
	}
	return res
}

// allow asks the caller's policy for the action of the call on each resource.
func (r *request) allow(resources ...resource) *APIError {
	for _, res := range resources {
		if err := r.allowAction(r.action.name, res); err != nil {
			return err
		}
	}
	return nil
}

// allowNew asks for making a resource: the action on it and, with tags,
// ec2:CreateTags on it with ec2:CreateAction naming the action.
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/supported-iam-actions-tagging.html
func (r *request) allowNew(res resource, tags map[string]string) *APIError {
	res = res.requestTags(tags)
	if err := r.allowAction(r.action.name, res); err != nil || len(tags) == 0 {
		return err
	}
	res.context = maps.Clone(res.context)
	res.context["ec2:CreateAction"] = []string{r.action.name}
	return r.allowAction("CreateTags", res)
}

func (r *request) allowAction(action string, res resource) *APIError {
	policy := r.sim.policies[r.principal]
	if policy == nil {
		return nil
	}
	ctx := maps.Clone(res.context)
	ctx["ec2:Region"] = []string{r.sim.cfg.Region}
	ctx["aws:RequestedRegion"] = []string{r.sim.cfg.Region}
	d := policy.Evaluate(iam.Request{Action: "ec2:" + action, Resource: res.arn, Context: ctx})
	r.sim.permissions[Permission{Principal: r.principal, Action: "ec2:" + action, Kind: kindOf(res.arn), Allowed: d.Allowed, Statement: d.Statement}]++
	if d.Allowed {
		return nil
	}
	why := "because no identity-based policy allows the ec2:" + action + " action"
	if d.Statement != "" {
		why = "with an explicit deny in an identity-based policy"
	}
	return refuse("UnauthorizedOperation", "You are not authorized to perform this operation. User: arn:aws:iam::%s:user/%s is not authorized to perform: ec2:%s on resource: %s %s.",
		r.sim.cfg.Account, r.principal, action, res.arn, why)
}

// kindOf is the kind of resource in an ARN.
func kindOf(arn string) string {
	if arn == "*" {
		return arn
	}
	last := arn[strings.LastIndexByte(arn, ':')+1:]
	kind, _, _ := strings.Cut(last, "/")
	return kind
}

// allowCreateVolume asks for the new volume and for the snapshot it comes from.
func (r *request) allowCreateVolume(v *Volume, source *Snapshot) *APIError {
	res := resource{r.sim.arn("volume", "*"), map[string][]string{}}
	res.shape(v)
	if source != nil {
		res.context["ec2:ParentSnapshot"] = []string{r.sim.arn("snapshot", source.ID)}
		if err := r.allow(r.sim.snapshotResource(source)); err != nil {
			return err
		}
	}
	return r.allowNew(res, v.Tags)
}

// SetPolicy holds an access key to a policy; nil lets it do everything.
func (s *Sim) SetPolicy(accessKeyID string, p *iam.Policy) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p == nil {
		delete(s.policies, accessKeyID)
		return
	}
	s.policies[accessKeyID] = p
}

// Permissions counts what policies were asked since the start or the last
// ResetCalls: a test can tell from it which statements of a policy are used.
func (s *Sim) Permissions() []Permission {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []Permission{}
	for p, n := range s.permissions {
		p.Count = n
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b Permission) int {
		return cmp.Or(cmp.Compare(a.Principal, b.Principal), cmp.Compare(a.Action, b.Action), cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(a.Statement, b.Statement))
	})
	return out
}
