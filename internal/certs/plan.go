package certs

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// state is what the Secret says.
type state struct {
	// trusted are the CAs that API servers are told of, the newest last.
	trusted []*pair
	// serving is the certificate that replicas present; nil: none.
	serving *pair
	// rotated is the token of the last rotation that was asked for and begun.
	rotated string
}

// wish is what is wanted of the certificates.
type wish struct {
	names []string
	// rotate is the token of a rotation that somebody asks for; empty: none.
	rotate string
	// while is how long a change takes to be seen by everybody.
	while time.Duration
	// told is when the webhook configurations were last found to lack a CA, and
	// were told of it; the zero time where they lacked none. A CA may be older:
	// a leader may end between making it and telling, and configurations may be
	// made again.
	told time.Time
	// before are the CAs that the webhook configurations were told of before all
	// is made anew: replicas serve what was signed by them until they look.
	before []*pair
}

// next takes at most one step. It answers the state after it, what the step
// was, "" for none, and when to look again.
func next(now time.Time, s state, w wish) (after state, step string, look time.Duration, err error) {
	signer := signerOf(s)
	switch newest := last(s.trusted); {
	case !usable(now, s):
		return begin(now, w)
	case newest != signer:
		if wait := w.while - min(age(now, newest), now.Sub(w.told)); wait > 0 {
			return s, "", wait, nil
		}
		s.serving, err = newest.issue(now, w.names)
		return s, "serve a certificate of the next CA", w.while, wrap("issue a serving certificate", err)
	case len(s.trusted) > 1 && age(now, s.serving) >= w.while:
		s.trusted = []*pair{signer}
		return s, "trust the last CA no longer", soon(now, s, w), nil
	case signer.old(now), w.rotate != "" && w.rotate != s.rotated:
		ca, err := newCA(now)
		s.trusted, s.rotated = append(slices.Clone(s.trusted), ca), cmp.Or(w.rotate, s.rotated)
		return s, "add the next CA", w.while, wrap("make a CA", err)
	case s.serving.old(now), !slices.Equal(s.serving.cert.DNSNames, w.names), s.serving.key == nil:
		s.serving, err = signer.issue(now, w.names)
		return s, "issue a serving certificate", soon(now, s, w), wrap("issue a serving certificate", err)
	}
	return s, "", soon(now, s, w), nil
}

// usable says whether there is a certificate to serve, and a CA to go on with.
func usable(now time.Time, s state) bool {
	signer := signerOf(s)
	return s.serving.usable(now) && signer.usable(now)
}

// nothingToServe says whether no replica can answer by what the Secret says:
// there is no certificate, its key is lost, or it has ended.
func nothingToServe(now time.Time, s state) bool {
	return s.serving == nil || s.serving.key == nil || !now.Before(s.serving.cert.NotAfter)
}

// mostBefore bounds how many earlier CAs a beginning keeps, so that one that is
// made again and again does not gather them without end.
const mostBefore = 4

// begin makes everything anew: nothing that is there can be used. What was
// trusted before is trusted for a while still, unless it has ended.
func begin(now time.Time, w wish) (state, string, time.Duration, error) {
	ca, err := newCA(now)
	if err != nil {
		return state{}, "", 0, wrap("make a CA", err)
	}
	serving, err := ca.issue(now, w.names)
	if err != nil {
		return state{}, "", 0, wrap("issue a serving certificate", err)
	}
	before := slices.DeleteFunc(slices.Clone(w.before), func(p *pair) bool { return !now.Before(p.cert.NotAfter) })
	before = before[max(0, len(before)-mostBefore):]
	s := state{trusted: append(before, ca), serving: serving, rotated: w.rotate}
	return s, "make a CA and a serving certificate", soon(now, s, w), nil
}

// signerOf is the trusted CA, with its key, that signed the serving certificate.
func signerOf(s state) *pair {
	if s.serving == nil {
		return nil
	}
	for _, ca := range s.trusted {
		if ca.key != nil && ca.signs(s.serving) {
			return ca
		}
	}
	return nil
}

// longestPause bounds the time between two looks, so that a clock that was set
// or a Secret that was changed by hand is noticed the same day.
const longestPause = time.Hour

// soon is when something is next to be done.
func soon(now time.Time, s state, w wish) time.Duration {
	if len(s.trusted) > 1 {
		return max(time.Second, w.while-age(now, s.serving))
	}
	return longestPause
}

func age(now time.Time, p *pair) time.Duration { return now.Sub(p.made()) }

func last(pairs []*pair) *pair {
	if len(pairs) == 0 {
		return nil
	}
	return pairs[len(pairs)-1]
}

func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}
