package main

import (
	"fmt"
	"slices"
	"strings"

	"inferplan/bench/instrument"
	"inferplan/bench/qlm/fleet"
)

// sessionCase is a fleet that serves the conversations of a trace.
type sessionCase struct {
	name      string
	trace     string
	models    []int
	instances int
	big       int // of them on four A100s
}

// sessionCases are two traces, three models and two at once, and two to eight instances.
var sessionCases = []sessionCase{
	{"Mistral-7B on 4", "ShareGPT", []int{0}, 4, 0},
	{"Vicuna-13B on 4", "ShareGPT", []int{1}, 4, 0},
	{"Llama-2-70B on 2 times 4", "ShareGPT", []int{6}, 2, 2},
	{"Mistral-7B and Vicuna-13B on 6", "ShareGPT", []int{0, 1}, 6, 0},
	{"Mistral-7B on 4", "Mooncake", []int{0}, 4, 0},
	{"Mistral-7B on 8", "Mooncake", []int{0}, 8, 0},
}

// sessionPolicies are QLM with and without regard to sessions, and simple rules.
var sessionPolicies = []string{"FCFS", "hash", "hash, bounded load", "QLM, no sessions", "QLM"}

// sessionTurns is the number of turns of a run, and sessionSeeds that of its seeds.
const (
	sessionTurns = 2000
	sessionSeeds = 2
)

// sessions holds QLM on conversations against the same without regard to sessions, and against a hash of the session.
func (b *bench) sessions(r *instrument.Run, t *instrument.Table) error {
	d, err := b.traces()
	if err != nil {
		return err
	}
	s := &sweep{axis: "conversations, A100s, load", seeds: sessionSeeds, policies: named(sessionPolicies...)}
	cases := first(b, 1, sessionCases)
	for _, c := range cases {
		w := fleet.Workload{Name: c.name, Models: c.models, Talks: c.trace}
		full, err := d.Full(&w, c.instances)
		if err != nil {
			return err
		}
		for _, load := range loads {
			s.points = append(s.points, point{
				label: fmt.Sprintf("%s, %s, %g", c.trace, c.name, load),
				Case:  fleet.Case{Workload: &w, RPS: load * full, To: sessionTurns, Instances: c.instances, Big: c.big},
			})
		}
	}
	s.claims = func(r *instrument.Run, got *swept) {
		for i, c := range cases {
			sessionClaims(r, c.trace+", "+c.name+" A100", got.runs[i*len(loads):(i+1)*len(loads)])
		}
	}
	t.Note("A run has about %d turns. At a load of 1 the instances, without caches, are busy all the time.", sessionTurns)
	return b.sweep(r, t, s)
}

// sessionClaims states what regard to sessions brings at the loads: more tokens found, and as many requests in time as without it and as under
// the best simple rule, at the load where it brings least.
func sessionClaims(r *instrument.Run, label string, byLoad []map[string]runs) {
	var found, overNone, overBest []float64
	var foundNote, noneNote, bestNote []string
	for i, byPolicy := range byLoad {
		with, without, best := byPolicy["QLM"], byPolicy["QLM, no sessions"], sessionPolicies[0]
		for _, name := range sessionPolicies[:3] {
			if byPolicy[name].inTime() > byPolicy[best].inTime() {
				best = name
			}
		}
		found = append(found, with.prefix()-without.prefix())
		overNone, overBest = append(overNone, with.inTime()-without.inTime()), append(overBest, with.inTime()-byPolicy[best].inTime())
		foundNote = append(foundNote, fmt.Sprintf("load %g: %.1f %%, without %.1f, hash %.1f, with a bound %.1f", loads[i], with.prefix(), without.prefix(), byPolicy["hash"].prefix(), byPolicy["hash, bounded load"].prefix()))
		noneNote = append(noneNote, fmt.Sprintf("load %g: %.2f %%, without %.2f", loads[i], with.inTime(), without.inTime()))
		bestNote = append(bestNote, fmt.Sprintf("load %g: %.2f %%, %s %.2f", loads[i], with.inTime(), best, byPolicy[best].inTime()))
	}
	source := fmt.Sprintf("conversations of traces, about %d turns, seeds 1 to %d; the load where it is least", sessionTurns, sessionSeeds)
	for _, row := range []struct {
		claim, unit string
		least       float64
		values      []float64
		notes       []string
	}{
		{"prefix tokens found with regard to sessions, over without", "points of prompt tokens", 0, found, foundNote},
		{"requests in time with regard to sessions, over without", "points of requests in time", -0.1, overNone, noneNote},
		{"requests in time with regard to sessions, over the best simple rule", "points of requests in time", -0.1, overBest, bestNote},
	} {
		r.AtLeast(label+": "+row.claim, source, row.least, row.unit, slices.Min(row.values)).Note = strings.Join(row.notes, "; ")
	}
}
