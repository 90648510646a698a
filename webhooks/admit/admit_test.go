package admit

import (
	"context"
	"testing"
)

func TestGoesOn(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for name, tc := range map[string]struct {
		ctx      context.Context
		denied   int
		on, fail bool
	}{
		"time, nothing refused":    {t.Context(), 0, true, false},
		"time, one refused":        {t.Context(), 1, true, false},
		"time, enough refused":     {t.Context(), 2, false, false},
		"no time, nothing refused": {over, 0, false, true},
		"no time, one refused":     {over, 1, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			on, err := GoesOn(tc.ctx, tc.denied, 2)
			if on != tc.on || (err != nil) != tc.fail {
				t.Errorf("goes on: %v, error %v; want %v, an error: %v", on, err, tc.on, tc.fail)
			}
		})
	}
}
