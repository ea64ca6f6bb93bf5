package flow

import (
	"fmt"
	"math"
	"slices"
	"time"

	"inferplan/formats/document"
	"inferplan/planner/kind"
	"inferplan/solver/milp"
)

// Algorithms. Those behind the first split the deadline in advance: every module
// then is planned on its own, with its most accurate variant.
const (
	AlgorithmPaths        = "paths"
	AlgorithmEven         = "even"         // equal parts along the longest path
	AlgorithmProportional = "proportional" // by execution alone (Clipper++ of PARD, section 5.1)
	AlgorithmNexus        = "nexus"        // the split of the least fractions of devices (Nexus, section 6.2)
	AlgorithmInferLine    = "inferline"    // batches grow greedily while the sum fits (InferLine, section 5.2)
	// AlgorithmShares is of workflows: devices by demand, which keep what they hold.
	AlgorithmShares = "shares"
)

// baseline plans with a split deadline.
func (r *resolved) baseline(name string) (*found, error) {
	if r.objective == "throughput" {
		return nil, &document.Error{Path: "--objective", Found: r.objective, Expected: "cost, power or gpus with --algorithm " + name}
	}
	b := &baseline{p: r.problem}
	s, err := b.plan(name)
	if err != nil {
		return nil, err
	}
	return &found{picked: s, value: r.problem.price(s), bound: math.NaN(), stopped: milp.StoppedByWork}, nil
}

// baseline is a plan with a split deadline under way.
type baseline struct {
	p *problem
	s *picked
}

func (b *baseline) plan(name string) (*picked, error) {
	p := b.p
	b.s = &picked{level: make([]int, len(p.models))}
	for u := range p.models {
		b.s.level[u] = -1
		b.s.devices = append(b.s.devices, make([]int, len(p.pools)))
	}
	for a := range p.apps {
		list := make([]int, len(p.apps[a].nodes))
		for i := range p.apps[a].nodes {
			list[i] = p.apps[a].nodes[i].best(p)
		}
		b.s.choice = append(b.s.choice, list)
	}
	for a := range p.apps {
		if name == AlgorithmInferLine {
			b.start(a)
		} else if err := b.fit(a, b.parts(a, name)); err != nil {
			return nil, err
		}
	}
	if name == AlgorithmInferLine {
		if err := b.late(); err != nil {
			return nil, err
		}
		b.grow()
	}
	if !b.deploy() {
		return nil, &kind.InfeasibleError{Constraint: "devices", Reason: "the devices do not carry the rates of the applications with this split of their SLOs"}
	}
	return b.s, nil
}

// best is the most accurate choice that some device can run.
func (n *node) best(p *problem) int {
	at := -1
	for c := range n.of {
		if len(p.models[n.of[c].model].levels) > 0 && (at < 0 || n.of[c].accuracy > n.of[at].accuracy) {
			at = c
		}
	}
	return at
}

// model is what does a module's task.
func (b *baseline) model(a, i int) int {
	return b.p.apps[a].nodes[i].of[b.s.choice[a][i]].model
}

// parts is each module's part of the budget of an application.
func (b *baseline) parts(a int, name string) []time.Duration {
	app := &b.p.apps[a]
	weight, out := make([]float64, len(app.nodes)), make([]time.Duration, len(app.nodes))
	if name == AlgorithmNexus {
		return b.cheapestSplit(a)
	}
	longest := make([]float64, len(app.nodes)) // of the paths through a module
	for i := range weight {
		weight[i] = 1
		if name == AlgorithmProportional {
			weight[i] = b.p.models[b.model(a, i)].levels[0].most.Seconds()
		}
	}
	for _, path := range app.paths {
		sum := 0.0
		for _, i := range path {
			sum += weight[i]
		}
		for _, i := range path {
			longest[i] = max(longest[i], sum)
		}
	}
	for i := range out {
		out[i] = time.Duration(float64(app.budget()) * weight[i] / longest[i])
	}
	return out
}

// fraction is the least price of a rate of 1 at a level, in fractions of devices.
func (b *baseline) fraction(u, l int) float64 {
	least := math.Inf(1)
	for k, t := range b.p.models[u].levels[l].best {
		if t.rate > 0 {
			least = min(least, b.p.pools[k].price/t.rate)
		}
	}
	return least
}

// cheapestSplit tries all splits at times that batches take, and gives the one
// that takes the least fractions of devices.
func (b *baseline) cheapestSplit(a int) []time.Duration {
	app, best := &b.p.apps[a], math.Inf(1)
	left := make([]time.Duration, len(app.paths))
	through := make([][]int, len(app.nodes)) // paths
	for w, path := range app.paths {
		left[w] = app.budget()
		for _, i := range path {
			through[i] = append(through[i], w)
		}
	}
	rest := make([]float64, len(app.nodes)+1) // the least that the modules from here on cost
	for i := len(app.nodes) - 1; i >= 0; i-- {
		u := b.model(a, i)
		rest[i] = rest[i+1] + app.nodes[i].chance*b.fraction(u, len(b.p.models[u].levels)-1)
	}
	parts, found := make([]time.Duration, len(app.nodes)), make([]time.Duration, len(app.nodes))
	var split func(i int, cost float64)
	split = func(i int, cost float64) {
		if cost+rest[i] >= best {
			return
		}
		if i == len(app.nodes) {
			best = cost
			copy(found, parts)
			return
		}
		u := b.model(a, i)
		for l := len(b.p.models[u].levels) - 1; l >= 0; l-- {
			parts[i] = waiting * b.p.models[u].levels[l].most
			if slices.ContainsFunc(through[i], func(w int) bool { return left[w] < parts[i] }) {
				continue
			}
			for _, w := range through[i] {
				left[w] -= parts[i]
			}
			split(i+1, cost+app.nodes[i].chance*b.fraction(u, l))
			for _, w := range through[i] {
				left[w] += parts[i]
			}
		}
	}
	split(0, 0)
	return found
}

// fit gives every module the slowest level within its part.
func (b *baseline) fit(a int, parts []time.Duration) error {
	for i, part := range parts {
		u := b.model(a, i)
		l := len(b.p.models[u].levels) - 1
		for l >= 0 && waiting*b.p.models[u].levels[l].most > part {
			l--
		}
		if l < 0 {
			return &kind.InfeasibleError{Model: b.p.apps[a].name, Constraint: "slo",
				Reason: fmt.Sprintf("the part of the SLO of %s for %s, %v, is less than a batch to wait for and one's own", b.p.apps[a].name, b.p.apps[a].nodes[i].name, part)}
		}
		if b.s.level[u] < 0 || l < b.s.level[u] {
			b.s.level[u] = l
		}
	}
	return nil
}

// start gives every module its fastest level.
func (b *baseline) start(a int) {
	for i := range b.p.apps[a].nodes {
		b.s.level[b.model(a, i)] = 0
	}
}

// late tells which application is too slow.
func (b *baseline) late() error {
	for a := range b.p.apps {
		if took := b.p.took(b.s, a); took > b.p.apps[a].budget() {
			return &kind.InfeasibleError{Model: b.p.apps[a].name, Constraint: "slo", Reason: fmt.Sprintf("the longest path of %s takes %v at least", b.p.apps[a].name, took)}
		}
	}
	return nil
}

// grow doubles the batch that saves most, again and again, while all deadlines
// are kept.
func (b *baseline) grow() {
	for {
		best, to, saves := -1, 0, 1e-12
		asked := b.p.asked(b.s)
		for u, l := range b.s.level {
			if l < 0 {
				continue
			}
			next := b.doubled(u, l)
			if next < 0 {
				continue
			}
			b.s.level[u] = next
			if saved := asked[u] * (b.fraction(u, l) - b.fraction(u, next)); b.late() == nil && saved > saves {
				best, to, saves = u, next, saved
			}
			b.s.level[u] = l
		}
		if best < 0 {
			return
		}
		b.s.level[best] = to
	}
}

// doubled is the first level with a batch of at least twice the largest; -1: none.
func (b *baseline) doubled(u, l int) int {
	largest := func(l int) int {
		most := 0
		for _, t := range b.p.models[u].levels[l].best {
			most = max(most, t.batch)
		}
		return most
	}
	for next := l + 1; next < len(b.p.models[u].levels); next++ {
		if largest(next) >= 2*largest(l) {
			return next
		}
	}
	return -1
}

// deploy gives every model the cheapest devices per request that are left. It
// tells whether they are enough.
func (b *baseline) deploy() bool {
	left := make([]int, len(b.p.pools))
	for k := range left {
		left[k] = b.p.pools[k].count
	}
	for u, rate := range b.p.asked(b.s) {
		if b.s.level[u] < 0 {
			continue
		}
		best := b.p.models[u].levels[b.s.level[u]].best
		need := max(rate*(1-1e-9), 1e-12)
		for need > 0 {
			at, price := -1, math.Inf(1)
			for k, t := range best {
				if t.rate == 0 || left[k] == 0 {
					continue
				}
				n := min(float64(left[k]), math.Ceil(need/t.rate))
				if per := n * b.p.pools[k].price / min(need, n*t.rate); per < price {
					at, price = k, per
				}
			}
			if at < 0 {
				return false
			}
			n := min(left[at], int(math.Ceil(need/best[at].rate)))
			b.s.devices[u][at] += n
			left[at] -= n
			need -= float64(n) * best[at].rate
		}
	}
	return true
}
