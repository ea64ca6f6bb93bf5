package policytest

import (
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/policy"
)

// TB is the part of testing.TB that is used here, so that programs do not link testing.
type TB interface {
	Helper()
	Fatal(args ...any)
}

// Compile compiles a plan that must be right.
func Compile(tb TB, plan *formats.Plan) *policy.Tables {
	tb.Helper()
	t, err := policy.Compile(plan)
	if err != nil {
		tb.Fatal(err)
	}
	return t
}

// Times is a latency table: first for a batch of one, more for each further.
func Times(first, more time.Duration, batch int) []document.Micros {
	out := make([]document.Micros, batch)
	for b := range out {
		out[b] = document.Micros(first + time.Duration(b)*more)
	}
	return out
}
