package main

import (
	"fmt"
	"math"
	"testing"
	"time"

	"inferplan/bench/instrument"
	"inferplan/cputime"
	"inferplan/formats"
	"inferplan/policy/policies"
	"inferplan/testkit/policytest"
)

// entries are policies, and how often a request comes.
var entries = []struct {
	name, policy string
	every        time.Duration
}{
	{"feas", "feas", 2 * time.Millisecond},
	{"pard", "pard", 2 * time.Millisecond},
	{"nexus", "nexus", 2 * time.Millisecond},
	{"clipper++", "clipper++", 2 * time.Millisecond},
	{"feas at twice what can be served", "feas", time.Millisecond},
	{"pard at twice what can be served", "pard", time.Millisecond},
}

const (
	queued = 1000    // requests that wait at the start
	steps  = 400_000 // of a round
	rounds = 7
)

// measureOverheads measures what the decisions for a request at the entry cost, all policies in turns. A request arrives, finds a worker and its place in the
// queue, is tested and becomes part of a batch. The times include the arrivals that the instrument makes.
func measureOverheads(r *instrument.Run, t *instrument.Table) error {
	queues, least := make([]*policytest.Entry, len(entries)), make([]float64, len(entries))
	for i, e := range entries {
		tables, err := policies.Compile(policytest.EntryPlan(e.policy, queued))
		if err != nil {
			return err
		}
		policy, err := policies.New(formats.PolicySpec{Name: e.policy}, tables)
		if err != nil {
			return err
		}
		queues[i], least[i] = policytest.NewEntry(policy, queued), math.Inf(1)
		queues[i].Every = e.every
	}
	for range rounds {
		for i, queue := range queues {
			before := cputime.Used()
			for range steps {
				queue.Step()
			}
			least[i] = min(least[i], float64(cputime.Used()-before)/steps)
		}
	}
	t.Columns = []string{"policy", "CPU time, ns", "waiting at the end"}
	allocations := 0.
	for i, queue := range queues {
		t.Add(entries[i].name, fmt.Sprintf("%.0f", least[i]), queue.Waiting())
	}
	source := fmt.Sprintf("policy/drop, its bench included; %d wait at the end", queues[0].Waiting())
	for _, queue := range queues {
		allocations = max(allocations, testing.AllocsPerRun(steps/4, queue.Step))
	}
	r.AtMost(fmt.Sprintf("CPU time of the decisions for a request at the entry, feas, least of %d rounds in turns", rounds), source, 200, "ns", least[0])
	r.Exactly(fmt.Sprintf("allocations for a request: heap, keep test and the rest of the decisions, most of %d policies", len(queues)), "policy/drop", 0, "", allocations)
	return nil
}
