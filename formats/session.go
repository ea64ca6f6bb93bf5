package formats

import (
	"fmt"

	"inferplan/formats/document"
)

// SessionState is the state that a model keeps of a request on a device from one task to the next, such as the
// keys and values of a language model. All figures are for the part that a task of the usual work adds.
type SessionState struct {
	Bytes       int64           `json:"bytes"`
	RecomputeUS document.Micros `json:"recompute_us"` // additional time of the next task if it has to compute the state again
	NearUS      document.Micros `json:"near_us"`      // time to another device of the same node
	FarUS       document.Micros `json:"far_us"`       // time to a device of another node
}

// checkSession reports to c what is wrong with the state that a model keeps between the requests of a session: its
// size, and the times to compute it again or to fetch it. s is nil for a model without state.
func checkSession(c *document.Checker, s *SessionState, fieldPath string) {
	if s == nil {
		return
	}
	c.HintIf(s.Bytes < 1 || s.Bytes > 1<<50, fieldPath+".bytes", s.Bytes, "1 or more bytes", "leave the state out of a model that keeps none")
	c.FailIf(s.RecomputeUS <= 0, fieldPath+".recompute_us", fmt.Sprint(s.RecomputeUS.D()), "a time above 0")
	c.FailIf(s.NearUS < 0 || s.FarUS < s.NearUS, fieldPath+".far_us", fmt.Sprint(s.FarUS.D()), "at least near_us, which is 0 or more")
}
