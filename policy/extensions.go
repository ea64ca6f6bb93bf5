package policy

import (
	"context"
	"time"
)

// Searcher is an extension of policies whose search takes longer than a turn allows. Search is called in the turn
// of a Replan action, with its tag, and copies what it needs of the policy's state. The function that it returns
// runs elsewhere and reads nothing of the policy. That function stops when ctx ends or when it has done the given
// work, appends its result to dst, and returns it with the work done. For the same work it returns the same
// result.
type Searcher interface {
	Search(now time.Duration, tag int32) func(ctx context.Context, work int64, dst []int32) (result []int32, worked int64)
}

// Prober is an extension of policies that count the paths they have sought.
type Prober interface{ Probes() int64 }

// Wrapper is a policy around another one, such as a recorder.
type Wrapper interface {
	Policy
	Unwrap() Policy
}

// FindExtension returns an extension of a policy, or of one inside wrappers. If there is none, it returns false.
func FindExtension[T any](inner Policy) (extension T, ok bool) {
	for inner != nil {
		extension, ok = inner.(T)
		if ok {
			return extension, true
		}
		wrapper, isWrapper := inner.(Wrapper)
		if !isWrapper {
			break
		}
		inner = wrapper.Unwrap()
	}
	return extension, false
}
