package gear

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"inferplan/solver/milp"
)

// workSplit is the best split of a cascade's work on a layout. Loads are in seconds per request.
type split struct {
	load   float64     // of the busiest device
	taken  float64     // of the busiest device or NIC
	shares [][]float64 // by device group and model: share of the model's samples
	lanes  []float64   // by replica group: share of the member's samples
}

// bestSplit returns the split of a cascade's work that loads the busiest device least. Each is solved once.
func (l *layout) split(ctx context.Context, cascade int) (*split, error) {
	if got, ok := l.loads[cascade]; ok {
		return got, nil
	}
	out, err := l.splitLoad(ctx, cascade, 0)
	if err == nil {
		l.loads[cascade] = out
	}
	return out, err
}

// solveSplit solves the program that splits a cascade's work. With a loadLimit of 0 it minimises the load of the
// busiest device, so slow devices get all the work that they have time for, even if chains wait there. With a
// limit, which no load may exceed, it minimises the time of batches. If then all batches take equally long, or if
// the layout lacks a model, the loads of the split are infinite.
func (l *layout) splitLoad(ctx context.Context, cascade int, within float64) (*split, error) {
	g := newDivision(l, cascade, within)
	g.addWhole()
	g.addLanes()
	if !g.addRows() || g.quick && !g.varied {
		return &split{load: math.Inf(1), taken: math.Inf(1)}, nil
	}
	sol, err := solve(ctx, l.x.solver, g.m, milp.Options{})
	if err == nil && sol.X == nil {
		err = fmt.Errorf("no solution (%v)", sol.Status)
	}
	if err != nil {
		return nil, fmt.Errorf("splitting the work of a cascade: %w", err)
	}
	if within == 0 {
		g.cut(sol)
	}
	return g.read(sol), nil
}

// splitProgram is the linear program that splits a cascade's work over the groups of a layout.
type division struct {
	l           *layout
	reach       []float64 // by model: share of the requests that reach it
	m           *milp.Model
	busiest     milp.Var            // load of the busiest device or NIC, in milliseconds
	quick       bool                // the time of batches is minimised, and not the load
	took        []float64           // by model: seconds of a batch of its first flow
	varied      bool                // whether batches of some model take different times
	flows       [][]milp.Var        // by device group and model: samples per request; -1 if the group lacks the model
	along       []milp.Var          // by replica group: samples per request; -1 if the cascade does not ask the member
	need        [][]milp.Term       // by model: flows, which sum to its reach share
	time        [][]milp.Term       // by device group: work less what the busiest load allows, in milliseconds
	wires       map[nic][]milp.Term // the same of NICs
	nics        []nic               // keys of nicTerms, in the order in which chains need them
	rows, links []milp.Row          // by device group, and by NIC
}

// newSplitProgram returns the program without flows.
func newDivision(l *layout, cascade int, within float64) *division {
	g := &division{l: l, reach: l.x.reach[cascade], m: milp.New("split"), quick: within > 0, flows: make([][]milp.Var, len(l.cells)), along: make([]milp.Var, len(l.lanes)),
		took: make([]float64, len(l.x.p.Models)), need: make([][]milp.Term, len(l.x.p.Models)), time: make([][]milp.Term, len(l.cells)), wires: map[nic][]milp.Term{}}
	g.busiest = g.m.AddVar("", 0, milp.Inf, 1)
	if g.quick {
		g.m.SetObj(g.busiest, 0)
		g.m.SetBounds(g.busiest, 0, 1e3*within)
	}
	return g
}

// addFlow adds a variable for samples of a model whose batch takes the given seconds.
func (g *division) flow(model int, took float64) milp.Var {
	if len(g.need[model]) == 0 {
		g.took[model] = took
	}
	if g.varied = g.varied || took != g.took[model]; !g.quick {
		took = 0
	}
	f := g.m.AddVar("", 0, milp.Inf, took)
	g.need[model] = append(g.need[model], milp.Term{Var: f, Coef: 1})
	return f
}

// addWholeModels adds the flows of whole models and their work on every device group. Times are in milliseconds,
// so that coefficients are near 1.
func (g *division) addWhole() {
	x := g.l.x
	for c, conf := range g.l.cells {
		g.time[c] = []milp.Term{{Var: g.busiest, Coef: -float64(conf.Count)}}
		g.flows[c] = make([]milp.Var, len(x.p.Models))
		for k, share := range g.reach {
			if g.flows[c][k] = -1; share > 0 && conf.Set&(1<<k) != 0 {
				f := g.flow(k, float64(x.batch[conf.Kind][k])*x.per[conf.Kind][k])
				g.flows[c][k] = f
				g.time[c] = append(g.time[c], milp.Term{Var: f, Coef: 1e3 * x.per[conf.Kind][k]})
			}
		}
	}
}

// addChains adds the flows of chains and their work on devices and NICs.
func (g *division) addLanes() {
	for i := range g.l.lanes {
		c := g.l.chainOf(i)
		if g.along[i] = -1; g.reach[c.Model] == 0 {
			continue
		}
		f := g.flow(c.Model, c.Latency.Seconds())
		g.along[i] = f
		for s, cell := range g.l.lanes[i].cells {
			g.time[cell] = addTerm(g.time[cell], f, 1e3*c.Stages[s].per)
		}
		g.l.x.eachNIC(c, func(n nic, seconds float64) {
			if _, ok := g.wires[n]; !ok {
				g.nics = append(g.nics, n)
				g.wires[n] = []milp.Term{{Var: g.busiest, Coef: -g.l.x.nics(n.kind)}}
			}
			g.wires[n] = addTerm(g.wires[n], f, 1e3*seconds)
		})
	}
}

// addRows adds the rows. It returns false if the layout lacks a model of the cascade.
func (g *division) addRows() bool {
	for c := range g.l.cells {
		g.rows = append(g.rows, g.m.AddLE("", 0, g.time[c]...))
	}
	for _, n := range g.nics {
		g.links = append(g.links, g.m.AddLE("", 0, g.wires[n]...))
	}
	for k, share := range g.reach {
		if share > 0 && len(g.need[k]) == 0 {
			return false
		}
		if share > 0 {
			g.m.AddEQ("", share, g.need[k]...)
		}
	}
	return true
}

// readSplit returns the split of a solution, with its loads.
func (g *division) read(sol *milp.Solution) *split {
	x, l := g.l.x, g.l
	out := &split{shares: make([][]float64, len(l.cells)), lanes: make([]float64, len(l.lanes))}
	busy, wired := make([]float64, len(l.cells)), map[nic]float64{}

	// Whole models.
	for c := range l.cells {
		out.shares[c] = make([]float64, len(x.p.Models))
		for k, f := range g.flows[c] {
			if f >= 0 {
				out.shares[c][k] = max(0, sol.X[f]) / g.reach[k]
				busy[c] += max(0, sol.X[f]) * x.per[l.cells[c].Kind][k]
			}
		}
	}

	// Chains.
	for i, f := range g.along {
		if f < 0 {
			continue
		}
		c, flow := l.chainOf(i), max(0, sol.X[f])
		out.lanes[i] = flow / g.reach[c.Model]
		for s, cell := range l.lanes[i].cells {
			busy[cell] += flow * c.Stages[s].per
		}
		x.eachNIC(c, func(n nic, seconds float64) { wired[n] += flow * seconds })
	}

	// Loads are per device. Level them on kinds with several groups.
	for c := range l.cells {
		busy[c] /= float64(l.cells[c].Count)
	}
	for k := range x.p.Kinds {
		if len(ofKind(l.cells, k)) > 1 {
			g.level(k, out.shares, busy)
		}
	}
	out.load = slices.Max(busy)
	out.taken = out.load
	for _, n := range g.nics {
		out.taken = max(out.taken, wired[n]/x.nics(n.kind))
	}
	return out
}

// Levelling stops after maxLevelRounds rounds, or after a round that changes no load by levelTolerance (seconds
// per request).
const (
	levelRounds = 200
	levelled    = 1e-12
)

// levelLoads evens out the loads of a kind's device groups, which the program may leave uneven. Model by model it
// takes the work back and pours it again where the others leave the least load (cyclic water-filling). No load
// rises above the largest.
func (g *division) level(kind int, shares [][]float64, busy []float64) {
	l := g.l
	for range levelRounds {
		moved := 0.0
		for m, reach := range g.reach {
			// Take the work of the model back.
			var cells []int
			seconds, work := reach*l.x.per[kind][m], 0.0
			for c := range l.cells {
				if l.cells[c].Kind == kind && g.flows[c][m] >= 0 {
					n := float64(l.cells[c].Count)
					cells, work = append(cells, c), work+shares[c][m]*seconds
					busy[c] -= shares[c][m] * seconds / n
				}
			}

			// Find the surface: the load up to which its work fills the least loaded groups.
			slices.SortFunc(cells, func(a, b int) int { return cmp.Or(cmp.Compare(busy[a], busy[b]), cmp.Compare(a, b)) })
			room, devices, surface := work, 0.0, 0.0 // volume is the work and the loads below the surface
			for i, c := range cells {
				n := float64(l.cells[c].Count)
				room, devices = room+n*busy[c], devices+n
				if surface = room / devices; i+1 < len(cells) && surface <= busy[cells[i+1]] {
					break
				}
			}

			// Pour the work.
			for _, c := range cells {
				rise, n := max(0, surface-busy[c]), float64(l.cells[c].Count)
				share := 0.0
				if work > 0 {
					share = rise * n / seconds
				}
				moved = max(moved, math.Abs(share-shares[c][m])*seconds)
				shares[c][m], busy[c] = share, busy[c]+share*seconds/n
			}
		}
		if moved < levelled {
			break
		}
	}
}

// addTerm adds a coefficient to a row. Terms of one variable follow each other.
func addTerm(terms []milp.Term, v milp.Var, coef float64) []milp.Term {
	if n := len(terms) - 1; terms[n].Var == v {
		terms[n].Coef += coef
		return terms
	}
	return append(terms, milp.Term{Var: v, Coef: coef})
}

// addLoadCut stores what the program says about other cascades. The duals price device time such that all devices
// together cost 1. A sample costs at least what it costs where it is cheapest, so for every split
//
//	load ≥ Σ_m costs(m) · reachShares(m)
func (g *division) cut(sol *milp.Solution) {
	x, l := g.l.x, g.l
	if len(sol.RowDuals) == 0 {
		return
	}

	// Prices of device time and NIC time.
	total := 0.0
	price := make([]float64, len(l.cells))
	for c, conf := range l.cells {
		price[c] = math.Abs(sol.RowDuals[g.rows[c]])
		total += float64(conf.Count) * price[c]
	}
	wire := map[nic]float64{}
	for i, n := range g.nics {
		wire[n] = math.Abs(sol.RowDuals[g.links[i]])
		total += x.nics(n.kind) * wire[n]
	}
	if !(total > 0) {
		return
	}

	// Costs of samples, scaled to a total price of 1.
	cut := l.priced(price, wire)
	for m := range cut {
		cut[m] /= total
	}
	l.cuts = append(l.cuts, cut)
}

// cheapestCosts returns by model the cost of a sample where it is cheapest, for prices of a second of a device, by
// group, and of a NIC. It is infinite if the layout lacks the model.
func (l *layout) priced(price []float64, wire map[nic]float64) []float64 {
	x := l.x
	costs := slices.Repeat([]float64{math.Inf(1)}, len(x.p.Models))
	for m := range costs {
		for c, conf := range l.cells {
			if conf.Set&(1<<m) != 0 {
				costs[m] = min(costs[m], price[c]*x.per[conf.Kind][m])
			}
		}
	}
	for i := range l.lanes {
		c, along := l.chainOf(i), 0.0
		for s, cell := range l.lanes[i].cells {
			along += price[cell] * c.Stages[s].per
		}
		x.eachNIC(c, func(n nic, seconds float64) { along += wire[n] * seconds })
		costs[c.Model] = min(costs[c.Model], along)
	}
	return costs
}

// loadLowerBound returns a lower bound of a cascade's load.
func (l *layout) atLeast(cascade int) float64 {
	most := 0.0
	for _, cut := range l.cuts {
		load := 0.0
		for _, m := range l.x.list[cascade].Models {
			load += cut[m] * l.x.reach[cascade][m]
		}
		most = max(most, load)
	}
	return most
}
