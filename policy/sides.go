package policy

import (
	"context"
	"time"
)

// Searcher is an optional side of a policy that thinks longer than a turn
// allows. Search is called in the turn of a Replan action, with its tag, and
// copies what it needs of the policy's state. What it returns runs elsewhere and
// reads nothing of the policy. It stops when ctx ends or when it has done so
// much work, appends its result to dst and tells how much it has worked; for the
// same work it gives the same result.
type Searcher interface {
	Search(now time.Duration, tag int32) func(ctx context.Context, work int64, dst []int32) (result []int32, worked int64)
}

// Prober is an optional side of a policy that counts the paths it looked for.
type Prober interface{ Probes() int64 }

// Wrapper is a policy around another, such as a recorder.
type Wrapper interface {
	Policy
	Unwrap() Policy
}

// As finds an optional side of a policy, also of one inside wrappers.
func As[T any](p Policy) (side T, ok bool) {
	for p != nil {
		if side, ok = p.(T); ok {
			return side, true
		}
		w, wraps := p.(Wrapper)
		if !wraps {
			break
		}
		p = w.Unwrap()
	}
	return side, false
}
