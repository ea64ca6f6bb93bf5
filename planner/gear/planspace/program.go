package planspace

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"inferplan/planner/gear/cascades"
	"inferplan/planner/lists"
	"inferplan/solver/milp"
)

// MixtureProgram is a linear program over ranges: mixtures of cascades on devices. It maximises the accuracy,
// weighted over the ranges:
//
//	Σ_r weight(r) · Σ_c accuracy(c) · mixture(r, c)
//
// Its rows and variables are stored by what they mean.
type MixtureProgram struct {
	model          *milp.Model
	space          *Space
	configs        []Config
	ranges         []int
	mixtureRow     []milp.Row                  // by range: the shares of its cascades, and of unserved requests, sum to 1
	demandRow      [][]milp.Row                // by range and model: samples that the cascades need are served (per request)
	TimeRow        [][]milp.Row                // by range and config: seconds of work per second, at most the devices of the config
	NICRow         []map[NICDirection]milp.Row // by range: seconds of transfer per second, at most the NICs of a kind; rows are added when a chain needs them
	DeviceRow      []milp.Row                  // by kind: the configs take no more than its devices; -1 without configs
	countVar       []milp.Var                  // by config: number of devices
	flowVar        [][][]milp.Var              // by range, config and model: samples per request; -1 if the config lacks the model
	UnservedVar    []milp.Var                  // by range: share of the requests that nothing answers
	CascadeColumns [][]int                     // by range: cascades in the program
	chainColumns   [][]int                     // by range: chains in the program
	serveOnly      bool                        // the accuracy does not count, only that requests are answered
}

// NICDirection is one direction of the NICs of a kind of devices.
type NICDirection struct {
	Kind    int
	Inbound bool
}

// unservedPrice is the cost, in the objective, of a range whose requests are all unserved: far more than any accuracy is
// worth, so that requests are served if they can be.
const unservedPrice = 1e3

// newMixtureProgram returns the linear program of some ranges of rates, by index: each is served by a mixture of
// cascades, for the most accuracy, within the time of the devices. Columns of cascades and chains, which put their work
// into the rows made here, are added later. The numbers of devices per config (a set of models that a device holds) are
// variables, common to all ranges; integer makes them whole. A share of a range's requests may stay unserved, at
// unservedPrice. The rows of each range are
//
//	mixture: Σ_cascade share + unserved = 1
//	demand, by model: Σ_cascade share · reachShare - Σ_config flow - Σ_chain flow ≤ 0
//	time, by config: edge · (Σ_model secondsPerSample · flow + Σ_stage secondsPerSample · chain flow) - devices ≤ 0
//
// where a flow is the samples per request that a model gets on the devices of a config, or that take a chain, and edge
// is the upper edge of the range.
func (space *Space) newMixtureProgram(configs []Config, ranges []int, integer bool) *MixtureProgram {
	p := space.Problem
	g := &MixtureProgram{model: milp.New("gears"), space: space, configs: configs, ranges: ranges, CascadeColumns: make([][]int, len(ranges)), chainColumns: make([][]int, len(ranges))}
	g.model.SetSense(milp.Maximize)

	// Devices by config and their limit by kind, shared by all ranges.
	deviceTerms := make([][]milp.Term, len(p.Kinds))
	for _, c := range configs {
		n := g.model.AddVar("", 0, milp.Inf, 0)
		g.model.SetInteger(n, integer)
		g.countVar = append(g.countVar, n)
		deviceTerms[c.Kind] = append(deviceTerms[c.Kind], milp.Term{Var: n, Coef: 1})
	}
	for k, terms := range deviceTerms {
		g.DeviceRow = append(g.DeviceRow, -1)
		if len(terms) > 0 {
			g.DeviceRow[k] = g.model.AddLE("devices", float64(p.Kinds[k].Devices), terms...)
		}
	}

	// The rows of each range, and its flows on configs.
	for _, r := range ranges {
		unserved := g.model.AddVar("", 0, milp.Inf, -unservedPrice)
		g.UnservedVar = append(g.UnservedVar, unserved)
		g.mixtureRow = append(g.mixtureRow, g.model.AddEQ("one cascade", 1, milp.Term{Var: unserved, Coef: 1}))
		demandRows := lists.Filled(len(p.Models), func(int) milp.Row { return g.model.AddLE("", 0) })
		var flowVars [][]milp.Var
		var timeRows []milp.Row
		for c, conf := range configs {
			timeRow := g.model.AddLE("", 0, milp.Term{Var: g.countVar[c], Coef: -1})
			timeRows = append(timeRows, timeRow)
			modelFlows := make([]milp.Var, len(p.Models))
			for m := range modelFlows {
				modelFlows[m] = -1
				if conf.ModelSet&(1<<m) != 0 {
					modelFlows[m] = g.model.AddColumn("", 0, milp.Inf, 0, milp.Entry{Row: demandRows[m], Coef: -1}, milp.Entry{Row: timeRow, Coef: space.SecondsPerSample[conf.Kind][m] * p.RangeEdges[r]})
				}
			}
			flowVars = append(flowVars, modelFlows)
		}
		g.demandRow, g.flowVar, g.TimeRow = append(g.demandRow, demandRows), append(g.flowVar, flowVars), append(g.TimeRow, timeRows)
		g.NICRow = append(g.NICRow, map[NICDirection]milp.Row{})
	}
	return g
}

// addCascade adds a cascade, by its index in the space, as a column to the mixture that serves a range, by its index in
// the program. The column's variable is the share of the range's requests that the cascade answers.
func (g *MixtureProgram) addCascade(index, cascade int) {
	entries := []milp.Entry{{Row: g.mixtureRow[index], Coef: 1}}
	for m, share := range g.space.ReachShares[cascade] {
		if share > 0 {
			entries = append(entries, milp.Entry{Row: g.demandRow[index][m], Coef: share})
		}
	}
	g.model.AddColumn("", 0, milp.Inf, g.cascadeValue(index, cascade), entries...)
	g.CascadeColumns[index] = append(g.CascadeColumns[index], cascade)
}

// cascadeValue returns what a cascade is worth in the objective for a range, by its index in the program: its accuracy
// times the range's weight. A range of weight 0 gets a tiny weight, so that it has cascades, too. If the program only
// counts served requests, the value is 0.
func (g *MixtureProgram) cascadeValue(index, cascade int) float64 {
	if g.serveOnly {
		return 0
	}
	p := g.space.Problem
	return max(p.RangeWeights[g.ranges[index]], 1e-6) * cascades.PlannedAccuracy(p, &g.space.Cascades[cascade])
}

// addChain adds a chain (a member in stages) to the range at an index of the program, and returns the variable of the
// samples per request that take it. Stage s runs on the devices of config stageConfigs[s]. The column serves samples of
// the member, and takes time of devices and network cards.
func (g *MixtureProgram) addChain(index int, c *Chain, stageConfigs []int) milp.Var {
	entries := g.addNICEntries(index, c, []milp.Entry{{Row: g.demandRow[index][c.Model], Coef: -1}})
	for s, config := range stageConfigs {
		entries = addEntry(entries, g.TimeRow[index][config], c.Stages[s].SecondsPerSample*g.space.Problem.RangeEdges[g.ranges[index]])
	}
	return g.model.AddColumn("", 0, milp.Inf, 0, entries...)
}

// addSpreadChain adds a chain (a member in stages) to the range at an index of the program. Each stage may be spread
// over the devices of all configs in stageConfigs, by stage, which hold it. A row by stage says that these together
// serve as many samples as take the chain.
func (g *MixtureProgram) addSpreadChain(index int, c *Chain, stageConfigs [][]int) {
	total := g.model.AddColumn("", 0, milp.Inf, 0, g.addNICEntries(index, c, []milp.Entry{{Row: g.demandRow[index][c.Model], Coef: -1}})...)
	for s, options := range stageConfigs {
		row := g.model.AddEQ("", 0, milp.Term{Var: total, Coef: -1})
		for _, config := range options {
			g.model.AddColumn("", 0, milp.Inf, 0, milp.Entry{Row: row, Coef: 1}, milp.Entry{Row: g.TimeRow[index][config], Coef: c.Stages[s].SecondsPerSample * g.space.Problem.RangeEdges[g.ranges[index]]})
		}
	}
}

// addNICEntries appends to the entries of a chain's column the seconds of network cards (NICs) per second that its
// samples take at the upper edge of the range at an index, one entry for each direction of a kind's cards. It adds a
// row that limits these to the number of cards when a chain needs it first.
func (g *MixtureProgram) addNICEntries(index int, c *Chain, entries []milp.Entry) []milp.Entry {
	g.space.EachNIC(c, func(n NICDirection, seconds float64) {
		row, ok := g.NICRow[index][n]
		if !ok {
			row = g.model.AddLE("", g.space.NICCount(n.Kind))
			g.NICRow[index][n] = row
		}
		entries = addEntry(entries, row, seconds*g.space.Problem.RangeEdges[g.ranges[index]])
	})
	return entries
}

// addEntry adds a coefficient in a row to the entries of a column, and returns them. If the column has an entry in the
// row already, because two stages of a chain take time of the same devices, the coefficients are summed.
func addEntry(entries []milp.Entry, row milp.Row, coef float64) []milp.Entry {
	for i := range entries {
		if entries[i].Row == row {
			entries[i].Coef += coef
			return entries
		}
	}
	return append(entries, milp.Entry{Row: row, Coef: coef})
}

// EachNIC calls visit with every direction of a kind's network cards (NICs) that transfers between the stages of a
// chain use: out of the kind of a stage, or into that of the next one. seconds is the time that a sample takes of a
// card. A direction may come several times.
func (space *Space) EachNIC(c *Chain, visit func(n NICDirection, seconds float64)) {
	for s := range c.Stages {
		st := &c.Stages[s]
		if st.usesSourceNIC {
			visit(NICDirection{st.Kind, false}, st.nicSeconds)
		}
		if st.usesTargetNIC {
			visit(NICDirection{c.Stages[s+1].Kind, true}, st.nicSeconds)
		}
	}
}

// NICCount returns the number of NICs that the devices of a kind have.
func (space *Space) NICCount(kind int) float64 {
	n, perNode := space.Problem.Kinds[kind].Devices, max(1, space.Problem.Blocks.Pools[kind].PerNode)
	return float64((n + perNode - 1) / perNode)
}

// maxColumnsPerRound limits the cascades that a range gets in one round of pricing.
const maxColumnsPerRound = 4

// generateColumns solves the program by column generation (cascades and chains join it as long as they improve it), and
// returns the solution and the variables of the chains that it added, in that order. chains are those that may join;
// nil means none. When no column improves it, the solution is optimal over all cascades. If every kind has exactly one
// config, it is also optimal over the chains.
//
// The reduced value of cascade c in range r is
//
//	cascadeValue(r, c) - mixtureDual(r) - Σ_m demandDual(r, m) · reachShares(c, m)
func (g *MixtureProgram) generateColumns(ctx context.Context, chains []*Chain) (*milp.Solution, []milp.Var, error) {
	p, space := g.space.Problem, g.space

	// Start with the lightest cascade in each range, so that there is a solution if any exists.
	kindConfig := configByKind(g.configs, len(p.Kinds))
	for index := range g.ranges {
		g.addCascade(index, space.lightestCascade())
	}
	var chainVars []milp.Var // of the added chains, in order
	for {
		// Solve over the columns so far.
		sol, err := SolveProgram(ctx, space.Solver, g.model, milp.Options{})
		if err != nil {
			return nil, nil, err
		}
		if sol.X == nil || len(sol.RowDuals) == 0 {
			return nil, nil, fmt.Errorf("the program of gears has no solution (%v)", sol.Status)
		}

		// Price the cascades and chains of every range. The dual of a demand is the present cost of a sample of the model.
		addedColumn := false
		for index := range g.ranges {
			demandDual := make([]float64, len(p.Models))
			for m, row := range g.demandRow[index] {
				demandDual[m] = sol.RowDuals[row]
			}
			for _, i := range g.improvingCascades(index, demandDual, sol) {
				g.addCascade(index, i)
				addedColumn = true
			}
			for _, i := range g.improvingChains(index, chains, kindConfig, demandDual, sol) {
				chainVars = append(chainVars, g.addChain(index, chains[i], StageConfigs(chains[i], kindConfig)))
				g.chainColumns[index] = append(g.chainColumns[index], i)
				addedColumn = true
			}
		}
		if !addedColumn {
			return sol, chainVars, nil
		}
	}
}

// minReducedValue returns the reduced value above which a column of a range, by its index in the program, is added: a
// little more than rounding.
func (g *MixtureProgram) minReducedValue(index int) float64 {
	return 1e-9*max(g.space.Problem.RangeWeights[g.ranges[index]], 1e-6) + 1e-13
}

// improvingCascades returns the cascades that would improve the program most in the range at an index, at the duals of
// a solution: up to maxColumnsPerRound of the largest reduced value (what they are worth less what their work costs).
// demandDual has the cost of a sample by model. Cascades that the range has already, or that would make too many of all
// requests late, are skipped.
func (g *MixtureProgram) improvingCascades(index int, demandDual []float64, sol *milp.Solution) []int {
	type gain struct {
		cascade int
		value   float64
	}
	var gains []gain
	space, mixtureDual := g.space, sol.RowDuals[g.mixtureRow[index]]
	for i := range space.Cascades {
		reducedValue := g.cascadeValue(index, i) - mixtureDual
		for _, m := range space.Cascades[i].Models {
			reducedValue -= demandDual[m] * space.ReachShares[i][m]
		}
		if reducedValue > g.minReducedValue(index) && !space.exceedsLateShare(g.ranges[index], i) && !slices.Contains(g.CascadeColumns[index], i) {
			gains = append(gains, gain{i, reducedValue})
		}
	}

	// The best of them.
	slices.SortFunc(gains, func(a, b gain) int {
		return cmp.Or(cmp.Compare(b.value, a.value), cmp.Compare(a.cascade, b.cascade))
	})
	var cascades []int
	for _, best := range gains[:min(maxColumnsPerRound, len(gains))] {
		cascades = append(cascades, best.cascade)
	}
	return cascades
}

// exceedsLateShare reports whether a cascade, used in all of range r, makes more of all requests late than the
// percentile allows. It is false if the space does not allow late requests, because its cascades all keep the SLO.
func (space *Space) exceedsLateShare(r, cascade int) bool {
	return space.MinLateShares != nil && space.MinLateShares[cascade]*space.Problem.RangeWeights[r] > 1-space.Problem.Percentile+1e-9
}

// StageConfigs returns, for each stage of a chain, the index of the config of its kind of devices.
func StageConfigs(c *Chain, kindConfig []int) []int {
	return lists.Map(len(c.Stages), func(s int) int { return kindConfig[c.Stages[s].Kind] })
}

// improvingChains returns, for every member, the chain (the member in stages) that would improve the program most in
// one of its ranges, by the range's index in the program, at the duals of a solution. It does so if its work costs less
// than a sample of the member costs now:
//
//	saving = demandDual(member) - edge · (Σ_stage timeDual · secondsPerSample + Σ_NIC nicDual · secondsPerSample)
//
// where edge is the upper edge of the range, at which the work of a second must be done. A member has none if no chain
// saves more than rounding (minReducedValue). kindConfig has the one config of each kind, on whose devices a stage
// would run. The result has indexes of chains. Chains that the range has already are skipped.
func (g *MixtureProgram) improvingChains(index int, chains []*Chain, kindConfig []int, demandDual []float64, sol *milp.Solution) []int {
	bestChain := make([]int, len(g.space.Problem.Models))
	bestSaving := make([]float64, len(bestChain))
	edge := g.space.Problem.RangeEdges[g.ranges[index]]

	// Compute the saving of each chain, and keep the best of each member. Rows of NICs are only added for chains that use them, so
	// a NIC may have no row in the solved program; it costs nothing then.
	for i, c := range chains {
		saving := demandDual[c.Model]
		for s := range c.Stages {
			stage := &c.Stages[s]
			timeRow := g.TimeRow[index][kindConfig[stage.Kind]]
			saving -= sol.RowDuals[timeRow] * stage.SecondsPerSample * edge
		}
		g.space.EachNIC(c, func(n NICDirection, seconds float64) {
			if row, ok := g.NICRow[index][n]; ok && int(row) < len(sol.RowDuals) { // a row added after the solution has no dual yet
				saving -= sol.RowDuals[row] * seconds * edge
			}
		})
		if saving > max(bestSaving[c.Model], g.minReducedValue(index)) && !slices.Contains(g.chainColumns[index], i) {
			bestChain[c.Model], bestSaving[c.Model] = i, saving
		}
	}

	// Collect them in the order of the members.
	var chainIndexes []int
	for m := range bestChain {
		if bestSaving[m] > 0 {
			chainIndexes = append(chainIndexes, bestChain[m])
		}
	}
	return chainIndexes
}

// lightestCascade returns the index of the cascade that takes the least device time if each of its models runs where it
// is fastest, whole or in stages. If no cascade can run, it returns 0. Column generation starts with it.
func (space *Space) lightestCascade() int {
	seconds := slices.Repeat([]float64{math.Inf(1)}, len(space.Problem.Models)) // least time of a sample, by model
	for m := range seconds {
		seconds[m] = lists.Min(seconds[m], len(space.SecondsPerSample), func(k int) float64 { return space.SecondsPerSample[k][m] })
	}
	for _, c := range space.Chains {
		chainSeconds := lists.Sum(len(c.Stages), func(s int) float64 { return c.Stages[s].SecondsPerSample })
		seconds[c.Model] = min(seconds[c.Model], chainSeconds)
	}
	return max(0, space.Lightest(seconds))
}

// Lightest returns the index of the cascade whose work costs the least per request, for a cost of a sample by model.
// Models that no request reaches cost nothing. If all cascades cost infinitely much, it returns -1.
func (space *Space) Lightest(costs []float64) int {
	lightest, minWork := -1, math.Inf(1)
	for i := range space.Cascades {
		work := 0.0
		for _, m := range space.Cascades[i].Models {
			if share := space.ReachShares[i][m]; share > 0 {
				work += share * costs[m]
			}
		}
		if work < minWork {
			lightest, minWork = i, work
		}
	}
	return lightest
}

// configByKind returns, by kind of devices, the index of its config (set of models on a device). Each kind has one at
// most; that of a kind without a config is 0, and not used.
func configByKind(configs []Config, kinds int) []int {
	configOfKind := make([]int, kinds)
	for c, conf := range configs {
		configOfKind[conf.Kind] = c
	}
	return configOfKind
}

// SolveRelaxation solves the linear program of range r, whose value no plan exceeds: with fractions of devices, each of
// which may hold any model and stage that fits on it alone, and with any mixture of cascades. The cascades
// startCascades are in the program from the start, to save rounds. chainVars are the variables of the chains that were
// added. With serveOnly the program only minimises the share of unserved requests, to show what a range lacks.
func (space *Space) SolveRelaxation(ctx context.Context, r int, serveOnly bool, startCascades []int) (program *MixtureProgram, sol *milp.Solution, chainVars []milp.Var, err error) {
	program = space.newMixtureProgram(space.FluidConfigs, []int{r}, false)
	program.serveOnly = serveOnly
	if serveOnly {
		program.model.SetObj(program.UnservedVar[0], -1) // the program maximises, so that minimises the unserved share
	}
	for _, i := range startCascades {
		program.addCascade(0, i)
	}
	if sol, chainVars, err = program.generateColumns(ctx, space.Chains); err != nil {
		err = fmt.Errorf("bounding the accuracy at %.6g requests per second: %w", space.Problem.RangeEdges[r], err)
	}
	return program, sol, chainVars, err
}

// RangeBounds returns, by range of rates, the accuracy that no plan over the same thresholds exceeds, even with
// mixtures of cascades. It is NaN if the range cannot be served in full. chainUse is, by chain of the space, the
// samples per request that it carries in these mixtures, as a mean over the ranges: it shows which chains are worth
// placing.
func (space *Space) RangeBounds(ctx context.Context) (bounds, chainUse []float64, err error) {
	bounds, chainUse = make([]float64, len(space.Problem.RangeEdges)), make([]float64, len(space.Chains))
	for r := range bounds {
		// The program of this range alone, whose index in the program is 0. It maximises the accuracy.
		const index, serveOnly = 0, false
		program, sol, chainVars, err := space.SolveRelaxation(ctx, r, serveOnly, nil)
		if err != nil {
			return nil, nil, err
		}
		bounds[r] = sol.Value / max(space.Problem.RangeWeights[r], 1e-6) // the weight by which the program multiplies accuracies
		if sol.X[program.UnservedVar[index]] > 1e-7 {                    // more than rounding
			bounds[r] = math.NaN()
		}

		// Add the use of the chains that joined the program; the n-th has variable chainVars[n]. Half of the mean is by weight and
		// half is even, so that ranges without weight count, too.
		for n, chain := range program.chainColumns[index] {
			chainUse[chain] += (space.Problem.RangeWeights[r] + 1/float64(len(bounds))) / 2 * sol.X[chainVars[n]]
		}
	}
	return bounds, chainUse, nil
}
