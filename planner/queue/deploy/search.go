package deploy

import (
	"cmp"
	"math"
	"slices"
)

// Search looks for layouts of a problem.
type Search struct {
	*Trials
	byClass bool // the run-time policy obeys caps of classes
}

// NewSearch returns a search that has tried nothing yet.
func New(p *Problem) *Search {
	return &Search{Trials: &Trials{Writer: &Writer{&Estimators{Problem: p, kept: map[estimateKey]*estimate{}}}, kept: map[string]Score{}}}
}

// Structure says which items share a pool: a list of items for each.
type Structure [][]int

// SearchOptions choose the structures that a search tries.
type Structures struct {
	// SeparateModels gives every model a pool of its own, and tries nothing else.
	Alone bool
	// OnePool puts all items into one pool, and tries nothing else.
	Together bool
	// SeparateClasses also tries pools of one class, and caps of classes within a pool. With
	// OnlySeparateClasses only pools of one class are tried.
	Classes, Apart bool
	// FirstFeasible accepts the first layout that keeps the SLOs, whatever its price.
	Any bool
}

// minOwnPoolShare is the least number of instances that a model must keep busy to get a pool of its own.
const worth = 0.5

// modelsByLoad returns the models by falling number of instances that they keep busy, and that number, each
// on the kind where it is least.
func (p *Search) busiest() (models []int, need []float64, err error) {
	need = make([]float64, len(p.Models))
	for m := range p.Models {
		models = append(models, m)
		rps := 0.0
		for _, i := range p.of(m) {
			rps += p.Items[i].RPS
		}
		least := math.Inf(1)
		for k := range p.Kinds {
			if p.Models[m].On[k] == nil {
				continue
			}
			each, err := p.each(m, k, p.most(m, k))
			if err != nil {
				return nil, nil, err
			}
			least = min(least, rps*each)
		}
		need[m] = least
	}
	slices.SortStableFunc(models, func(a, b int) int { return cmp.Compare(need[b], need[a]) })
	return models, need, nil
}

// listStructures returns the structures that are tried: all items in one pool; the models with the highest
// load in pools of their own, one more each time; and each of these with the most urgent class separated.
func (p *Search) structures(o Structures) ([]Structure, error) {
	p.byClass = o.Classes && !o.Apart
	models, need, err := p.busiest()
	if err != nil {
		return nil, err
	}
	var out []Structure

	// The first ownPools models by load have pools of their own, the others share one.
	for heads := 0; heads <= len(models); heads++ {
		if o.Alone && heads < len(models) || o.Together && heads > 0 || heads == len(models)-1 && heads > 0 {
			continue // a single other model would have a pool of its own anyway
		}
		if !o.Alone && heads > 0 && heads < len(models) && need[models[heads-1]] < worth {
			continue
		}
		var s Structure
		for _, m := range models[:heads] {
			s = append(s, p.of(m))
		}
		var rest []int
		for _, m := range models[heads:] {
			rest = append(rest, p.of(m)...)
		}
		if slices.Sort(rest); len(rest) > 0 {
			s = append(s, rest)
		}
		out = append(out, s)
	}

	// Add the same structures with the most urgent class separated, if the policy can run them.
	if o.Classes && !o.Alone {
		if apart := p.split(out); o.Apart {
			out = apart
		} else {
			out = append(out, apart...)
		}
	}
	return out, nil
}

// separateUrgentClass returns the structures with every pool of a single model divided in two: the most
// urgent class and the others. Structures without such a pool are left out.
func (p *Problem) split(list []Structure) []Structure {
	var out []Structure
	for _, s := range list {
		var apart Structure
		changed := false
		for _, items := range s {
			urgent, rest := p.urgent(items)
			if len(p.ModelsOf(items)) > 1 || len(rest) == 0 {
				apart = append(apart, items)
				continue
			}
			apart, changed = append(apart, urgent, rest), true
		}
		if changed {
			out = append(out, apart)
		}
	}
	return out
}

// splitUrgentClass divides items into those of the class with the shortest SLO and the others.
func (p *Problem) urgent(items []int) (first, rest []int) {
	least := items[0]
	for _, i := range items {
		if p.Classes[p.Items[i].Class].SLO < p.Classes[p.Items[least].Class].SLO {
			least = i
		}
	}
	for _, i := range items {
		if p.Items[i].Class == p.Items[least].Class {
			first = append(first, i)
		} else {
			rest = append(rest, i)
		}
	}
	return first, rest
}

// newPool returns a pool of items without instances. Its caps are the largest with which a request of mean
// length takes at most half of its SLO.
func (p *Search) pool(items []int) (Pool, error) {
	x := Pool{Items: items, Counts: make([]int, len(p.Kinds)), Caps: make([][]int, len(p.Kinds)), Of: make([]int, len(p.Classes))}
	for k := range p.Kinds {
		x.Caps[k] = make([]int, len(p.Models))
		for _, m := range p.ModelsOf(items) {
			if p.Models[m].On[k] == nil {
				continue
			}
			caps := p.capsOf(m, k)
			x.Caps[k][m] = caps[0]
			for _, c := range caps {
				e, err := p.estimated(m, k, c)
				if err != nil {
					return x, err
				}
				if p.fits(items, m, e) {
					x.Caps[k][m] = c
				}
			}
		}
	}
	return x, nil
}

// emptyLayout returns the layout of a structure without instances.
func (p *Search) laid(s Structure) (*Layout, error) {
	l := &Layout{}
	for _, items := range s {
		x, err := p.pool(items)
		if err != nil {
			return nil, err
		}
		l.Pools = append(l.Pools, x)
	}
	return l, nil
}

// fitsHalfSLO returns whether a mean request of every class of a model is done within half of its SLO in a
// full batch.
func (p *Search) fits(items []int, model int, e *estimate) bool {
	for _, i := range items {
		if p.Items[i].Model != model {
			continue
		}
		c := &p.Classes[p.Items[i].Class]
		prompt, output, _ := moments(c.Sample)
		took := e.rct.Prefill + e.rct.Decode*output
		switch c.Of {
		case "ttft":
			took = e.rct.Prefill * prompt / max(e.rct.PromptMean, 1)
		case "tpot":
			took = 1.5 * e.rct.Decode // the figure is a mean over a whole answer
		}
		if took > c.SLO.Seconds()/2 {
			return false
		}
	}
	return true
}

// identicalModels groups the models of a pool that have the same costs on a kind. They share a cap.
func (p *Problem) alike(x *Pool, kind int) [][]int {
	var out [][]int
	for _, m := range p.ModelsOf(x.Items) {
		on := p.Models[m].On[kind]
		if on == nil {
			continue
		}
		at := slices.IndexFunc(out, func(g []int) bool {
			o := p.Models[g[0]].On[kind]
			return o.Iteration == on.Iteration && o.KVTokens == on.KVTokens && o.Sequences == on.Sequences
		})
		if at < 0 {
			out = append(out, []int{m})
		} else {
			out[at] = append(out[at], m)
		}
	}
	return out
}
