package pool

import (
	"slices"
	"time"

	"inferplan/planner/stages"
)

// On a time-shared pool every device runs batches of several pipelines, one at
// a time and without preemption. A batch may find all of them busy with the
// longest batch that any pipeline runs there, which inference and transfer
// times do not show. The rule chosen here: with B_k the longest inference of
// any stage placed on pool k,
//
//	latency + batch building + sum of B_k over the visited time-shared stages <= SLO
//
// so the margin (and whatever slack there is) has to cover one such wait per
// stage. The wait behind the pipeline's own batches counts too: requests come
// while its last batch runs. B_k depends on the choice, so the program is
// solved for every value that B_k can take and the best one is kept; with one
// time-shared pool this is exact. Simulation certifies the plan in any case.
//
// A model that cannot keep the rule even at the smallest B that leaves every
// model a pipeline is exempt from it, with a warning: it is served, but waits
// may make it late.

// blocking is one choice of the longest inference per pool; nil is no rule.
type blocking struct {
	longest []time.Duration // per pool; on exclusive pools unused
	exempt  []bool          // per model
}

// allows tells whether a template keeps the rule.
func (b *blocking) allows(p *Problem, t *stages.Template) bool {
	if b == nil {
		return true
	}
	m := &p.Models[t.Model]
	total := t.Latency + m.BuildTime(t.Batch)
	for i := range t.Stages {
		s := &t.Stages[i]
		if !p.Pools[s.Pool].Time {
			continue
		}
		if s.Infer > b.longest[s.Pool] {
			return false
		}
		total += b.longest[s.Pool]
	}
	return total <= m.SLO || b.exempt[t.Model]
}

// maxBlockings bounds the choices that are tried.
const maxBlockings = 256

// blockings lists the choices of longest inferences; nil when the problem has
// no time-shared pool. exact tells that none was left out.
func (p *Problem) blockings(templates []stages.Template) (list []*blocking, exact bool) {
	var pools []int
	for k := range p.Pools {
		if p.Pools[k].Time && p.Pools[k].Count > 0 {
			pools = append(pools, k)
		}
	}
	if len(pools) == 0 {
		return nil, true
	}
	values := make([][]time.Duration, len(pools))
	for i, k := range pools {
		// Below the smallest value that leaves every model a pipeline, nothing fits.
		least := make([]time.Duration, len(p.Models))
		for d := range least {
			least[d] = -1
		}
		for ti := range templates {
			t := &templates[ti]
			if l := longest(t, k); least[t.Model] < 0 || l < least[t.Model] {
				least[t.Model] = l
			}
		}
		floor := slices.Max(least)
		var vs []time.Duration
		for ti := range templates {
			if l := longest(&templates[ti], k); l >= floor {
				vs = append(vs, l)
			}
		}
		vs = append(vs, floor)
		slices.Sort(vs)
		values[i] = slices.Compact(vs)
	}
	exact = true
	most := maxBlockings
	for n := len(pools); n > 1; n-- {
		// An even share of the choices for every pool: the root of what is left.
		most = max(2, isqrt(most))
	}
	for i := range values {
		if len(values[i]) > most {
			exact = false
			values[i] = thin(values[i], most)
		}
	}
	at := make([]int, len(pools))
	for {
		b := &blocking{longest: make([]time.Duration, len(p.Pools)), exempt: make([]bool, len(p.Models))}
		for i, k := range pools {
			b.longest[k] = values[i][at[i]]
		}
		list = append(list, b)
		i := 0
		for ; i < len(at); i++ {
			if at[i]++; at[i] < len(values[i]) {
				break
			}
			at[i] = 0
		}
		if i == len(at) {
			break
		}
	}
	// Exempt: models that no choice serves.
	exempt := make([]bool, len(p.Models))
	for d := range p.Models {
		exempt[d] = true
	}
	for _, b := range list {
		for ti := range templates {
			if t := &templates[ti]; exempt[t.Model] && b.allows(p, t) {
				exempt[t.Model] = false
			}
		}
	}
	for _, b := range list {
		copy(b.exempt, exempt)
	}
	// Each model alone may be served by some choice while no single choice
	// serves all. Then the first choice that leaves out the fewest is taken,
	// and those are exempt.
	if !slices.ContainsFunc(list, func(b *blocking) bool { return len(b.unserved(p, templates)) == 0 }) {
		var best *blocking
		var missing []int
		for _, b := range list {
			out := b.unserved(p, templates)
			relaxed := &blocking{longest: b.longest, exempt: slices.Repeat([]bool{true}, len(p.Models))}
			if len(relaxed.unserved(p, templates)) == 0 && (best == nil || len(out) < len(missing)) {
				best, missing = b, out
			}
		}
		for _, d := range missing {
			best.exempt[d] = true
		}
		list = []*blocking{best}
	}
	return list, exact
}

// unserved lists the models that have no template under the rule.
func (b *blocking) unserved(p *Problem, templates []stages.Template) []int {
	served := make([]bool, len(p.Models))
	for i := range templates {
		if t := &templates[i]; !served[t.Model] && b.allows(p, t) {
			served[t.Model] = true
		}
	}
	var out []int
	for d, ok := range served {
		if !ok {
			out = append(out, d)
		}
	}
	return out
}

// longest is the longest inference of t on pool k.
func longest(t *stages.Template, k int) time.Duration {
	var d time.Duration
	for i := range t.Stages {
		if s := &t.Stages[i]; s.Pool == k && s.Infer > d {
			d = s.Infer
		}
	}
	return d
}

func isqrt(n int) int {
	r := 1
	for (r+1)*(r+1) <= n {
		r++
	}
	return r
}

// thin keeps n values spread over the list, both ends included.
func thin(vs []time.Duration, n int) []time.Duration {
	out := make([]time.Duration, n)
	for i := range out {
		out[i] = vs[i*(len(vs)-1)/(n-1)]
	}
	return out
}
