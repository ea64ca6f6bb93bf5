package main

import (
	"fmt"
	"math"
	"testing"
	"time"

	"inferplan/bench/figures"
	"inferplan/cputime"
	"inferplan/formats"
	"inferplan/policy/policies"
	"inferplan/testkit/policytest"
)

// The part "overheads": what the decisions for a request at the entry cost. A request
// arrives, finds a worker and its place in the queue, is tested and becomes part of a
// batch. The arrivals that the bench makes are in the figures. The queue begins with
// 1,000; a policy that drops much has less.

// entries are the policies, and how often a request comes.
var entries = []struct {
	policy string
	every  time.Duration
	asked  float64 // ns, with a queue of about 1,000; 0 if it is only shown
	as     string
}{
	{"feas", 2 * time.Millisecond, 200, "feas"},
	{"pard", 2 * time.Millisecond, 0, "pard"},
	{"nexus", 2 * time.Millisecond, 0, "nexus"},
	{"clipper++", 2 * time.Millisecond, 0, "clipper++"},
	{"feas", time.Millisecond, 0, "feas at twice what can be served"},
	{"pard", time.Millisecond, 0, "pard at twice what can be served"},
}

const (
	queued = 1000
	steps  = 400_000 // of a round
	rounds = 7
)

// decisions measures the policies in turns and adds the least CPU time of each.
func decisions(s *sheet) error {
	list := make([]*policytest.Entry, len(entries))
	least := make([]float64, len(entries))
	for i, c := range entries {
		tab, err := policies.Compile(policytest.EntryPlan(c.policy, queued))
		if err != nil {
			return err
		}
		pol, err := policies.New(formats.PolicySpec{Name: c.policy}, tab)
		if err != nil {
			return err
		}
		list[i], least[i] = policytest.NewEntry(pol, queued), math.Inf(1)
		list[i].Every = c.every
	}
	for range rounds {
		for i, e := range list {
			before := cputime.Used()
			for range steps {
				e.Step()
			}
			least[i] = min(least[i], float64(cputime.Used()-before)/steps)
		}
	}
	s.of("overheads")
	for i, c := range entries {
		asked, holds := figures.AskedShown, figures.Holds("")
		if c.asked > 0 {
			asked, holds = fmt.Sprintf("<= %.0f", c.asked), figures.If(least[i] <= c.asked)
		}
		s.add(figures.Figure{Claim: fmt.Sprintf("CPU time of the decisions for a request at the entry, %s, least of %d rounds in turns", c.as, rounds), Source: fmt.Sprintf("policy/drop, its bench included; %d wait at the end", list[i].Waiting()),
			Asked: asked, Measured: least[i], Unit: "ns", Holds: holds})
	}
	most := 0.
	for _, e := range list {
		most = max(most, testing.AllocsPerRun(steps/4, e.Step))
	}
	s.add(figures.Figure{Claim: fmt.Sprintf("allocations for a request: heap, keep test and the rest of the decisions, most of %d policies", len(list)), Source: "policy/drop", Asked: "0", Measured: most, Unit: "", Holds: figures.If(most == 0)})
	return nil
}
