package templates

import (
	"math"
	"slices"
	"time"

	"inferplan/planner/lists"
	"inferplan/planner/pool/problem"
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

// WaitBounds is one choice of the longest inference on each time-shared pool. A nil pointer is no rule.
type WaitBounds struct {
	LongestInfer []time.Duration // by pool: B_k; unused on exclusive pools
	ExemptModels []bool          // by model
}

// AllowsTemplate reports whether plans under these wait bounds (for each time-shared pool, the longest inference that a
// plan places there) may use a template. No stage of it may take longer than the bound of its pool. And it must keep
// its SLO if each of its stages on a time-shared pool first waits for the longest inference there, unless its model is
// exempt from that. Without bounds (nil) every template is allowed.
func (b *WaitBounds) AllowsTemplate(p *problem.Problem, t *stages.Template) bool {
	if b == nil {
		return true
	}

	// latency + batch building + Σ B_k over the visited time-shared stages <= SLO
	m := &p.Models[t.Model]
	total := t.Latency + m.BatchWait(t.Batch)
	for i := range t.Stages {
		s := &t.Stages[i]
		if !p.Pools[s.Pool].TimeShared {
			continue
		}
		if s.MaxTime > b.LongestInfer[s.Pool] {
			return false
		}
		total += b.LongestInfer[s.Pool]
	}
	return total <= m.SLO || b.ExemptModels[t.Model]
}

// maxWaitBounds bounds the number of choices that are tried.
const maxWaitBounds = 256

// ListWaitBounds lists the choices of wait bounds: for each time-shared pool the longest inference that a plan
// may place there, and so the longest that a batch waits for another. A search solves its program once under each
// choice and takes the best plan. If the problem has no time-shared pool with devices, or ignores waits (it is Fluid, so
// that its optimum bounds all plans), the only choice is nil: waits have no bounds. exact reports that no choice was left
// out; if it is false, there were too many and each pool's values were thinned out evenly, so the best of their plans need
// not be the best of all. Models that no choice serves are marked as exempt.
func ListWaitBounds(c *Catalogue) (list []*WaitBounds, exact bool) {
	// The time-shared pools with devices.
	pools := lists.Matching(len(c.Problem.Pools), func(k int) bool { return c.Problem.Pools[k].TimeShared && c.Problem.Pools[k].Count > 0 })
	if len(pools) == 0 || c.Problem.Fluid {
		return []*WaitBounds{nil}, true
	}

	// How many values each pool may have, so that there are about maxWaitBounds combinations or fewer: all of these for one
	// pool, the square root for each pool after it, and at least 2, the shortest and the longest.
	exact = true
	maxValues := maxWaitBounds
	for n := len(pools); n > 1; n-- {
		maxValues = max(2, int(math.Sqrt(float64(maxValues))))
	}

	// All combinations of the pools' values: each pool extends the list so far by one value of its own.
	list = []*WaitBounds{{LongestInfer: make([]time.Duration, len(c.Problem.Pools))}}
	for i := len(pools) - 1; i >= 0; i-- { // the values of the first pool, added last, change fastest in the list
		values := waitBoundValues(c, pools[i])
		if len(values) > maxValues {
			exact = false
			values = evenSample(values, maxValues)
		}
		var extended []*WaitBounds
		for _, bounds := range list {
			for _, value := range values {
				longest := slices.Clone(bounds.LongestInfer)
				longest[pools[i]] = value
				extended = append(extended, &WaitBounds{LongestInfer: longest})
			}
		}
		list = extended
	}
	return markExempt(c, list), exact
}

// waitBoundValues lists, by rising time, the values that the longest inference on pool k may have in a plan that serves
// every model: inference times of the catalogue's templates there (0 if a plan may leave the pool unused).
func waitBoundValues(c *Catalogue, k int) []time.Duration {
	// Each model needs some template, and so at least the time of the one that is shortest on the pool. Values below
	// the longest of these times would leave that model no pipeline.
	minLongest := slices.Repeat([]time.Duration{-1}, len(c.Problem.Models))
	for ti := range c.Templates {
		t := &c.Templates[ti]
		if infer := longestInference(t, k); minLongest[t.Model] < 0 || infer < minLongest[t.Model] {
			minLongest[t.Model] = infer
		}
	}
	floor := slices.Max(minLongest)
	values := []time.Duration{floor}
	for ti := range c.Templates {
		if infer := longestInference(&c.Templates[ti], k); infer > floor {
			values = append(values, infer)
		}
	}
	slices.Sort(values)
	return slices.Compact(values)
}

// markExempt marks, in each choice of wait bounds, the models that are exempt from the rule that a pipeline keeps its
// SLO even after the longest waits (AllowsTemplate). So a problem is not refused for waits that may be rare. A wait choice
// is, for each time-shared pool, the longest inference that a plan places there. It serves a model that has a template
// with no longer stage which keeps the rule. Models that no choice serves are exempt. The list is returned if some choice
// then serves all models. Else it returns only the first choice that leaves the fewest models unserved, and exempts those,
// too.
func markExempt(c *Catalogue, list []*WaitBounds) []*WaitBounds {
	// Models that no choice serves are exempt in all of them. They are counted before any model is exempt.
	neverServed := slices.Repeat([]bool{true}, len(c.Problem.Models))
	for _, bounds := range list {
		bounds.ExemptModels = make([]bool, len(c.Problem.Models))
		for ti := range c.Templates {
			if t := &c.Templates[ti]; neverServed[t.Model] && bounds.AllowsTemplate(c.Problem, t) {
				neverServed[t.Model] = false
			}
		}
	}
	for _, bounds := range list {
		copy(bounds.ExemptModels, neverServed)
	}

	// If some choice serves all others, no further model is exempt.
	if slices.ContainsFunc(list, func(bounds *WaitBounds) bool { return len(c.UnservedModels(bounds)) == 0 }) {
		return list
	}

	// Else take the choice with the fewest unserved models and exempt these. An exemption does not help a model all of whose
	// templates have stages longer than the bounds: a choice with such a model does not count. The choice of the longest
	// bounds has none, so there is one that counts.
	var fewestUnserved *WaitBounds
	var unserved []int
	for _, bounds := range list {
		choiceUnserved := c.UnservedModels(bounds)
		allExempt := &WaitBounds{LongestInfer: bounds.LongestInfer, ExemptModels: slices.Repeat([]bool{true}, len(c.Problem.Models))}
		servesExempt := len(c.UnservedModels(allExempt)) == 0
		if servesExempt && (fewestUnserved == nil || len(choiceUnserved) < len(unserved)) {
			fewestUnserved, unserved = bounds, choiceUnserved
		}
	}
	for _, d := range unserved {
		fewestUnserved.ExemptModels[d] = true
	}
	return []*WaitBounds{fewestUnserved}
}

// TemplatesWithin lists the indexes in the catalogue of the templates that plans may use under some wait bounds (the
// longest inference that a plan places on each time-shared pool): those whose stages are no longer and that keep their
// SLO after such waits. Without bounds (nil) it lists all.
func (c *Catalogue) TemplatesWithin(b *WaitBounds) []int {
	return lists.Matching(len(c.Templates), func(i int) bool { return b.AllowsTemplate(c.Problem, &c.Templates[i]) })
}

// UnservedModels lists the indexes of the models that have no template under some wait bounds (the longest inference
// that a plan places on each time-shared pool): no plan under them serves these models.
func (c *Catalogue) UnservedModels(b *WaitBounds) []int {
	isServed := make([]bool, len(c.Problem.Models))
	for i := range c.Templates {
		if t := &c.Templates[i]; !isServed[t.Model] && b.AllowsTemplate(c.Problem, t) {
			isServed[t.Model] = true
		}
	}
	var unserved []int
	for d, ok := range isServed {
		if !ok {
			unserved = append(unserved, d)
		}
	}
	return unserved
}

// longestInference returns the longest time that a batch takes in a stage of template t on pool k. A batch of another
// pipeline may have to wait so long there. It is 0 if t has no stage on the pool.
func longestInference(t *stages.Template, k int) time.Duration {
	var longest time.Duration
	for i := range t.Stages {
		if s := &t.Stages[i]; s.Pool == k && s.MaxTime > longest {
			longest = s.MaxTime
		}
	}
	return longest
}

// evenSample returns n values spread evenly over the places of the list, both ends included. n is at least 2.
func evenSample(values []time.Duration, n int) []time.Duration {
	return lists.Filled(n, func(i int) time.Duration { return values[i*(len(values)-1)/(n-1)] })
}
