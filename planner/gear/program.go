package gear

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"inferplan/solver/milp"
)

// mixtureProgram is a linear program over ranges: mixtures of cascades on devices. It maximises the accuracy,
// weighted over the ranges:
//
//	Σ_r weight(r) · Σ_c accuracy(c) · mixture(r, c)
//
// Its rows and variables are stored by what they mean.
type program struct {
	m       *milp.Model
	x       *fleet
	configs []Config
	ranges  []int
	one     []milp.Row         // by range: the shares of its cascades, and of unserved requests, sum to 1
	need    [][]milp.Row       // by range and model: samples that the cascades need are served (per request)
	time    [][]milp.Row       // by range and config: seconds of work per second, at most the devices of the config
	nic     []map[nic]milp.Row // by range: seconds of transfer per second, at most the NICs of a kind; rows are added when a chain needs them
	devices []milp.Row         // by kind: the configs take no more than its devices; -1 without configs
	count   []milp.Var         // by config: number of devices
	flow    [][][]milp.Var     // by range, config and model: samples per request; -1 if the config lacks the model
	short   []milp.Var         // by range: share of the requests that nothing answers
	columns [][]int            // by range: cascades in the program
	priced  [][]int            // by range: chains in the program
	serve   bool               // the accuracy does not count, only that requests are answered
}

// nicDirection is one direction of the NICs of a kind of devices.
type nic struct {
	kind int
	in   bool
}

// newMixtureProgram returns the program of some ranges without cascades or chains. The numbers of devices per
// config are variables. integer says whether they are whole numbers.
func (x *fleet) newProgram(configs []Config, ranges []int, whole bool) *program {
	p := x.p
	g := &program{m: milp.New("gears"), x: x, configs: configs, ranges: ranges, columns: make([][]int, len(ranges)), priced: make([][]int, len(ranges))}
	g.m.SetSense(milp.Maximize)

	// Devices by config and their limit by kind, shared by all ranges.
	devices := make([][]milp.Term, len(p.Kinds))
	for _, c := range configs {
		n := g.m.AddVar("", 0, milp.Inf, 0)
		g.m.SetInteger(n, whole)
		g.count = append(g.count, n)
		devices[c.Kind] = append(devices[c.Kind], milp.Term{Var: n, Coef: 1})
	}
	for k, terms := range devices {
		g.devices = append(g.devices, -1)
		if len(terms) > 0 {
			g.devices[k] = g.m.AddLE("devices", float64(p.Kinds[k].Devices), terms...)
		}
	}

	// Rows and flows of each range.
	for _, r := range ranges {
		short := g.m.AddVar("", 0, milp.Inf, -1e3)
		g.short = append(g.short, short)
		g.one = append(g.one, g.m.AddEQ("one cascade", 1, milp.Term{Var: short, Coef: 1}))
		need := make([]milp.Row, len(p.Models))
		for m := range need {
			need[m] = g.m.AddLE("", 0)
		}
		var flows [][]milp.Var
		var times []milp.Row
		for c, conf := range configs {
			time := g.m.AddLE("", 0, milp.Term{Var: g.count[c], Coef: -1})
			times = append(times, time)
			vars := make([]milp.Var, len(p.Models))
			for m := range vars {
				vars[m] = -1
				if conf.Set&(1<<m) != 0 {
					vars[m] = g.m.AddColumn("", 0, milp.Inf, 0, milp.Entry{Row: need[m], Coef: -1}, milp.Entry{Row: time, Coef: x.per[conf.Kind][m] * p.Edges[r]})
				}
			}
			flows = append(flows, vars)
		}
		g.need, g.flow, g.time = append(g.need, need), append(g.flow, flows), append(g.time, times)
		g.nic = append(g.nic, map[nic]milp.Row{})
	}
	return g
}

// addCascade adds a cascade to the mixture of the range at an index.
func (g *program) column(at, cascade int) {
	entries := []milp.Entry{{Row: g.one[at], Coef: 1}}
	for m, share := range g.x.reach[cascade] {
		if share > 0 {
			entries = append(entries, milp.Entry{Row: g.need[at][m], Coef: share})
		}
	}
	g.m.AddColumn("", 0, milp.Inf, g.worth(at, cascade), entries...)
	g.columns[at] = append(g.columns[at], cascade)
}

// cascadeValue returns the objective coefficient of a cascade. A range of weight 0 gets a tiny one, so that it has
// cascades, too.
func (g *program) worth(at, cascade int) float64 {
	if g.serve {
		return 0
	}
	p := g.x.p
	return max(p.Weights[g.ranges[at]], 1e-6) * accuracyOn(p, &g.x.list[cascade])
}

// addChain adds a chain to a range, each stage on devices of one config, and returns the variable of the samples
// that take it.
func (g *program) lane(at int, c *Chain, cells []int) milp.Var {
	entries := g.wires(at, c, []milp.Entry{{Row: g.need[at][c.Model], Coef: -1}})
	for s, cell := range cells {
		entries = addEntry(entries, g.time[at][cell], c.Stages[s].per*g.x.p.Edges[g.ranges[at]])
	}
	return g.m.AddColumn("", 0, milp.Inf, 0, entries...)
}

// addSpreadChain adds a chain to a range, each stage on devices of several configs: those that hold the stage.
func (g *program) spread(at int, c *Chain, cells [][]int) {
	all := g.m.AddColumn("", 0, milp.Inf, 0, g.wires(at, c, []milp.Entry{{Row: g.need[at][c.Model], Coef: -1}})...)
	for s, some := range cells {
		row := g.m.AddEQ("", 0, milp.Term{Var: all, Coef: -1})
		for _, cell := range some {
			g.m.AddColumn("", 0, milp.Inf, 0, milp.Entry{Row: row, Coef: 1}, milp.Entry{Row: g.time[at][cell], Coef: c.Stages[s].per * g.x.p.Edges[g.ranges[at]]})
		}
	}
}

// addNICEntries appends the NIC time that a chain takes to its column.
func (g *program) wires(at int, c *Chain, entries []milp.Entry) []milp.Entry {
	g.x.eachNIC(c, func(n nic, seconds float64) {
		row, ok := g.nic[at][n]
		if !ok {
			row = g.m.AddLE("", g.x.nics(n.kind))
			g.nic[at][n] = row
		}
		entries = addEntry(entries, row, seconds*g.x.p.Edges[g.ranges[at]])
	})
	return entries
}

// addEntry adds a coefficient to a column, which has one entry per row.
func addEntry(entries []milp.Entry, row milp.Row, coef float64) []milp.Entry {
	for i := range entries {
		if entries[i].Row == row {
			entries[i].Coef += coef
			return entries
		}
	}
	return append(entries, milp.Entry{Row: row, Coef: coef})
}

// eachNIC calls visit with every NIC direction that a chain uses, and the seconds that a sample takes of it.
func (x *fleet) eachNIC(c *Chain, visit func(n nic, seconds float64)) {
	for s := range c.Stages {
		st := &c.Stages[s]
		if st.from {
			visit(nic{st.Kind, false}, st.wire)
		}
		if st.to {
			visit(nic{c.Stages[s+1].Kind, true}, st.wire)
		}
	}
}

// nicCount returns the number of NICs that the devices of a kind have.
func (x *fleet) nics(kind int) float64 {
	n, each := x.p.Kinds[kind].Devices, max(1, x.p.Blocks.Pools[kind].PerNode)
	return float64((n + each - 1) / each)
}

// maxColumnsPerRound limits the cascades that a range gets in one round of pricing.
const perRound = 4

// generateColumns solves the program by column generation, and returns the solution and the variables of the
// chains that it added. When no column improves it, the solution is optimal over all cascades. If every kind has
// exactly one config, it is also optimal over the chains.
//
// The reduced value of cascade c in range r is
//
//	cascadeValue(r, c) - mixtureDual(r) - Σ_m demandDual(r, m) · reachShares(c, m)
func (g *program) generate(ctx context.Context, chains []*Chain) (*milp.Solution, []milp.Var, error) {
	p, x := g.x.p, g.x

	// Start with the lightest cascade in each range, so that there is a solution if any exists.
	home := homeOf(g.configs, len(p.Kinds))
	for at := range g.ranges {
		g.column(at, x.lightest())
	}
	var along []milp.Var // of the added chains, in order
	for {
		// Solve over the columns so far.
		sol, err := solve(ctx, x.solver, g.m, milp.Options{})
		if err != nil {
			return nil, nil, err
		}
		if sol.X == nil || len(sol.RowDuals) == 0 {
			return nil, nil, fmt.Errorf("the program of gears has no solution (%v)", sol.Status)
		}

		// Price the cascades and chains of every range.
		added := false
		for at, r := range g.ranges {
			price := make([]float64, len(p.Models))
			for m, row := range g.need[at] {
				price[m] = sol.RowDuals[row]
			}
			weight, level := max(p.Weights[r], 1e-6), sol.RowDuals[g.one[at]]
			type gain struct {
				cascade int
				by      float64
			}

			// Find the cascades of positive reduced value.
			var gains []gain
			for i := range x.list {
				by := g.worth(at, i) - level
				for _, m := range x.list[i].Models {
					by -= price[m] * x.reach[i][m]
				}
				if by > 1e-9*weight+1e-13 && !x.tooLate(r, i) && !slices.Contains(g.columns[at], i) {
					gains = append(gains, gain{i, by})
				}
			}

			// Add the best of them.
			slices.SortFunc(gains, func(a, b gain) int {
				return cmp.Or(cmp.Compare(b.by, a.by), cmp.Compare(a.cascade, b.cascade))
			})
			for _, n := range gains[:min(perRound, len(gains))] {
				g.column(at, n.cascade)
				added = true
			}

			// Add the chains that save the most.
			for _, i := range g.cheaper(at, chains, home, price, sol, weight) {
				along = append(along, g.lane(at, chains[i], homes(chains[i], home)))
				g.priced[at] = append(g.priced[at], i)
				added = true
			}
		}
		if !added {
			return sol, along, nil
		}
	}
}

// exceedsLateShare reports whether a cascade, used in a range, makes more of all requests late than the percentile
// allows.
func (x *fleet) tooLate(r, cascade int) bool {
	return x.late != nil && x.late[cascade]*x.p.Weights[r] > 1-x.p.Percentile+1e-9
}

// stageConfigs returns the config of each stage's kind.
func homes(c *Chain, home []int) []int {
	var out []int
	for s := range c.Stages {
		out = append(out, home[c.Stages[s].Kind])
	}
	return out
}

// improvingChains returns, for every member, the chain whose work saves the most at the duals of a solution:
//
//	saving = demandDual(member) - Σ_stage timeDual · seconds - Σ_NIC nicDual · seconds
//
// A member has none if no chain saves anything. Chains that the range has already are skipped.
func (g *program) cheaper(at int, chains []*Chain, home []int, price []float64, sol *milp.Solution, weight float64) []int {
	best := make([]int, len(g.x.p.Models))
	by := make([]float64, len(best))
	edge := g.x.p.Edges[g.ranges[at]]

	// Compute the saving of each chain, and keep the best of each member.
	for i, c := range chains {
		saves := price[c.Model]
		for s := range c.Stages {
			saves -= sol.RowDuals[g.time[at][home[c.Stages[s].Kind]]] * c.Stages[s].per * edge
		}
		g.x.eachNIC(c, func(n nic, seconds float64) {
			if row, ok := g.nic[at][n]; ok && int(row) < len(sol.RowDuals) {
				saves -= sol.RowDuals[row] * seconds * edge
			}
		})
		if saves > max(by[c.Model], 1e-9*weight+1e-13) && !slices.Contains(g.priced[at], i) {
			best[c.Model], by[c.Model] = i, saves
		}
	}

	// Collect them in the order of the members.
	var out []int
	for m := range best {
		if by[m] > 0 {
			out = append(out, best[m])
		}
	}
	return out
}

// lightestCascade returns the cascade that takes the least time if each of its models runs where it is fastest,
// whole or in stages.
func (x *fleet) lightest() int {
	best, least := 0, math.Inf(1)
	for i := range x.list {
		total := 0.0
		for m, share := range x.reach[i] {
			fastest := math.Inf(1)

			// The fastest kind for the whole model.
			for k := range x.per {
				fastest = min(fastest, x.per[k][m])
			}

			// The fastest chain.
			for _, c := range x.chains {
				if c.Model == m && len(c.Stages) > 0 {
					own := 0.0
					for s := range c.Stages {
						own += c.Stages[s].per
					}
					fastest = min(fastest, own)
				}
			}
			if share > 0 {
				total += share * fastest
			}
		}
		if total < least {
			best, least = i, total
		}
	}
	return best
}

// configByKind returns the config of each kind, if every kind has one.
func homeOf(configs []Config, kinds int) []int {
	home := make([]int, kinds)
	for c, conf := range configs {
		home[conf.Kind] = c
	}
	return home
}

// solveRelaxation solves the program of range r with fractions of devices, each of which may hold any model and
// stage that fits on it alone, and with any mixture of cascades. startCascades are in the program from the start.
// chainVars are the variables of the chains that were added. With serveOnly it minimises the share of unserved
// requests.
func (x *fleet) relax(ctx context.Context, r int, serve bool, some []int) (g *program, sol *milp.Solution, along []milp.Var, err error) {
	g = x.newProgram(x.all, []int{r}, false)
	if g.serve = serve; serve {
		g.m.SetObj(g.short[0], -1)
	}
	for _, i := range some {
		g.column(0, i)
	}
	if sol, along, err = g.generate(ctx, x.chains); err != nil {
		err = fmt.Errorf("bounding the accuracy at %.6g requests per second: %w", x.p.Edges[r], err)
	}
	return g, sol, along, err
}

// rangeBounds returns, by range, the accuracy that no plan over the same thresholds exceeds. It is NaN if the
// range cannot be served. chainUse is the share of the samples that each chain carries in these mixtures, as a
// mean over the ranges.
func (x *fleet) bounds(ctx context.Context) (out, use []float64, err error) {
	out, use = make([]float64, len(x.p.Edges)), make([]float64, len(x.chains))
	for r := range out {
		g, sol, along, err := x.relax(ctx, r, false, nil)
		if err != nil {
			return nil, nil, err
		}
		if out[r] = sol.Value / max(x.p.Weights[r], 1e-6); sol.X[g.short[0]] > 1e-7 {
			out[r] = math.NaN()
		}

		// Half of the mean is by weight and half is even, so that ranges without weight count, too.
		for n, i := range g.priced[0] {
			use[i] += (x.p.Weights[r] + 1/float64(len(out))) / 2 * sol.X[along[n]]
		}
	}
	return out, use, nil
}
