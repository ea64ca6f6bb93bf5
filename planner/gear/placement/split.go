package placement

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"inferplan/planner/gear/planspace"
	"inferplan/planner/lists"
	"inferplan/solver/milp"
)

// workSplit is the best split of a cascade's work on a layout. Loads are in seconds per request.
type workSplit struct {
	deviceLoad         float64     // of the busiest device
	MaxLoad            float64     // of the busiest device or NIC
	groupShares        [][]float64 // by device group and model: share of the model's samples
	replicaGroupShares []float64   // by replica group: share of the member's samples
}

// BestSplit returns the split of a cascade's work over the devices of the placement that loads the busiest device least
// (in seconds of work per request). Each cascade, by its index in the space, is solved once; later calls return the
// same split.
func (l *Layout) BestSplit(ctx context.Context, cascade int) (*workSplit, error) {
	if known, ok := l.splits[cascade]; ok {
		return known, nil
	}
	split, err := l.solveSplit(ctx, cascade, 0)
	if err == nil {
		l.splits[cascade] = split
	}
	return split, err
}

// solveSplit solves the linear program that splits a cascade's work over the devices. It has two forms:
//
// With a loadLimit of 0 it minimises the load of the busiest device (seconds per request). Slow devices then get all
// the work that they have time for, even if chains wait for them. A bound on the loads of the layout's other cascades
// follows from the solution (addLoadCut).
//
// With a limit, which no load may exceed, it minimises the time of the batches that samples are in. If all batches of
// each model take equally long everywhere, there is nothing to minimise.
//
// In that case, or if the layout lacks a model, there is no split: the result has infinite loads and no shares.
func (l *Layout) solveSplit(ctx context.Context, cascade int, loadLimit float64) (*workSplit, error) {
	program := newSplitProgram(l, cascade, loadLimit)
	program.addWholeModels()
	program.addChains()
	runsAllModels := program.addRows()
	if nothingToMinimise := program.shortBatches && !program.batchTimesVary; !runsAllModels || nothingToMinimise {
		return &workSplit{deviceLoad: math.Inf(1), MaxLoad: math.Inf(1)}, nil
	}
	sol, err := planspace.SolveProgram(ctx, l.Space.Solver, program.model, milp.Options{})
	if err == nil && sol.X == nil {
		err = fmt.Errorf("no solution (%v)", sol.Status)
	}
	if err != nil {
		return nil, fmt.Errorf("splitting the work of a cascade: %w", err)
	}
	if loadLimit == 0 {
		program.addLoadCut(sol)
	}
	return program.readSplit(sol), nil
}

// splitProgram is the linear program that splits a cascade's work over the groups of a layout.
type splitProgram struct {
	layout            *Layout
	reachShares       []float64 // by model: share of the requests that reach it
	model             *milp.Model
	busiestLoad       milp.Var                               // load of the busiest device or NIC, in milliseconds
	shortBatches      bool                                   // the time of batches is minimised, and not the load
	batchSeconds      []float64                              // by model: seconds of a batch of its first flow
	batchTimesVary    bool                                   // whether batches of some model take different times
	groupFlows        [][]milp.Var                           // by device group and model: samples per request; -1 if the group lacks the model
	chainFlows        []milp.Var                             // by replica group: samples per request; -1 if the cascade does not ask the member
	demandTerms       [][]milp.Term                          // by model: flows, which sum to its reach share
	timeTerms         [][]milp.Term                          // by device group: work less what the busiest load allows, in milliseconds
	nicTerms          map[planspace.NICDirection][]milp.Term // the same of NICs
	nics              []planspace.NICDirection               // keys of nicTerms, in the order in which chains need them
	timeRows, nicRows []milp.Row                             // by device group, and by NIC
}

// newSplitProgram returns the linear program that splits a cascade's work over a layout, still without rows, with the
// load of the busiest device as its only variable. With a loadLimit of 0 that load is minimised. With a limit (seconds
// per request) shortBatches is set: the load only has to stay below the limit, and the time of batches is minimised.
func newSplitProgram(l *Layout, cascade int, loadLimit float64) *splitProgram {
	g := &splitProgram{layout: l, reachShares: l.Space.ReachShares[cascade], model: milp.New("split"), shortBatches: loadLimit > 0, groupFlows: make([][]milp.Var, len(l.DeviceGroups)), chainFlows: make([]milp.Var, len(l.replicaGroups)),
		batchSeconds: make([]float64, len(l.Space.Problem.Models)), demandTerms: make([][]milp.Term, len(l.Space.Problem.Models)), timeTerms: make([][]milp.Term, len(l.DeviceGroups)), nicTerms: map[planspace.NICDirection][]milp.Term{}}
	g.busiestLoad = g.model.AddVar("", 0, milp.Inf, 1)
	// With a limit the load has no price, but an upper bound, in milliseconds. In the rows of devices no load exceeds it.
	if g.shortBatches {
		limitMilliseconds := 1e3 * loadLimit
		g.model.SetObj(g.busiestLoad, 0)
		g.model.SetBounds(g.busiestLoad, 0, limitMilliseconds)
	}
	return g
}

// addFlow adds and returns a variable for the samples per request of a model that one group of devices or replicas
// gets. seconds is the time of a full batch there. If the split is to keep batches short, that time is the price of the
// variable in the objective. addFlow notes in batchTimesVary whether some model's batches take different times in
// different groups; if not, the prices decide nothing.
func (g *splitProgram) addFlow(model int, seconds float64) milp.Var {
	if len(g.demandTerms[model]) == 0 {
		g.batchSeconds[model] = seconds
	}
	g.batchTimesVary = g.batchTimesVary || seconds != g.batchSeconds[model]
	price := 0.0
	if g.shortBatches {
		price = seconds
	}
	flow := g.model.AddVar("", 0, milp.Inf, price)
	g.demandTerms[model] = append(g.demandTerms[model], milp.Term{Var: flow, Coef: 1})
	return flow
}

// addWholeModels adds, for each group of alike devices and each model of the cascade that these hold whole, a variable:
// the samples per request that the group gets. Its work is added to the terms of the group's row, which says that the
// group works no more than each of its devices would at the load of the busiest:
//
//	Σ_m samples(m) · milliseconds(m) - devices · busiestLoad ≤ 0
//
// Rows are in milliseconds, so that coefficients are near 1.
func (g *splitProgram) addWholeModels() {
	space := g.layout.Space
	for c, group := range g.layout.DeviceGroups {
		g.timeTerms[c] = []milp.Term{{Var: g.busiestLoad, Coef: -float64(group.Count)}}
		g.groupFlows[c] = make([]milp.Var, len(space.Problem.Models))
		for m, share := range g.reachShares { // a model that no request reaches is not of the cascade
			g.groupFlows[c][m] = -1 // no variable
			if share > 0 && group.ModelSet&(1<<m) != 0 {
				secondsPerSample := space.SecondsPerSample[group.Kind][m]
				batchSeconds := float64(space.MaxBatch[group.Kind][m]) * secondsPerSample
				flow := g.addFlow(m, batchSeconds)
				g.groupFlows[c][m] = flow
				g.timeTerms[c] = append(g.timeTerms[c], milp.Term{Var: flow, Coef: 1e3 * secondsPerSample})
			}
		}
	}
}

// addChains adds, for each group of alike replicas of chains (members in stages) whose member the cascade asks, a
// variable: the samples per request that take it. Its work is added to the rows of the groups of devices of its stages,
// as in addWholeModels, and to those of the network cards (NICs) between them, of each kind and direction:
//
//	Σ_flow milliseconds · flow - cards · busiestLoad ≤ 0
func (g *splitProgram) addChains() {
	for i := range g.layout.replicaGroups {
		c := g.layout.chainOfGroup(i)
		g.chainFlows[i] = -1 // no variable
		if g.reachShares[c.Model] == 0 {
			continue
		}
		flow := g.addFlow(c.Model, c.Latency.Seconds()) // the latency is that of a full batch through all stages
		g.chainFlows[i] = flow
		for s, group := range g.layout.replicaGroups[i].stageGroups {
			g.timeTerms[group] = addTerm(g.timeTerms[group], flow, 1e3*c.Stages[s].SecondsPerSample)
		}
		g.layout.Space.EachNIC(c, func(n planspace.NICDirection, seconds float64) {
			if _, ok := g.nicTerms[n]; !ok {
				g.nics = append(g.nics, n)
				g.nicTerms[n] = []milp.Term{{Var: g.busiestLoad, Coef: -g.layout.Space.NICCount(n.Kind)}}
			}
			g.nicTerms[n] = addTerm(g.nicTerms[n], flow, 1e3*seconds)
		})
	}
}

// addRows adds the rows for which terms were gathered: no device or network card works longer than the busiest, and the
// flows of each model sum to the share of the requests that reach it. It returns false if the layout has nothing that
// runs a model of the cascade; then there is no split.
func (g *splitProgram) addRows() bool {
	g.timeRows = append(g.timeRows, lists.Map(len(g.layout.DeviceGroups), func(c int) milp.Row { return g.model.AddLE("", 0, g.timeTerms[c]...) })...)
	g.nicRows = append(g.nicRows, lists.Map(len(g.nics), func(i int) milp.Row { return g.model.AddLE("", 0, g.nicTerms[g.nics[i]]...) })...)
	for k, share := range g.reachShares {
		if share > 0 && len(g.demandTerms[k]) == 0 {
			return false
		}
		if share > 0 {
			g.model.AddEQ("", share, g.demandTerms[k]...)
		}
	}
	return true
}

// readSplit returns the split of a solution: the share of each model's samples that each group of devices or replicas
// gets, the load of the busiest device and, with network cards, the largest load of all, in seconds per request. Shares
// on kinds with several groups are levelled first.
func (g *splitProgram) readSplit(sol *milp.Solution) *workSplit {
	space, l := g.layout.Space, g.layout
	split := &workSplit{groupShares: make([][]float64, len(l.DeviceGroups)), replicaGroupShares: make([]float64, len(l.replicaGroups))}
	groupLoads, nicLoads := make([]float64, len(l.DeviceGroups)), map[planspace.NICDirection]float64{}

	// Whole models.
	for c := range l.DeviceGroups {
		split.groupShares[c] = make([]float64, len(space.Problem.Models))
		for k, flowVar := range g.groupFlows[c] {
			if flowVar >= 0 {
				split.groupShares[c][k] = max(0, sol.X[flowVar]) / g.reachShares[k]
				groupLoads[c] += max(0, sol.X[flowVar]) * space.SecondsPerSample[l.DeviceGroups[c].Kind][k]
			}
		}
	}

	// Chains.
	for i, flowVar := range g.chainFlows {
		if flowVar < 0 {
			continue
		}
		c, flow := l.chainOfGroup(i), max(0, sol.X[flowVar])
		split.replicaGroupShares[i] = flow / g.reachShares[c.Model]
		for s, group := range l.replicaGroups[i].stageGroups {
			groupLoads[group] += flow * c.Stages[s].SecondsPerSample
		}
		space.EachNIC(c, func(n planspace.NICDirection, seconds float64) { nicLoads[n] += flow * seconds })
	}

	// Loads are per device. Level them on kinds with several groups.
	for c := range l.DeviceGroups {
		groupLoads[c] /= float64(l.DeviceGroups[c].Count)
	}
	for k := range space.Problem.Kinds {
		if len(planspace.ConfigsOfKind(l.DeviceGroups, k)) > 1 {
			g.levelLoads(k, split.groupShares, groupLoads)
		}
	}
	split.deviceLoad = slices.Max(groupLoads)
	split.MaxLoad = split.deviceLoad
	split.MaxLoad = lists.Max(split.MaxLoad, len(g.nics), func(i int) float64 { return nicLoads[g.nics[i]] / space.NICCount(g.nics[i].Kind) })
	return split
}

// Levelling stops after maxLevelRounds rounds, or after a round that changes no load by levelTolerance (seconds
// per request).
const (
	maxLevelRounds = 200
	levelTolerance = 1e-12
)

// levelLoads evens out the loads of the groups of one kind's devices, which the program may leave uneven, as only the
// busiest counts there. It changes shares, by group and model, and groupLoads, in seconds per request. Model by model
// it takes the work back and pours it again where the other models leave the least load (cyclic water-filling). No load
// rises above the largest.
func (g *splitProgram) levelLoads(kind int, shares [][]float64, groupLoads []float64) {
	l := g.layout
	for range maxLevelRounds {
		maxChange := 0.0
		for m, reach := range g.reachShares {
			// Take the work of the model back.
			var groups []int
			seconds, work := reach*l.Space.SecondsPerSample[kind][m], 0.0
			for c := range l.DeviceGroups {
				if l.DeviceGroups[c].Kind == kind && g.groupFlows[c][m] >= 0 {
					groupSize := float64(l.DeviceGroups[c].Count)
					groups, work = append(groups, c), work+shares[c][m]*seconds
					groupLoads[c] -= shares[c][m] * seconds / groupSize
				}
			}

			// Find the surface: the load up to which its work fills the least loaded groups.
			slices.SortFunc(groups, func(a, b int) int { return cmp.Or(cmp.Compare(groupLoads[a], groupLoads[b]), cmp.Compare(a, b)) })
			volume, devices, surface := work, 0.0, 0.0 // volume is the work and the loads below the surface
			for i, c := range groups {
				groupSize := float64(l.DeviceGroups[c].Count)
				volume, devices = volume+groupSize*groupLoads[c], devices+groupSize
				if surface = volume / devices; i+1 < len(groups) && surface <= groupLoads[groups[i+1]] {
					break
				}
			}

			// Pour the work.
			for _, c := range groups {
				levelRise, groupSize := max(0, surface-groupLoads[c]), float64(l.DeviceGroups[c].Count)
				share := 0.0
				if work > 0 {
					share = levelRise * groupSize / seconds
				}
				maxChange = max(maxChange, math.Abs(share-shares[c][m])*seconds)
				shares[c][m], groupLoads[c] = share, groupLoads[c]+share*seconds/groupSize
			}
		}
		if maxChange < levelTolerance {
			break
		}
	}
}

// addTerm adds a coefficient of a variable to the terms of a row, which has at least one. Terms of one variable
// follow each other, so only the last one is looked at.
func addTerm(terms []milp.Term, v milp.Var, coef float64) []milp.Term {
	if n := len(terms) - 1; terms[n].Var == v {
		terms[n].Coef += coef
		return terms
	}
	return append(terms, milp.Term{Var: v, Coef: coef})
}

// addLoadCut derives, from the duals of a solved program, a bound on the loads of all other cascades on the layout, so
// that most of them need no program, and adds it to the layout's loadCuts. The duals price device time such that all
// devices together cost 1. A sample costs at least what it costs where it is cheapest, so for every split
//
//	load ≥ Σ_m costs(m) · reachShares(m)
func (g *splitProgram) addLoadCut(sol *milp.Solution) {
	space, l := g.layout.Space, g.layout
	if len(sol.RowDuals) == 0 {
		return
	}

	// Prices of device time and NIC time.
	total := 0.0
	price := make([]float64, len(l.DeviceGroups))
	for c, conf := range l.DeviceGroups {
		price[c] = math.Abs(sol.RowDuals[g.timeRows[c]])
		total += float64(conf.Count) * price[c]
	}
	nicPrice := map[planspace.NICDirection]float64{}
	for i, n := range g.nics {
		nicPrice[n] = math.Abs(sol.RowDuals[g.nicRows[i]])
		total += space.NICCount(n.Kind) * nicPrice[n]
	}
	if !(total > 0) {
		return
	}

	// Costs of samples, scaled to a total price of 1.
	costs := l.CheapestCosts(price, nicPrice)
	for m := range costs {
		costs[m] /= total
	}
	l.loadCuts = append(l.loadCuts, costs)
}

// CheapestCosts returns, by model, the cost of a sample where it is cheapest on the layout, whole or along a chain.
// price is that of a second of a device, by device group, and nicPrice that of a second of a network card. The cost is
// infinite if the layout lacks the model.
func (l *Layout) CheapestCosts(price []float64, nicPrice map[planspace.NICDirection]float64) []float64 {
	space := l.Space
	costs := slices.Repeat([]float64{math.Inf(1)}, len(space.Problem.Models))
	for m := range costs {
		for c, conf := range l.DeviceGroups {
			if conf.ModelSet&(1<<m) != 0 {
				costs[m] = min(costs[m], price[c]*space.SecondsPerSample[conf.Kind][m])
			}
		}
	}
	for i := range l.replicaGroups {
		c := l.chainOfGroup(i)
		chainCost := lists.Sum(len(l.replicaGroups[i].stageGroups), func(s int) float64 { return price[l.replicaGroups[i].stageGroups[s]] * c.Stages[s].SecondsPerSample })
		space.EachNIC(c, func(n planspace.NICDirection, seconds float64) { chainCost += nicPrice[n] * seconds })
		costs[c.Model] = min(costs[c.Model], chainCost)
	}
	return costs
}

// LoadLowerBound returns a lower bound on the load that a cascade, by its index in the space, causes on the busiest
// device, in seconds per request. It comes from the programs that were solved for other cascades (addLoadCut): each
// gives a price to every device's time, such that all devices together cost 1. At these prices the cascade's work costs
// at least
//
//	Σ_m costs(m) · reachShares(m)
//
// where costs, an entry of loadCuts, has what a sample of a model costs where it is cheapest. A mean over the devices
// by price comes to that much, so the busiest has at least as much work. The largest of these bounds counts. Before any
// program was solved, it is 0.
func (l *Layout) LoadLowerBound(cascade int) float64 {
	bound := 0.0
	for _, costs := range l.loadCuts {
		load := 0.0
		for _, m := range l.Space.Cascades[cascade].Models {
			load += costs[m] * l.Space.ReachShares[cascade][m]
		}
		bound = max(bound, load)
	}
	return bound
}
