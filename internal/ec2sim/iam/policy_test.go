package iam

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// known are the condition keys of these tests.
func known(key string) bool { return strings.HasPrefix(strings.ToLower(key), "test:") }

func parse(t *testing.T, statements string) *Policy {
	t.Helper()
	p, err := Parse(fmt.Appendf(nil, `{"Version": "2012-10-17", "Statement": %s}`, statements), known)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

const volumeARN = "arn:aws:ec2:us-east-1:000000000000:volume/vol-1"

// TestActionAndResource has a row for each way a statement names actions and
// resources.
func TestActionAndResource(t *testing.T) {
	rows := []struct {
		why, statement, action, resource string
		want                             bool
	}{
		{"the action and any resource", `{"Effect":"Allow","Action":"ec2:Go","Resource":"*"}`, "ec2:Go", volumeARN, true},
		{"actions compare without case", `{"Effect":"Allow","Action":"EC2:gO","Resource":"*"}`, "ec2:Go", volumeARN, true},
		{"another action", `{"Effect":"Allow","Action":"ec2:Go","Resource":"*"}`, "ec2:Gone", volumeARN, false},
		{"a list of actions", `{"Effect":"Allow","Action":["ec2:A","ec2:Go"],"Resource":"*"}`, "ec2:Go", volumeARN, true},
		{"a star in the action", `{"Effect":"Allow","Action":"ec2:G*","Resource":"*"}`, "ec2:Go", volumeARN, true},
		{"all actions", `{"Effect":"Allow","Action":"*","Resource":"*"}`, "ec2:Go", volumeARN, true},
		{"a star in the middle", `{"Effect":"Allow","Action":"ec2:*Volume","Resource":"*"}`, "ec2:DeleteVolume", volumeARN, true},
		{"a question mark is one character", `{"Effect":"Allow","Action":"ec2:G?","Resource":"*"}`, "ec2:G", volumeARN, false},
		{"NotAction leaves the rest", `{"Effect":"Allow","NotAction":"ec2:Stop","Resource":"*"}`, "ec2:Go", volumeARN, true},
		{"NotAction takes its own out", `{"Effect":"Allow","NotAction":"ec2:G*","Resource":"*"}`, "ec2:Go", volumeARN, false},
		{"a resource of the kind", `{"Effect":"Allow","Action":"*","Resource":"arn:aws:ec2:*:*:volume/*"}`, "ec2:Go", volumeARN, true},
		{"a resource of another kind", `{"Effect":"Allow","Action":"*","Resource":"arn:aws:ec2:*:*:snapshot/*"}`, "ec2:Go", volumeARN, false},
		{"resources compare with case", `{"Effect":"Allow","Action":"*","Resource":"arn:aws:ec2:*:*:Volume/*"}`, "ec2:Go", volumeARN, false},
		{"an empty account is matched by a star", `{"Effect":"Allow","Action":"*","Resource":"arn:aws:ec2:*:*:snapshot/*"}`, "ec2:Go", "arn:aws:ec2:us-east-1::snapshot/snap-1", true},
		{"an empty account is not another's", `{"Effect":"Allow","Action":"*","Resource":"arn:aws:ec2:*::volume/*"}`, "ec2:Go", volumeARN, false},
		{"a star does not reach over a colon", `{"Effect":"Allow","Action":"*","Resource":"arn:aws:*:volume/vol-1::"}`, "ec2:Go", volumeARN, false},
		{"no resource needs Resource *", `{"Effect":"Allow","Action":"*","Resource":"arn:aws:ec2:*:*:volume/*"}`, "ec2:Describe", "*", false},
		{"NotResource leaves the rest", `{"Effect":"Allow","Action":"*","NotResource":"arn:aws:ec2:*:*:instance/*"}`, "ec2:Go", volumeARN, true},
		{"NotResource takes its own out", `{"Effect":"Allow","Action":"*","NotResource":"arn:aws:ec2:*:*:volume/*"}`, "ec2:Go", volumeARN, false},
		{"a deny wins over an allow after it", `[{"Effect":"Deny","Action":"ec2:Go","Resource":"*"},{"Effect":"Allow","Action":"*","Resource":"*"}]`, "ec2:Go", volumeARN, false},
		{"a deny wins over an allow before it", `[{"Effect":"Allow","Action":"*","Resource":"*"},{"Effect":"Deny","Action":"ec2:Go","Resource":"*"}]`, "ec2:Go", volumeARN, false},
		{"a deny of another action does not", `[{"Effect":"Allow","Action":"*","Resource":"*"},{"Effect":"Deny","Action":"ec2:Stop","Resource":"*"}]`, "ec2:Go", volumeARN, true},
		{"a deny alone allows nothing", `{"Effect":"Deny","Action":"ec2:Stop","Resource":"*"}`, "ec2:Go", volumeARN, false},
	}
	for _, row := range rows {
		d := parse(t, row.statement).Evaluate(Request{Action: row.action, Resource: row.resource})
		if d.Allowed != row.want {
			t.Errorf("%s: allowed %v, want %v", row.why, d.Allowed, row.want)
		}
	}
}

// TestConditions has a row for each operator, and for what it makes of a key
// that has no value or several.
func TestConditions(t *testing.T) {
	rows := []struct {
		why, condition string
		have           []string // the values of test:Key; nil: it is absent
		want           bool
	}{
		{"equal", `{"StringEquals":{"test:Key":"a"}}`, []string{"a"}, true},
		{"equal compares with case", `{"StringEquals":{"test:Key":"a"}}`, []string{"A"}, false},
		{"equal takes a star as a star", `{"StringEquals":{"test:Key":"*"}}`, []string{"a"}, false},
		{"values are alternatives", `{"StringEquals":{"test:Key":["b","a"]}}`, []string{"a"}, true},
		{"keys compare without case", `{"StringEquals":{"TEST:kEY":"a"}}`, []string{"a"}, true},
		{"absent is not equal", `{"StringEquals":{"test:Key":"a"}}`, nil, false},
		{"absent, if it exists", `{"StringEqualsIfExists":{"test:Key":"a"}}`, nil, true},
		{"there, if it exists", `{"StringEqualsIfExists":{"test:Key":"a"}}`, []string{"b"}, false},
		{"not equal", `{"StringNotEquals":{"test:Key":"a"}}`, []string{"b"}, true},
		{"not equal to any of them", `{"StringNotEquals":{"test:Key":["a","b"]}}`, []string{"b"}, false},
		{"absent is unequal", `{"StringNotEquals":{"test:Key":"a"}}`, nil, true},
		{"without case", `{"StringEqualsIgnoreCase":{"test:Key":"a"}}`, []string{"A"}, true},
		{"not, without case", `{"StringNotEqualsIgnoreCase":{"test:Key":"a"}}`, []string{"A"}, false},
		{"like", `{"StringLike":{"test:Key":"a*c?"}}`, []string{"abbcd"}, true},
		{"like compares with case", `{"StringLike":{"test:Key":"a*"}}`, []string{"Ab"}, false},
		{"not like", `{"StringNotLike":{"test:Key":"a*"}}`, []string{"ab"}, false},
		{"like anything asks for the key", `{"StringLike":{"test:Key":"*"}}`, nil, false},
		{"numbers", `{"NumericLessThanEquals":{"test:Key":"10"}}`, []string{"10"}, true},
		{"numbers are not text", `{"NumericLessThan":{"test:Key":9}}`, []string{"10"}, false},
		{"greater", `{"NumericGreaterThan":{"test:Key":"9"}}`, []string{"10"}, true},
		{"at least", `{"NumericGreaterThanEquals":{"test:Key":"11"}}`, []string{"10"}, false},
		{"equal numbers", `{"NumericEquals":{"test:Key":"10.0"}}`, []string{"10"}, true},
		{"unequal numbers", `{"NumericNotEquals":{"test:Key":"10.0"}}`, []string{"10"}, false},
		{"no number", `{"NumericLessThan":{"test:Key":"10"}}`, []string{"ten"}, false},
		{"bool", `{"Bool":{"test:Key":true}}`, []string{"true"}, true},
		{"bool not", `{"Bool":{"test:Key":"true"}}`, []string{"false"}, false},
		{"an ARN", `{"ArnLike":{"test:Key":"arn:aws:ec2:*:*:volume/*"}}`, []string{volumeARN}, true},
		{"not an ARN", `{"ArnNotEquals":{"test:Key":"arn:aws:ec2:*:*:volume/*"}}`, []string{volumeARN}, false},
		{"there must be none", `{"Null":{"test:Key":"true"}}`, nil, true},
		{"there is one", `{"Null":{"test:Key":"true"}}`, []string{"a"}, false},
		{"there must be one", `{"Null":{"test:Key":"false"}}`, nil, false},
		{"all values are among them", `{"ForAllValues:StringEquals":{"test:Key":["a","b"]}}`, []string{"b", "a"}, true},
		{"one value is not", `{"ForAllValues:StringEquals":{"test:Key":["a","b"]}}`, []string{"a", "c"}, false},
		{"no values are all among them", `{"ForAllValues:StringEquals":{"test:Key":["a"]}}`, nil, true},
		{"any value is among them", `{"ForAnyValue:StringLike":{"test:Key":["a*"]}}`, []string{"x", "ab"}, true},
		{"none is", `{"ForAnyValue:StringLike":{"test:Key":["a*"]}}`, []string{"x"}, false},
		{"no value is not any", `{"ForAnyValue:StringNotEquals":{"test:Key":["a"]}}`, nil, false},
		{"all operators have to hold", `{"StringEquals":{"test:Key":"a"},"Null":{"test:Other":"false"}}`, []string{"a"}, false},
		{"all keys have to hold", `{"StringEquals":{"test:Key":"a","test:Other":"b"}}`, []string{"a"}, false},
	}
	for _, row := range rows {
		p := parse(t, fmt.Sprintf(`{"Effect":"Allow","Action":"*","Resource":"*","Condition":%s}`, row.condition))
		ctx := map[string][]string{}
		if row.have != nil {
			ctx["test:Key"] = row.have
		}
		if d := p.Evaluate(Request{Action: "ec2:Go", Resource: volumeARN, Context: ctx}); d.Allowed != row.want {
			t.Errorf("%s: allowed %v, want %v", row.why, d.Allowed, row.want)
		}
	}
}

// TestParseRefuses: what is not evaluated does not parse, and the text names it.
func TestParseRefuses(t *testing.T) {
	ok := `"Effect":"Allow","Action":"ec2:Go","Resource":"*"`
	rows := []struct{ why, policy, says string }{
		{"no JSON", `{`, "policy"},
		{"something behind it", `{"Version":"2012-10-17","Statement":{` + ok + `}} x`, "policy"},
		{"the old language", `{"Version":"2008-10-17","Statement":{` + ok + `}}`, "2012-10-17"},
		{"no statement", `{"Version":"2012-10-17"}`, "no statement"},
		{"an unknown element", `{"Version":"2012-10-17","Statement":{` + ok + `,"Principal":"*"}}`, "Principal"},
		{"an unknown element in a list", `{"Version":"2012-10-17","Statement":[{` + ok + `,"Principal":"*"}]}`, "Principal"},
		{"neither allow nor deny", `{"Version":"2012-10-17","Statement":{"Effect":"allow","Action":"ec2:Go","Resource":"*"}}`, `"allow"`},
		{"no action", `{"Version":"2012-10-17","Statement":{"Effect":"Allow","Resource":"*"}}`, "Action"},
		{"Action and NotAction", `{"Version":"2012-10-17","Statement":{` + ok + `,"NotAction":"ec2:Stop"}}`, "NotAction"},
		{"no resource", `{"Version":"2012-10-17","Statement":{"Effect":"Allow","Action":"ec2:Go"}}`, "Resource"},
		{"an action without service", `{"Version":"2012-10-17","Statement":{"Effect":"Allow","Action":"Go","Resource":"*"}}`, `"Go"`},
		{"a resource that is no ARN", `{"Version":"2012-10-17","Statement":{"Effect":"Allow","Action":"ec2:Go","Resource":"vol-1"}}`, "vol-1"},
		{"a variable", `{"Version":"2012-10-17","Statement":{"Effect":"Allow","Action":"ec2:Go","Resource":"arn:aws:ec2:*:*:volume/${aws:username}"}}`, "variables"},
		{"a variable in a condition", `{"Version":"2012-10-17","Statement":{` + ok + `,"Condition":{"StringEquals":{"test:Key":"${aws:username}"}}}}`, "variables"},
		{"an unknown operator", `{"Version":"2012-10-17","Statement":{"Sid":"S1",` + ok + `,"Condition":{"IpAddress":{"test:Key":"10.0.0.0/8"}}}}`, "IpAddress"},
		{"an unknown key", `{"Version":"2012-10-17","Statement":{"Sid":"S1",` + ok + `,"Condition":{"StringEquals":{"aws:SourceVpc":"x"}}}}`, "aws:SourceVpc"},
		{"no value", `{"Version":"2012-10-17","Statement":{` + ok + `,"Condition":{"StringEquals":{"test:Key":[]}}}}`, "no value"},
		{"a value that is none", `{"Version":"2012-10-17","Statement":{` + ok + `,"Condition":{"StringEquals":{"test:Key":{}}}}}`, "want a string"},
		{"a number that is none", `{"Version":"2012-10-17","Statement":{` + ok + `,"Condition":{"NumericEquals":{"test:Key":"ten"}}}}`, "ten"},
		{"a bool that is none", `{"Version":"2012-10-17","Statement":{` + ok + `,"Condition":{"Null":{"test:Key":"yes"}}}}`, "yes"},
		{"Null has no IfExists", `{"Version":"2012-10-17","Statement":{` + ok + `,"Condition":{"NullIfExists":{"test:Key":"true"}}}}`, "Null"},
	}
	for _, row := range rows {
		_, err := Parse([]byte(row.policy), known)
		if err == nil || !strings.Contains(err.Error(), row.says) {
			t.Errorf("%s: error %v, want one that says %s", row.why, err, row.says)
		}
	}
}

func TestDecisionNamesItsStatement(t *testing.T) {
	p := parse(t, `[{"Sid":"Yes","Effect":"Allow","Action":"ec2:A*","Resource":"*"},{"Effect":"Deny","Action":"ec2:AB","Resource":"*"}]`)
	if diff := cmp.Diff([]string{"Yes", "statement 2"}, p.Statements()); diff != "" {
		t.Error(diff)
	}
	for action, want := range map[string]Decision{
		"ec2:A":  {true, "Yes"},
		"ec2:AB": {false, "statement 2"},
		"ec2:B":  {false, ""},
	} {
		if got := p.Evaluate(Request{Action: action, Resource: "*"}); got != want {
			t.Errorf("%s: %+v, want %+v", action, got, want)
		}
	}
}
