package gear

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"inferplan/policy"
	"inferplan/solver/milp"
)

// Kind is a kind of devices, where a cluster has several. A unit of Span devices
// of another kind, Of, that work as one, is a kind of its own without devices.
type Kind struct {
	Name    string
	Devices int
	Memory  int64 // of a device or unit; 0: no limit
	Of      int   // kind whose devices make the units; negative: it has its own
	Span    int
}

// Variant is a model on a kind of devices.
type Variant struct {
	Times  []time.Duration // [b-1]: of a batch of b; none: it is not measured there
	Memory int64
}

// Config is how many devices of a kind hold the same models.
type Config struct {
	Kind  int
	Set   uint32
	Count int
}

// mixed plans for several kinds of devices. Speeds are unrelated: what a model
// takes on one kind says nothing of another. So loads come from linear programs
// instead of Hall's condition. Every program's prices bound the load of all other
// cascades on the placement from below: few programs are solved.
type mixed struct {
	p       *Problem
	solver  milp.Solver
	list    []Cascade
	reach   [][]float64   // of a request, by cascade and model
	per     [][]float64   // seconds per sample, by kind and model; infinite: not there
	batch   [][]int       // largest, by kind and model
	configs []Config      // maximal sets by kind; counts to be found
	all     []Config      // of each kind one, with whatever fits alone: for the bound
	tables  policy.Tables // of the placement
	of      [][]int32     // pipelines by model
	cuts    [][]float64   // by program solved: what a sample of a model adds to the load at least
	loads   map[int]split // by cascade, on the placement
}

// split is the load of the busiest device per request per second under the best
// split, with that split as shares by configuration and model.
type split struct {
	load   float64
	shares [][]float64
}

// Mixed tells that a problem has several kinds of devices.
func (p *Problem) Mixed() bool { return len(p.Kinds) > 0 }

// variant is a model on a kind.
func (p *Problem) variant(m, k int) *Variant { return &p.Models[m].On[k] }

// solveMixed finds the most accurate gears on several kinds of devices.
func (p *Problem) solveMixed(ctx context.Context, solver milp.Solver, o *Options) (*Outcome, error) {
	switch {
	case solver == nil:
		return nil, errors.New("gears on several kinds of devices need a solver for linear programs")
	case p.Goal() != MostAccurate || p.Overall || o.Algorithm == EM:
		return nil, errors.New("gears on several kinds of devices are planned for the most accuracy under a latency that every range keeps, by the exact algorithm")
	}
	x := &mixed{p: p, solver: solver}
	x.measure()
	usable := make([]bool, len(p.Models))
	for m := range usable {
		for k := range p.Kinds {
			usable[m] = usable[m] || !math.IsInf(x.per[k][m], 1)
		}
	}
	if !slices.Contains(usable, true) {
		return nil, &Infeasible{NoneUsable: true, SLO: p.shortest()}
	}
	all := Enumerate(p.Planned, p.Grid, usable)
	if x.list = p.inTime(prune(all, len(p.Models))); len(x.list) == 0 {
		return nil, &Infeasible{NoneInTime: true, SLO: p.shortest()}
	}
	for i := range x.list {
		row := make([]float64, len(p.Models))
		for k, m := range x.list[i].Models {
			row[m] = float64(x.list[i].Reach[k]) / float64(p.Planned.N)
		}
		x.reach = append(x.reach, row)
	}
	x.configurations()
	bounds, err := x.bounds(ctx, -1)
	if err != nil {
		return nil, err
	}
	placed, err := x.place(ctx)
	if err != nil {
		return nil, err
	}
	out, err := x.staircase(ctx, placed, o)
	if err != nil {
		return nil, err
	}
	out.Problem, out.Goal, out.Cascades = p, MostAccurate, len(all)
	for r := range out.Gears {
		out.Gears[r].Bound = max(bounds[r], out.Gears[r].Accuracy)
	}
	out.Bound = p.weighted(bounds)
	out.Value, out.ValueBound, out.Steps = out.Accuracy, out.Bound, []float64{out.Accuracy}
	for k := range p.Kinds {
		more := math.NaN()
		if p.Kinds[k].Of < 0 {
			if b, err := x.bounds(ctx, k); err == nil {
				more = p.weighted(b)
			}
		}
		out.MoreOf = append(out.MoreOf, more)
	}
	return out, ctx.Err()
}

// measure finds the batches at which models are cheapest within the SLO.
func (x *mixed) measure() {
	p := x.p
	for k := range p.Kinds {
		per, batch := make([]float64, len(p.Models)), make([]int, len(p.Models))
		for m := range p.Models {
			v := p.variant(m, k)
			per[m] = math.Inf(1)
			if p.Kinds[k].Memory > 0 && v.Memory > p.Kinds[k].Memory {
				continue
			}
			for b, t := range v.Times {
				if one := t.Seconds() / float64(b+1); t <= p.SLO && one <= per[m] {
					per[m], batch[m] = one, b+1
				}
			}
		}
		x.per, x.batch = append(x.per, per), append(x.batch, batch)
	}
}

// configurations are the maximal sets of models that fit on a device of a kind.
func (x *mixed) configurations() {
	p := x.p
	for k := range p.Kinds {
		q := &Problem{Models: make([]Model, len(p.Models)), Memory: p.Kinds[k].Memory, SLO: p.SLO}
		some := uint32(0)
		for m := range p.Models {
			v := p.variant(m, k)
			q.Models[m] = Model{Memory: v.Memory}
			if !math.IsInf(x.per[k][m], 1) {
				q.Models[m].Times = v.Times
				some |= 1 << m
			}
		}
		if some == 0 {
			continue
		}
		for _, set := range q.configurations() {
			x.configs = append(x.configs, Config{Kind: k, Set: set})
		}
		x.all = append(x.all, Config{Kind: k, Set: some})
	}
}

// program is a linear program over ranges: mixtures of cascades on devices. Rows
// and variables are kept by what they mean.
type program struct {
	m       *milp.Model
	x       *mixed
	configs []Config
	ranges  []int
	one     []milp.Row     // by range: the mixture
	need    [][]milp.Row   // by range and model: samples per second
	count   []milp.Var     // by configuration
	flow    [][][]milp.Var // by range, configuration and model; negative: not there
	short   []milp.Var     // by range: requests that nothing answers
	columns [][]int        // by range: cascades
}

// newProgram is the program of some ranges with the counts left open, as whole
// numbers or not; extra is a kind with one more device, negative: none.
func (x *mixed) newProgram(configs []Config, ranges []int, whole bool, extra int) *program {
	p := x.p
	g := &program{m: milp.New("gears"), x: x, configs: configs, ranges: ranges, columns: make([][]int, len(ranges))}
	g.m.SetSense(milp.Maximize)
	devices := make([][]milp.Term, len(p.Kinds))
	for _, c := range configs {
		n := g.m.AddVar("", 0, milp.Inf, 0)
		g.m.SetInteger(n, whole)
		g.count = append(g.count, n)
		owner, span := c.Kind, 1.0
		if k := &p.Kinds[c.Kind]; k.Of >= 0 {
			owner, span = k.Of, float64(k.Span)
		}
		devices[owner] = append(devices[owner], milp.Term{Var: n, Coef: span})
	}
	for k, terms := range devices {
		if have := float64(p.Kinds[k].Devices); len(terms) > 0 {
			if k == extra {
				have++
			}
			g.m.AddLE("devices", have, terms...)
		}
	}
	for _, r := range ranges {
		short := g.m.AddVar("", 0, milp.Inf, -1e3)
		g.short = append(g.short, short)
		g.one = append(g.one, g.m.AddEQ("one cascade", 1, milp.Term{Var: short, Coef: 1}))
		need := make([]milp.Row, len(p.Models))
		for m := range need {
			need[m] = g.m.AddLE("", 0)
		}
		var flows [][]milp.Var
		for c, conf := range configs {
			time := g.m.AddLE("", 0, milp.Term{Var: g.count[c], Coef: -1})
			vars := make([]milp.Var, len(p.Models))
			for m := range vars {
				vars[m] = -1
				if conf.Set&(1<<m) != 0 {
					vars[m] = g.m.AddColumn("", 0, milp.Inf, 0, milp.Entry{Row: need[m], Coef: -1}, milp.Entry{Row: time, Coef: x.per[conf.Kind][m] * p.Edges[r]})
				}
			}
			flows = append(flows, vars)
		}
		g.need, g.flow = append(g.need, need), append(g.flow, flows)
	}
	return g
}

// column adds a cascade to the mixture of a range.
func (g *program) column(at, cascade int) {
	p := g.x.p
	entries := []milp.Entry{{Row: g.one[at], Coef: 1}}
	for m, share := range g.x.reach[cascade] {
		if share > 0 {
			entries = append(entries, milp.Entry{Row: g.need[at][m], Coef: share})
		}
	}
	weight := max(p.Weights[g.ranges[at]], 1e-6) // a range without weight has cascades, too
	g.m.AddColumn("", 0, milp.Inf, weight*float64(g.x.list[cascade].Correct)/float64(p.Planned.N), entries...)
	g.columns[at] = append(g.columns[at], cascade)
}

// perRound is how many columns a range gets at most in one round of pricing.
const perRound = 4

// generate solves the program by column generation; with all columns priced out
// nothing over these cascades is better.
func (g *program) generate(ctx context.Context) (*milp.Solution, error) {
	p, x := g.x.p, g.x
	for at := range g.ranges {
		g.column(at, x.lightest())
	}
	for {
		sol, err := x.solver.Solve(ctx, g.m, milp.Options{})
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, err
		}
		if sol.X == nil || len(sol.RowDuals) == 0 {
			return nil, fmt.Errorf("the program of gears on several kinds has no solution (%v)", sol.Status)
		}
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
			var gains []gain
			for i := range x.list {
				by := weight*float64(x.list[i].Correct)/float64(p.Planned.N) - level
				for _, m := range x.list[i].Models {
					by -= price[m] * x.reach[i][m]
				}
				if by > 1e-9*weight+1e-13 && !slices.Contains(g.columns[at], i) {
					gains = append(gains, gain{i, by})
				}
			}
			slices.SortFunc(gains, func(a, b gain) int {
				return cmp.Or(cmp.Compare(b.by, a.by), cmp.Compare(a.cascade, b.cascade))
			})
			for _, n := range gains[:min(perRound, len(gains))] {
				g.column(at, n.cascade)
				added = true
			}
		}
		if !added {
			return sol, nil
		}
	}
}

// lightest is the cascade with the least time where each model is fastest.
func (x *mixed) lightest() int {
	best, least := 0, math.Inf(1)
	for i := range x.list {
		total := 0.0
		for m, share := range x.reach[i] {
			fastest := math.Inf(1)
			for k := range x.per {
				fastest = min(fastest, x.per[k][m])
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

// bounds are what no plan over the same thresholds exceeds in a range: fractions
// of devices, each with whatever model, any mixture. With one more device of a
// kind, where extra is not negative.
func (x *mixed) bounds(ctx context.Context, extra int) ([]float64, error) {
	out := make([]float64, len(x.p.Edges))
	for r := range out {
		g := x.newProgram(x.all, []int{r}, false, extra)
		sol, err := g.generate(ctx)
		if err != nil {
			return nil, fmt.Errorf("bounding the accuracy at %.6g requests per second: %w", x.p.Edges[r], err)
		}
		if out[r] = sol.Value / max(x.p.Weights[r], 1e-6); sol.X[g.short[0]] > 1e-7 {
			out[r] = math.NaN()
		}
	}
	return out, nil
}

// place finds how many devices of a kind hold which models: all ranges together,
// the relaxation by column generation and then whole numbers over its columns.
func (x *mixed) place(ctx context.Context) ([]Config, error) {
	p := x.p
	ranges := make([]int, len(p.Edges))
	for r := range ranges {
		ranges[r] = r
	}
	relaxed := x.newProgram(x.configs, ranges, false, -1)
	if _, err := relaxed.generate(ctx); err != nil {
		return nil, fmt.Errorf("placing models on several kinds: %w", err)
	}
	g := x.newProgram(x.configs, ranges, true, -1)
	for at, list := range relaxed.columns {
		for _, i := range list {
			g.column(at, i)
		}
	}
	sol, err := x.solver.Solve(ctx, g.m, milp.Options{})
	if err != nil {
		return nil, fmt.Errorf("placing models on several kinds: %w", err)
	}
	if sol.X == nil {
		return nil, fmt.Errorf("placing models on several kinds: no solution (%v)", sol.Status)
	}
	out := slices.Clone(x.configs)
	free := make([]int, len(p.Kinds))
	for k := range free {
		free[k] = p.Kinds[k].Devices
	}
	for c := range out {
		out[c].Count = int(math.Round(sol.X[g.count[c]]))
		if k := &p.Kinds[out[c].Kind]; k.Of >= 0 {
			free[k.Of] -= k.Span * out[c].Count
		} else {
			free[out[c].Kind] -= out[c].Count
		}
	}
	for c := range out { // idle devices help: they take the kind's first set
		if k := out[c].Kind; p.Kinds[k].Of < 0 && free[k] > 0 {
			out[c].Count += free[k]
			free[k] = 0
		}
	}
	return slices.DeleteFunc(out, func(c Config) bool { return c.Count == 0 }), nil
}

// split finds the best split of a cascade's work on the placement.
func (x *mixed) split(ctx context.Context, placed []Config, cascade int) (split, error) {
	if got, ok := x.loads[cascade]; ok {
		return got, nil
	}
	m := milp.New("split")
	u := m.AddVar("", 0, milp.Inf, 1)
	flows := make([][]milp.Var, len(placed))
	need := make([][]milp.Term, len(x.p.Models))
	rows := make([]milp.Row, len(placed))
	for c, conf := range placed {
		time := []milp.Term{{Var: u, Coef: -float64(conf.Count)}}
		flows[c] = make([]milp.Var, len(x.p.Models))
		for k, share := range x.reach[cascade] {
			if flows[c][k] = -1; share > 0 && conf.Set&(1<<k) != 0 {
				f := m.AddVar("", 0, milp.Inf, 0)
				flows[c][k] = f
				time = append(time, milp.Term{Var: f, Coef: 1e3 * x.per[conf.Kind][k]}) // milliseconds: near 1
				need[k] = append(need[k], milp.Term{Var: f, Coef: 1})
			}
		}
		rows[c] = m.AddLE("", 0, time...)
	}
	out := split{load: math.Inf(1)}
	for k, share := range x.reach[cascade] {
		if share > 0 && len(need[k]) == 0 {
			x.loads[cascade] = out
			return out, nil
		}
		if share > 0 {
			m.AddEQ("", share, need[k]...)
		}
	}
	sol, err := x.solver.Solve(ctx, m, milp.Options{})
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return out, fmt.Errorf("splitting the work of a cascade: %w", err)
	}
	if sol.X == nil {
		return out, fmt.Errorf("splitting the work of a cascade: no solution (%v)", sol.Status)
	}
	out.load, out.shares = 0, make([][]float64, len(placed))
	for c := range placed {
		out.shares[c] = make([]float64, len(x.p.Models))
		time := 0.0
		for k, f := range flows[c] {
			if f >= 0 {
				out.shares[c][k] = max(0, sol.X[f]) / x.reach[cascade][k]
				time += max(0, sol.X[f]) * x.per[placed[c].Kind][k]
			}
		}
		out.load = max(out.load, time/float64(placed[c].Count))
	}
	x.loads[cascade] = out
	x.cut(placed, rows, sol)
	return out, nil
}

// cut keeps what a program says of other cascades: with its prices of device
// time, whose total over the devices is 1, a sample of a model costs what it
// takes where that is cheapest; no split does better.
func (x *mixed) cut(placed []Config, rows []milp.Row, sol *milp.Solution) {
	if len(sol.RowDuals) == 0 {
		return
	}
	total := 0.0
	price := make([]float64, len(placed))
	for c, conf := range placed {
		price[c] = math.Abs(sol.RowDuals[rows[c]])
		total += float64(conf.Count) * price[c]
	}
	if !(total > 0) {
		return
	}
	cut := make([]float64, len(x.p.Models))
	for m := range cut {
		cut[m] = math.Inf(1)
		for c, conf := range placed {
			if conf.Set&(1<<m) != 0 {
				cut[m] = min(cut[m], price[c]/total*x.per[conf.Kind][m])
			}
		}
	}
	x.cuts = append(x.cuts, cut)
}

// atLeast bounds the load of a cascade from below.
func (x *mixed) atLeast(cascade int) float64 {
	most := 0.0
	for _, cut := range x.cuts {
		load := 0.0
		for _, m := range x.list[cascade].Models {
			load += cut[m] * x.reach[cascade][m]
		}
		most = max(most, load)
	}
	return most
}

// staircase gives every range the most accurate cascade that passes: down the
// front of accuracy over the load of the busiest device, which is found on the
// way.
func (x *mixed) staircase(ctx context.Context, placed []Config, o *Options) (*Outcome, error) {
	p := x.p
	x.tabulate(placed)
	x.loads = map[int]split{}
	b := &bench{p: p, seed: o.Seed, tables: x.tables, pipelines: x.of}
	out := &Outcome{Configs: placed}
	order := make([]int, len(x.list))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(x.list[b].Correct, x.list[a].Correct), cmp.Compare(a, b))
	})
	at, below := 0, math.Inf(1) // what failed had this load: only less is tried
	for r, edge := range p.Edges {
		var last *Trial
		for ; ; at++ {
			if at == len(order) {
				return nil, x.infeasible(ctx, placed, r, last)
			}
			i, most := order[at], min(below, 1/edge)
			if x.atLeast(i) >= most {
				continue
			}
			s, err := x.split(ctx, placed, i)
			if err != nil {
				return nil, err
			}
			if s.load >= most {
				continue
			}
			shares := x.shares(placed, s.shares)
			q, trial, err := p.passes(ctx, b, &x.list[i], shares, edge, o.MinQueues)
			if err != nil {
				return nil, err
			}
			out.Front++
			if last = &trial; q > 0 {
				out.Gears = append(out.Gears, Planned{Cascade: x.list[i], MinQueue: q, Shares: shares, Load: s.load * edge, Trial: trial,
					Accuracy: float64(x.list[i].Correct) / float64(p.Planned.N)})
				out.Accuracy += p.Weights[r] * out.Gears[r].Accuracy
				below = math.Inf(1)
				break
			}
			below = s.load
		}
		if o.Progress != nil {
			o.Progress(r+1, len(p.Edges))
		}
	}
	out.Runs = b.runs
	return out, nil
}

func (x *mixed) infeasible(ctx context.Context, placed []Config, r int, last *Trial) error {
	i := x.lightest()
	s, err := x.split(ctx, placed, i)
	if err != nil {
		return err
	}
	load := s.load
	inf := &Infeasible{Range: r, Edge: x.p.Edges[r], Model: x.p.Models[x.list[i].Models[0]].Name, MaxQPS: 1 / load}
	if last != nil {
		inf.LatencyMS, inf.Unstable = max(0, float64(last.Latency)/1e6), !last.Stable
	} else {
		top, n := x.p.Edges[len(x.p.Edges)-1], 0
		for k := range x.p.Kinds {
			n += x.p.Kinds[k].Devices
		}
		inf.Devices = int(math.Ceil(float64(n) * top * load))
	}
	return inf
}

// Replicas are the devices of a kind that hold a model, numbered within the kind
// configuration by configuration.
func (out *Outcome) Replicas(model, kind int) []int {
	var list []int
	first := 0
	for _, c := range out.Configs {
		if c.Kind != kind {
			continue
		}
		for d := range c.Count {
			if c.Set&(1<<model) != 0 {
				list = append(list, first+d)
			}
		}
		first += c.Count
	}
	return list
}

// tabulate makes the run-time tables: a pipeline for every model on every kind
// that holds it.
func (x *mixed) tabulate(placed []Config) {
	p := x.p
	t := policy.Tables{Models: []policy.Model{{Name: "cascade", SLO: p.SLO, Percentile: p.Percentile}}}
	out := &Outcome{Configs: placed}
	first := make([]int, len(p.Kinds))
	for k := range p.Kinds {
		first[k] = len(t.Devices)
		t.Kinds = append(t.Kinds, p.Kinds[k].Name)
		n := 0
		for _, c := range placed {
			if c.Kind == k {
				n += c.Count
			}
		}
		t.KindCounts = append(t.KindCounts, int32(n))
		for d := range n {
			t.Devices = append(t.Devices, policy.Device{Kind: int32(k), Share: 1, GPU: int32(d), Uplink: -1, Downlink: -1})
		}
	}
	for m := range p.Models {
		var of []int32
		for k := range p.Kinds {
			devices := out.Replicas(m, k)
			if len(devices) == 0 {
				continue
			}
			n := int32(len(t.Pipelines))
			of = append(of, n)
			batch := x.batch[k][m]
			t.Pipelines = append(t.Pipelines, policy.Pipeline{Batch: int32(batch), FirstStage: n, NumStages: 1})
			t.Stages = append(t.Stages, policy.Stage{Pipeline: n, FirstDevice: int32(len(t.StageDevices)), NumDevices: int32(len(devices)),
				LastBlock: 1, Infer: p.variant(m, k).Times[:batch]})
			for _, d := range devices {
				t.StageDevices = append(t.StageDevices, int32(first[k]+d))
			}
		}
		x.of = append(x.of, of)
	}
	t.Models[0].NumPipelines = int32(len(t.Pipelines))
	x.tables = t
}

// shares turns a split over configurations into one over replicas, in the order
// of the pipelines and their devices.
func (x *mixed) shares(placed []Config, byConfig [][]float64) [][]float64 {
	out := make([][]float64, len(x.p.Models))
	for m := range out {
		sum := 0.0
		for k := range x.p.Kinds {
			for c, conf := range placed {
				if conf.Kind != k || conf.Set&(1<<m) == 0 {
					continue
				}
				for range conf.Count {
					share := 0.0
					if byConfig[c] != nil {
						share = byConfig[c][m] / float64(conf.Count)
					}
					out[m] = append(out[m], share)
					sum += share
				}
			}
		}
		for i := range out[m] {
			if sum > 0 {
				out[m][i] /= sum
			} else {
				out[m][i] = 1 / float64(len(out[m]))
			}
		}
	}
	return out
}
