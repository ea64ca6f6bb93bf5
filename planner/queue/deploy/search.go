package deploy

import (
	"cmp"
	"math"
	"slices"
)

// Search looks for layouts of a problem.
type Search struct {
	*Trials
	byClass bool // the run-time policy follows caps of classes
}

// New is a search that has tried nothing yet.
func New(p *Problem) *Search {
	return &Search{Trials: &Trials{Writer: &Writer{&Estimators{Problem: p, kept: map[estimateKey]*estimate{}}}, kept: map[string]Score{}}}
}

// Structure says which items share a pool.
type Structure [][]int

// Structures are which items a search tries to put together.
type Structures struct {
	// Alone gives every model a pool of its own, and tries nothing else.
	Alone bool
	// Together puts all into one pool, and tries nothing else.
	Together bool
	// Classes also tries pools of one class, and caps of classes within a pool; Apart
	// tries pools of one class alone.
	Classes, Apart bool
	// Any takes the first layout whose classes keep their SLOs, whatever its price.
	Any bool
}

// worth is the share of an instance from which on a model may have its own.
const worth = 0.5

// busiest orders models by the instances that they keep busy, on the kind where
// that is least.
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

// structures lists what is tried: all items in one pool; the busiest models with
// pools of their own; and each of these with the most urgent class apart.
func (p *Search) structures(o Structures) ([]Structure, error) {
	p.byClass = o.Classes && !o.Apart
	models, need, err := p.busiest()
	if err != nil {
		return nil, err
	}
	var out []Structure
	for heads := 0; heads <= len(models); heads++ {
		if o.Alone && heads < len(models) || o.Together && heads > 0 || heads == len(models)-1 && heads > 0 {
			continue // a rest of one model is a model with its own pool
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
	if o.Classes && !o.Alone {
		if apart := p.split(out); o.Apart {
			out = apart
		} else {
			out = append(out, apart...)
		}
	}
	return out, nil
}

// split gives the pools that serve one model several: the most urgent class, and
// the others.
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

// urgent parts items into those of the class with the shortest SLO and others.
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

// pool is a pool of items without instances. Its caps are the largest with which a
// request of mean length takes no more than half of its SLO.
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

// laid is the layout of a structure without instances.
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

// fits tells whether a mean request of every class of a model's items is done in
// half of its SLO beside a full batch.
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

// alike groups the models of a pool that cost the same on a kind: they share a cap.
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
