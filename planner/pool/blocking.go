package pool

import (
	"slices"
	"time"

	"inferplan/planner/stages"
)

// On a time-shared pool every device runs batches of several pipelines, one at a time and without preemption. A
// batch may find all devices busy, and then waits for the longest batch that any pipeline runs there. Inference
// and transfer times do not show that. The blocking rule is: with B_k the longest inference of any stage placed
// on pool k,
//
//	latency + batch building + Σ B_k over the visited time-shared stages <= SLO
//
// So the margin, and whatever slack there is, has to cover one such wait per stage. The wait behind the
// pipeline's own batches counts too: requests arrive while its last batch runs. B_k depends on the plan, so the
// program is solved for every value that B_k can take, and the best plan is taken. With one time-shared pool
// this is exact. Simulation certifies the plan in any case.
//
// A model that cannot keep the rule even at the smallest B that leaves every model a pipeline is exempt from it,
// with a warning: it is served, but waits may make it late.

// waitBounds is one choice of the longest inference on each time-shared pool. A nil pointer is no rule.
type blocking struct {
	longest []time.Duration // by pool: B_k; unused on exclusive pools
	exempt  []bool          // by model
}

// allowsTemplate reports whether a template keeps the blocking rule under these bounds.
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

// maxWaitBounds bounds the number of choices that are tried.
const maxBlockings = 256

// waitBoundChoices lists the choices of wait bounds. If the problem has no time-shared pool, or is a fluid one,
// the only choice is nil: no rule. exact reports that no choice was left out.
func (c *catalogue) blockings() (list []*blocking, exact bool) {
	// The time-shared pools with devices.
	var pools []int
	for k := range c.Pools {
		if c.Pools[k].Time && c.Pools[k].Count > 0 {
			pools = append(pools, k)
		}
	}
	if len(pools) == 0 || c.Fluid {
		return []*blocking{nil}, true
	}

	// How many values each pool may have.
	exact = true
	most := maxBlockings
	for n := len(pools); n > 1; n-- {
		// Every pool has an even share of the choices: the root of the number.
		most = max(2, isqrt(most))
	}

	// All combinations of the pools' values.
	list = []*blocking{{longest: make([]time.Duration, len(c.Pools))}}
	for i := len(pools) - 1; i >= 0; i-- { // the values of the first pool change fastest
		values := c.longest(pools[i])
		if len(values) > most {
			exact = false
			values = thin(values, most)
		}
		var wider []*blocking
		for _, b := range list {
			for _, v := range values {
				next := slices.Clone(b.longest)
				next[pools[i]] = v
				wider = append(wider, &blocking{longest: next})
			}
		}
		list = wider
	}
	return c.exempt(list), exact
}

// waitBoundValues lists the inference times that may be the longest on pool k, by rising time.
func (c *catalogue) longest(k int) []time.Duration {
	// Below the smallest value that leaves every model a pipeline, no choice serves all models.
	least := slices.Repeat([]time.Duration{-1}, len(c.Models))
	for ti := range c.templates {
		t := &c.templates[ti]
		if l := longest(t, k); least[t.Model] < 0 || l < least[t.Model] {
			least[t.Model] = l
		}
	}
	floor := slices.Max(least)
	values := []time.Duration{floor}
	for ti := range c.templates {
		if l := longest(&c.templates[ti], k); l > floor {
			values = append(values, l)
		}
	}
	slices.Sort(values)
	return slices.Compact(values)
}

// markExempt marks in each choice the models that no choice serves. If every model alone is served by some
// choice and no single choice serves all, it returns only the first choice that leaves the fewest models
// unserved, and exempts those.
func (c *catalogue) exempt(list []*blocking) []*blocking {
	// Models that no choice serves are exempt in all of them.
	exempt := slices.Repeat([]bool{true}, len(c.Models))
	for _, b := range list {
		b.exempt = make([]bool, len(c.Models))
		for ti := range c.templates {
			if t := &c.templates[ti]; exempt[t.Model] && b.allows(c.Problem, t) {
				exempt[t.Model] = false
			}
		}
	}
	for _, b := range list {
		copy(b.exempt, exempt)
	}

	// If some choice serves all others, no further model is exempt.
	if slices.ContainsFunc(list, func(b *blocking) bool { return len(c.unserved(b)) == 0 }) {
		return list
	}

	// Else take the choice with the fewest unserved models and exempt these.
	var best *blocking
	var missing []int
	for _, b := range list {
		out := c.unserved(b)
		relaxed := &blocking{longest: b.longest, exempt: slices.Repeat([]bool{true}, len(c.Models))}
		if len(c.unserved(relaxed)) == 0 && (best == nil || len(out) < len(missing)) {
			best, missing = b, out
		}
	}
	for _, d := range missing {
		best.exempt[d] = true
	}
	return []*blocking{best}
}

// templatesWithin lists the templates that keep the rule under some bounds.
func (c *catalogue) under(b *blocking) []int {
	var set []int
	for i := range c.templates {
		if b.allows(c.Problem, &c.templates[i]) {
			set = append(set, i)
		}
	}
	return set
}

// unservedModels lists the models that have no template under some bounds.
func (c *catalogue) unserved(b *blocking) []int {
	served := make([]bool, len(c.Models))
	for i := range c.templates {
		if t := &c.templates[i]; !served[t.Model] && b.allows(c.Problem, t) {
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

// longestInference returns the longest inference of t on pool k, 0 if it has no stage there.
func longest(t *stages.Template, k int) time.Duration {
	var d time.Duration
	for i := range t.Stages {
		if s := &t.Stages[i]; s.Pool == k && s.Infer > d {
			d = s.Infer
		}
	}
	return d
}

// intSqrt returns the square root of n, rounded down.
func isqrt(n int) int {
	r := 1
	for (r+1)*(r+1) <= n {
		r++
	}
	return r
}

// evenSample returns n values spread evenly over the list, both ends included.
func thin(vs []time.Duration, n int) []time.Duration {
	out := make([]time.Duration, n)
	for i := range out {
		out[i] = vs[i*(len(vs)-1)/(n-1)]
	}
	return out
}
