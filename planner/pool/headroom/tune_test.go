package headroom

import (
	"testing"

	"inferplan/formats"
)

// Parts that are the same for all models make no other plan.
func TestSameDeviceSharesComparesUtilisations(t *testing.T) {
	use := func(parts ...float64) (out []formats.Headroom) {
		for _, u := range parts {
			out = append(out, formats.Headroom{Margin: 0.2, Utilisation: u})
		}
		return out
	}
	for _, c := range []struct {
		kept, was []formats.Headroom
		want      bool
	}{
		{use(0.97, 0.97), use(1, 1), true},
		{use(0.97, 0.96), use(1, 1), false},
		{use(0.9*0.99, 0.8*0.99), use(0.9, 0.8), true},
		{use(0.9, 0.9), use(0.9, 1), false},
		{use(0.5), use(0.9), true},
	} {
		if got := sameDeviceShares(c.kept, c.was); got != c.want {
			t.Errorf("%v after %v: %v, want %v", c.kept, c.was, got, c.want)
		}
	}
}
