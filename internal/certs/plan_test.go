package certs

import (
	"crypto/x509"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

var start = time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)

var wanted = wish{names: []string{"holdfast-webhook.holdfast-system.svc"}, while: time.Minute}

// verify does what an API server does with a bundle.
func verify(t *testing.T, now time.Time, trusted []*pair, serving *pair) error {
	t.Helper()
	roots := x509.NewCertPool()
	for _, ca := range trusted {
		roots.AddCert(ca.cert)
	}
	_, err := serving.cert.Verify(x509.VerifyOptions{Roots: roots, DNSName: wanted.names[0], CurrentTime: now})
	return err
}

// life plays a time and holds at every moment that whoever saw the state up to
// a while ago trusts what is served up to a while later.
func life(t *testing.T, s state, from time.Time, length, tick time.Duration, w func(time.Time) wish) (state, []string) {
	t.Helper()
	var steps []string
	type moment struct {
		at      time.Time
		trusted []*pair
		serving *pair
	}
	var past []moment
	for now := from; now.Before(from.Add(length)); now = now.Add(tick) {
		want := w(now)
		after, step, look, err := next(now, s, want)
		if err != nil {
			t.Fatal(err)
		}
		if look <= 0 {
			t.Fatalf("at %s the next look is after %s", now, look)
		}
		if step != "" {
			steps = append(steps, step)
		}
		s = after
		past = append(past, moment{now, s.trusted, s.serving})
		for len(past) > 0 && past[0].at.Before(now.Add(-want.while)) {
			past = past[1:]
		}
		for _, p := range past {
			if err := verify(t, now, p.trusted, s.serving); err != nil {
				t.Fatalf("at %s: who last looked at %s refuses what is served now: %v", now, p.at, err)
			}
			if err := verify(t, now, s.trusted, p.serving); err != nil {
				t.Fatalf("at %s: what a replica still serves since %s is refused by who looks now: %v", now, p.at, err)
			}
		}
	}
	return s, steps
}

func TestForcedRotation(t *testing.T) {
	s, steps := life(t, state{}, start, 10*time.Minute, time.Second, func(now time.Time) wish {
		w := wanted
		if now.After(start.Add(3 * time.Minute)) {
			w.rotate = "again"
		}
		return w
	})
	want := []string{"make a CA and a serving certificate", "add the next CA", "serve a certificate of the next CA", "trust the last CA no longer"}
	if diff := cmp.Diff(want, steps); diff != "" {
		t.Errorf("steps (-want +got)\n%s", diff)
	}
	if len(s.trusted) != 1 || s.rotated != "again" {
		t.Errorf("%d CAs are trusted and the last rotation was %q, want one and %q", len(s.trusted), s.rotated, "again")
	}
}

func TestThreeYears(t *testing.T) {
	_, steps := life(t, state{}, start, 3*365*24*time.Hour, 6*time.Hour, func(time.Time) wish { return wanted })
	count := map[string]int{}
	for _, step := range steps {
		count[step]++
	}
	if count["make a CA and a serving certificate"] != 1 || count["add the next CA"] != 2 || count["trust the last CA no longer"] != 2 {
		t.Errorf("steps of three years: %v, want one beginning and two changes of CA", count)
	}
	if n := count["issue a serving certificate"]; n < 15 || n > 18 {
		t.Errorf("%d serving certificates of 90 days in three years, changed at two thirds", n)
	}
}

func TestSteps(t *testing.T) {
	settled, _, _, err := next(start, state{}, wanted)
	if err != nil {
		t.Fatal(err)
	}
	other := wanted
	other.names = []string{"other.ns.svc"}
	asked := wanted
	asked.rotate = "x"
	foreign, _, _, err := next(start, state{}, wanted)
	if err != nil {
		t.Fatal(err)
	}
	changing, _, _, err := next(start, settled, asked)
	if err != nil {
		t.Fatal(err)
	}
	toldLate := wanted
	toldLate.told = start.Add(time.Hour - wanted.while + time.Second)
	toldAgo := wanted
	toldAgo.told = start.Add(time.Hour - wanted.while)
	keyless := state{trusted: []*pair{{cert: settled.trusted[0].cert}}, serving: settled.serving}
	for name, tc := range map[string]struct {
		why  string
		at   time.Time
		s    state
		w    wish
		want string
	}{
		"settled":       {"nothing to do", start.Add(time.Hour), settled, wanted, ""},
		"renamed":       {"a Service of another name needs another certificate", start, settled, other, "issue a serving certificate"},
		"asked":         {"a rotation by hand", start, settled, asked, "add the next CA"},
		"asked before":  {"once for each token", start, state{trusted: settled.trusted, serving: settled.serving, rotated: "x"}, asked, ""},
		"request gone":  {"a request that is taken back is none", start, state{trusted: settled.trusted, serving: settled.serving, rotated: "x"}, wanted, ""},
		"expired":       {"after a long sleep all is made anew", start.Add(3 * caLife), settled, wanted, "make a CA and a serving certificate"},
		"not yet valid": {"also where the clock was set back", start.Add(-time.Hour), settled, wanted, "make a CA and a serving certificate"},
		"told late":     {"the leader ended before it told of the next CA: nothing of it is served before all have seen it", start.Add(time.Hour), changing, toldLate, ""},
		"told":          {"a while after", start.Add(time.Hour), changing, toldAgo, "serve a certificate of the next CA"},
		"never lacked":  {"the leader before told of it", start.Add(time.Hour), changing, wanted, "serve a certificate of the next CA"},
		"expired, late": {"where nobody is served nobody waits", start.Add(servingLife), changing, wish{names: wanted.names, while: wanted.while, told: start.Add(servingLife)}, "make a CA and a serving certificate"},
		"foreign":       {"a certificate of a CA that nobody trusts", start, state{trusted: foreign.trusted, serving: settled.serving}, wanted, "make a CA and a serving certificate"},
		"no key":        {"a CA whose key is lost can sign no more", start, keyless, wanted, "make a CA and a serving certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, got, _, err := next(tc.at, tc.s, tc.w); err != nil || got != tc.want {
				t.Errorf("%s: step %q, %v, want %q", tc.why, got, err, tc.want)
			}
		})
	}
}

func TestSecretKeepsAll(t *testing.T) {
	s, _, _, err := next(start, state{}, wanted)
	if err != nil {
		t.Fatal(err)
	}
	asked := wanted
	asked.rotate = "x"
	s, _, _, err = next(start, s, asked)
	if err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{}
	if err := s.into(secret); err != nil {
		t.Fatal(err)
	}
	back, err := fromSecret(secret)
	if err != nil {
		t.Fatal(err)
	}
	again := &corev1.Secret{}
	if err := back.into(again); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(secret, again); diff != "" {
		t.Errorf("a Secret read and written is another (-want +got)\n%s", diff)
	}
	if len(back.trusted) != 2 || back.trusted[1].key == nil || back.serving.key == nil || back.rotated != "x" {
		t.Errorf("read back: %d CAs, rotated %q", len(back.trusted), back.rotated)
	}
	secret.Data[keyCAKeys] = []byte("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")
	if _, err := fromSecret(secret); err == nil {
		t.Error("a broken key is read without an error")
	}
}
