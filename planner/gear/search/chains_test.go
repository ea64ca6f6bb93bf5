package search

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"inferplan/planner/gear/cascades"
	"inferplan/planner/gear/placement"
	"inferplan/planner/gear/planspace"
	"inferplan/planner/gear/trials"
	"inferplan/planner/lists"
	"inferplan/planner/stages"
	"inferplan/solver/milp"
)

// inBlocks gives a problem's models blocks: parts of their times on the first kind,
// and factors of these on the second.
func inBlocks(p *cascades.Problem, counts, perNode []int, memory []int64, gbps float64, parts, factors []float64) *cascades.Problem {
	q := *p
	q.Kinds = nil
	b := &stages.Problem{MaxPartitions: 2}
	for k := range counts {
		name := string(rune('a' + k))
		q.Kinds = append(q.Kinds, cascades.Kind{Name: name, Devices: counts[k], Memory: memory[k]})
		b.Pools = append(b.Pools, stages.Pool{Kind: name, Count: counts[k], MaxShares: 1, PerNode: perNode[k], Gbps: gbps, Memory: memory[k]})
	}
	q.Models = slices.Clone(p.Models)
	for m := range q.Models {
		one := &q.Models[m]
		pm := stages.Model{Name: one.Name, ShareCosts: make([][]stages.ShareCosts, len(counts))}
		own, memory, on := one.FastestTimes, one.Variants[0].Memory, []cascades.Variant(nil)
		left := memory
		for i := range parts {
			w := memory / int64(len(parts))
			if i == len(parts)-1 {
				w = left
			}
			pm.Weights, left = append(pm.Weights, w), left-w
			if i > 0 {
				pm.CutBytes = append(pm.CutBytes, 20_000)
			}
		}
		for k := range counts {
			v := cascades.Variant{Memory: memory}
			var share stages.ShareCosts
			for n, t := range own {
				cost := stages.BatchCost{Batch: n + 1}
				whole := time.Duration(0)
				for i, part := range parts {
					d := time.Duration(part * float64(t))
					if k > 0 {
						d = time.Duration(factors[i] * float64(d))
					}
					cost.Blocks, whole = append(cost.Blocks, d), whole+d
				}
				share.Batches, v.MedianTimes = append(share.Batches, cost), append(v.MedianTimes, whole)
			}
			pm.ShareCosts[k] = []stages.ShareCosts{share}
			on = append(on, v)
		}
		*one = cascades.NewModel(one.Name, on...)
		b.Models = append(b.Models, pm)
	}
	q.Blocks = b
	return &q
}

// drawStaged is a small problem whose models may run in stages on two kinds.
func drawStaged(t *rapid.T) *cascades.Problem {
	p := drawProblem(t)
	for m := range p.Models {
		v := p.Models[m].Variants[0]
		v.Memory *= 2
		p.Models[m] = cascades.NewModel(p.Models[m].Name, v)
	}
	cut := rapid.Float64Range(.2, .8).Draw(t, "cut")
	factors := []float64{rapid.Float64Range(1, 6).Draw(t, "slower"), rapid.Float64Range(.1, 1).Draw(t, "faster")}
	if rapid.Bool().Draw(t, "first") {
		slices.Reverse(factors)
	}
	p.RangeEdges = cascades.EqualRanges(rapid.Float64Range(200, 5000).Draw(t, "staged peak"), 2)
	counts := []int{min(2, p.Kinds[0].Devices), rapid.IntRange(1, 2).Draw(t, "others")}
	memory := []int64{0, 0}
	if rapid.Bool().Draw(t, "limited") {
		memory = []int64{rapid.Int64Range(5, 30).Draw(t, "memory"), rapid.Int64Range(5, 30).Draw(t, "other memory")}
	}
	gbps := rapid.SampledFrom([]float64{0, 1, 10}).Draw(t, "gbps")
	perNode := []int{rapid.IntRange(1, 2).Draw(t, "per node"), 1}
	return inBlocks(p, counts, perNode, memory, gbps, []float64{cut, 1 - cut}, factors)
}

// withoutStages is a problem whose models do not run in stages.
func withoutStages(p *cascades.Problem) *cascades.Problem {
	q := *p
	q.Blocks = nil
	return &q
}

// Whatever the kinds, memory and network: every device has the memory for what it
// holds and the time for what it is sent, fractions are the records', the accuracy
// is within the bound and no worse than that of whole models.
func TestStagedProperties(t *testing.T) {
	s := solver(t)
	held, staged := 0, 0
	one := func(t *rapid.T) {
		if held > 15 && staged >= 2 {
			return
		}
		q := drawStaged(t)
		plan, err := Solve(context.Background(), q, s, Options{Seed: 1})
		without, errWithout := Solve(context.Background(), withoutStages(q), s, Options{Seed: 1})
		if inf, ok := errors.AsType[*cascades.InfeasibleError](err); ok {
			if inf.Reason() == "" || errWithout == nil {
				t.Fatalf("infeasible (%v), with whole models %v", err, errWithout)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		held++
		if len(plan.Chains) > 0 {
			staged++
		}
		if errWithout == nil && (plan.Accuracy < without.Accuracy-1e-12 || plan.Bound < without.Bound-1e-7) {
			t.Fatalf("%v of %v, with whole models %v of %v", plan.Accuracy, plan.Bound, without.Accuracy, without.Bound)
		}
		if g := plan.SingleCascadeBound; g > 0 && (plan.Accuracy > g+1e-9 || g > plan.Bound+1e-6 || errWithout == nil && without.Accuracy > g+1e-9) {
			t.Fatalf("%v, with whole models %v, above the bound of one cascade per range %v, of mixtures %v", plan.Accuracy, without, g, plan.Bound)
		}
		checkStaged(t, q, plan)
	}
	rapid.Check(t, one)
	for seed := 1; (held < 8 || staged < 2) && seed < 500; seed++ { // what the draws left out
		rapid.Custom(func(t *rapid.T) int { one(t); return 0 }).Example(seed)
	}
	t.Logf("%d plans, %d of them with members in stages", held, staged)
	if held < 8 || staged < 2 {
		t.Errorf("only %d instances had a plan, %d of them in stages", held, staged)
	}
}

// checkStaged adds up what devices hold and are sent.
func checkStaged(t *rapid.T, q *cascades.Problem, plan *trials.Plan) {
	space := planspace.NewSpace(q, nil, nil)
	memory := make([][]int64, len(q.Kinds))
	for k := range memory {
		for _, c := range plan.Configs {
			if c.Kind == k {
				for range c.Count {
					total := int64(0)
					for m := range q.Models {
						if c.ModelSet&(1<<m) != 0 {
							total += q.Models[m].Variants[k].Memory
						}
					}
					memory[k] = append(memory[k], total)
				}
			}
		}
		if len(memory[k]) > q.Kinds[k].Devices {
			t.Fatalf("%d of %d devices of kind %d", len(memory[k]), q.Kinds[k].Devices, k)
		}
	}
	for _, c := range plan.Chains {
		n := c.Replicas()
		blocks := 0
		for s, devices := range c.Devices {
			st := &c.Chain.Stages[s]
			if len(devices) == 0 || n%len(devices) != 0 || !slices.IsSorted(devices) || st.FirstBlock != blocks || st.EndBlock <= st.FirstBlock {
				t.Fatalf("stage %d of %+v on %v, %d replicas", s, c.Chain, devices, n)
			}
			blocks = st.EndBlock
			for _, d := range devices {
				memory[st.Kind][d] += st.Memory
			}
		}
		if blocks != q.Blocks.Models[c.Chain.Model].NumBlocks() || c.Chain.Latency > q.SLO {
			t.Fatalf("%+v ends at block %d", c.Chain, blocks)
		}
	}
	for k := range memory {
		for d, used := range memory[k] {
			if limit := q.Kinds[k].Memory; limit > 0 && used > limit {
				t.Fatalf("device %d of kind %d holds %d of %d bytes", d, k, used, limit)
			}
		}
	}
	for r := range plan.Gears {
		g := &plan.Gears[r]
		reach, correct := q.PlanningSamples.Replay(g.Cascade.Models, g.Cascade.Levels)
		if int32(correct) != g.Cascade.CorrectCount {
			t.Fatalf("range %d: %d right, the records say %d", r, g.Cascade.CorrectCount, correct)
		}
		loads := make([][]float64, len(q.Kinds))
		for k := range loads {
			loads[k] = make([]float64, len(memory[k]))
		}
		for k, m := range g.Cascade.Models {
			rate, i := q.RangeEdges[r]*float64(reach[k])/float64(q.PlanningSamples.N), 0
			if math.Abs(lists.Total(g.Shares[m])-1) > 1e-9 {
				t.Fatalf("range %d: shares %v of model %d", r, g.Shares[m], m)
			}
			for kind := range loads {
				for _, d := range plan.Replicas(int(m), kind) {
					loads[kind][d] += g.Shares[m][i] * rate * space.SecondsPerSample[kind][m]
					i++
				}
			}
			for _, c := range plan.Chains {
				if c.Chain.Model != int(m) {
					continue
				}
				for n := range c.Replicas() {
					for s := range c.Devices {
						st := &c.Chain.Stages[s]
						loads[st.Kind][c.DeviceOf(s, n)] += g.Shares[m][i] * rate * st.MedianTimes[c.Chain.MaxBatch-1].Seconds() / float64(c.Chain.MaxBatch)
					}
					i++
				}
			}
			if i != len(g.Shares[m]) {
				t.Fatalf("range %d: %d shares of model %d, %d replicas", r, len(g.Shares[m]), m, i)
			}
		}
		most := 0.0
		for k := range loads {
			most = max(most, slices.Max(append(loads[k], 0)))
		}
		if most > 1+1e-6 || math.Abs(most-g.BusiestLoad) > 1e-6 {
			t.Fatalf("range %d: busiest device %v, said to be %v", r, most, g.BusiestLoad)
		}
		if g.Accuracy > g.Bound+1e-9 || !g.Trial.Passed {
			t.Fatalf("range %d: accuracy %v, bound %v, trial %+v", r, g.Accuracy, g.Bound, g.Trial)
		}
	}
}

// everyLayout visits all ways to put members, whole or as some of the chains with
// one of each member's sequences of kinds, on the devices.
func everyLayout(t rapid.TB, space *planspace.Space, visit func(l *placement.Layout)) {
	var groups [][]*planspace.Chain
	for _, c := range space.Chains {
		at := slices.IndexFunc(groups, func(g []*planspace.Chain) bool { return g[0].SameRoute(c) })
		if at < 0 {
			at, groups = len(groups), append(groups, nil)
		}
		groups[at] = append(groups[at], c)
	}
	var choose func(at int)
	place := func() {
		space.SetConfigs()
		placement.EachPlacement(space, func(configs []planspace.Config) {
			var chains []planspace.PlacedChain
			var options [][][]int
			for c, chain := range space.ChosenChains {
				pc := planspace.PlacedChain{Chain: chain, Devices: make([][]int, len(chain.Stages))}
				var most []int
				for s := range chain.Stages {
					pc.Devices[s] = planspace.DevicesWith(configs, chain.Stages[s].Kind, space.StageBits[c][s])
					most = append(most, len(pc.Devices[s]))
				}
				if slices.Min(most) > 0 {
					chains, options = append(chains, pc), append(options, chain.StageShapes(most))
				}
			}
			var shape func(c int, out []planspace.PlacedChain)
			shape = func(c int, out []planspace.PlacedChain) {
				if c == len(chains) {
					visit(placement.NewLayout(space, slices.Clone(configs), slices.Clone(out)))
					return
				}
				for _, o := range options[c] {
					pc := planspace.PlacedChain{Chain: chains[c].Chain}
					for s, n := range o {
						pc.Devices = append(pc.Devices, chains[c].Devices[s][:n])
					}
					shape(c+1, append(out, pc))
				}
			}
			shape(0, nil)
		})
	}
	choose = func(at int) {
		if at == len(groups) {
			place()
			return
		}
		choose(at + 1)
		for _, c := range groups[at] {
			space.ChosenChains = append(space.ChosenChains, c)
			choose(at + 1)
			space.ChosenChains = space.ChosenChains[:len(space.ChosenChains)-1]
		}
	}
	choose(0)
}

// No way to place members, whole and in stages, has the time for one cascade per range of
// more accuracy than their bound.
func TestSingleGearsInStagesAgainstEveryLayout(t *testing.T) {
	s, ctx := solver(t), context.Background()
	bounded, sharper := 0, 0
	for seed := 1; bounded < 30 && seed < 400; seed++ {
		p := rapid.Custom(drawStaged).Example(seed)
		space := stagedOf(t, p, s, 100)
		if space == nil {
			continue
		}
		space.SetConfigs()
		bound, err := placement.BoundSingleCascades(ctx, space)
		if err != nil {
			t.Fatal(err)
		}
		best, layouts := 0.0, 0
		everyLayout(t, space, func(l *placement.Layout) {
			if layouts++; layouts > 200 {
				return
			}
			ranges, err := l.FluidAccuracies(ctx, 0)
			if err != nil {
				t.Fatal(err)
			}
			if len(ranges) == len(p.RangeEdges) {
				best = max(best, p.WeightedSum(ranges))
			}
		})
		if best > bound+1e-9 {
			t.Errorf("instance %d: a layout has the time for %.6f, the bound is %.6f", seed, best, bound)
		}
		if best == 0 {
			continue
		}
		bounded++
		mixtures, _, err := space.RangeBounds(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if bound < p.WeightedSum(mixtures)-1e-6 {
			sharper++
		}
	}
	t.Logf("%d instances, in %d the bound is below that of mixtures", bounded, sharper)
	if bounded < 30 || sharper == 0 {
		t.Errorf("%d instances, in %d the bound is below that of mixtures, expected 30 and some", bounded, sharper)
	}
}

// A range that could use fractions of devices for a better cascade has to do with another
// range's: with models of 18 and 8 on devices of 12 and 8, only the second one in stages
// carries the higher rate, and then the first model has no room.
func TestRangesShareCascadesOnWholeDevices(t *testing.T) {
	p := &cascades.Problem{Grid: 4, Percentile: .95, SLO: 200 * time.Millisecond, RangeEdges: []float64{1042, 2084}, RangeWeights: []float64{2. / 3, 1. / 3},
		Models: []cascades.Model{cascades.NewModel("large", cascades.Variant{Memory: 18}), cascades.NewModel("small", cascades.Variant{Memory: 8})}}
	for n := 1; n <= 8; n++ {
		p.Models[0].FastestTimes = append(p.Models[0].FastestTimes, time.Duration(n+1)*time.Millisecond)
		p.Models[1].FastestTimes = append(p.Models[1].FastestTimes, 3*time.Millisecond+time.Duration(n)*750*time.Microsecond)
	}
	p.PlanningSamples = &cascades.Samples{N: 20, Levels: [][]uint8{nil, make([]uint8, 20)}, Correct: make([][]bool, 2)}
	for _, some := range []struct {
		level        uint8
		n            int
		large, small int // of which so many are right
	}{{0, 4, 1, 2}, {1, 7, 4, 5}, {3, 9, 6, 4}} {
		for i := range some.n {
			p.PlanningSamples.Levels[0] = append(p.PlanningSamples.Levels[0], some.level)
			p.PlanningSamples.Correct[0] = append(p.PlanningSamples.Correct[0], i < some.large)
			p.PlanningSamples.Correct[1] = append(p.PlanningSamples.Correct[1], i < some.small)
		}
	}
	q := inBlocks(p, []int{2, 1}, []int{1, 1}, []int64{12, 8}, 1, []float64{.206, .794}, []float64{1, 5.79})
	plan, err := Solve(context.Background(), q, solver(t), Options{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	if plan.Accuracy < .55-1e-9 || len(plan.Chains) == 0 {
		t.Errorf("accuracy %v with %d chains, expected .55 in stages", plan.Accuracy, len(plan.Chains))
	}
}

// stagedOf is a small problem with members in stages; nil: it has too many cascades or ways to
// place them.
func stagedOf(t rapid.TB, p *cascades.Problem, s milp.Solver, cascades int) *planspace.Space {
	chains, least, err := planspace.EnumerateChains(p)
	if err != nil {
		t.Fatal(err)
	}
	space := planspace.NewSpace(p, s, nil)
	space, err = space.WithStages(context.Background(), p, planspace.UndominatedChains(chains, p.SLO), least)
	if len(p.Models) > 2 || err != nil || len(space.Chains) == 0 || len(space.Chains) > 8 || len(space.Cascades) > cascades {
		return nil
	}
	return space
}

// A planner that simulates every cascade in every range on every way to place
// members whole and in stages beats ours by no more than a step of the grid.
func TestStagedAgainstSimulatedBruteForce(t *testing.T) {
	s := solver(t)
	held, equal, staged := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		if held >= 2 { // everything is simulated: a few are enough
			return
		}
		p := drawStaged(t)
		space, ctx := stagedOf(t, p, s, 12), context.Background()
		if space == nil {
			return
		}
		best, layouts := -1.0, 0
		everyLayout(t, space, func(l *placement.Layout) {
			if layouts++; layouts > 200 {
				return
			}
			b := trials.NewSimulator(p, l.Configs, l.Chains, 1)
			value := 0.0
			for r, edge := range p.RangeEdges {
				most := -1.0
				for i := range space.Cascades {
					accuracy := float64(space.Cascades[i].CorrectCount) / float64(p.PlanningSamples.N)
					if accuracy <= most {
						continue
					}
					sp, err := l.BestSplit(ctx, i)
					if err != nil {
						t.Fatal(err)
					}
					if sp.MaxLoad*edge > 1 {
						continue
					}
					trial, err := b.TryCascade(ctx, &placement.LoadedCascade{Cascade: &space.Cascades[i], Shares: l.ReplicaShares(sp), MaxLoad: sp.MaxLoad}, edge)
					if err != nil {
						t.Fatal(err)
					}
					if trial.Passed {
						most = accuracy
					}
				}
				if most < 0 {
					return
				}
				value += p.RangeWeights[r] * most
			}
			best = max(best, value)
		})
		if layouts > 200 {
			return
		}
		plan, err := Solve(ctx, p, s, Options{Seed: 1})
		if _, none := errors.AsType[*cascades.InfeasibleError](err); none {
			if best >= 0 {
				t.Fatalf("infeasible (%v), brute force has accuracy %v", err, best)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		held++
		if len(plan.Chains) > 0 {
			staged++
		}
		if plan.Accuracy >= best-1e-12 {
			equal++
		}
		if most := largestLevelStep(space.Cascades, p.PlanningSamples.N); best > plan.Accuracy+most+1e-12 {
			t.Fatalf("accuracy %v, brute force %v on one of %d layouts: more than a step of %v above; bound %v", plan.Accuracy, best, layouts, most, plan.Bound)
		}
		if best > plan.Bound+1e-7 {
			t.Fatalf("brute force %v above the bound %v", best, plan.Bound)
		}
	})
	t.Logf("%d instances, %d in stages, ours at least as accurate in %d", held, staged, equal)
	if held < 2 {
		t.Errorf("only %d instances had a plan", held)
	}
}

// Level loads would give a slow device whole batches that hold up the chains which
// start there: the work is split so that it does not get them.
func TestChainsAreNotHeldUp(t *testing.T) {
	p := &cascades.Problem{Grid: 2, Kinds: []cascades.Kind{{Devices: 1}}, SLO: 200 * time.Millisecond, Percentile: .95, RangeEdges: cascades.EqualRanges(4685, 2), RangeWeights: cascades.ZipfWeights(2),
		PlanningSamples: &cascades.Samples{N: 40, Levels: [][]uint8{make([]uint8, 40)}, Correct: [][]bool{make([]bool, 40)}},
		HeldOutSamples:  &cascades.Samples{Levels: make([][]uint8, 1), Correct: make([][]bool, 1)}, Thresholds: [][]float64{{0}}, Models: []cascades.Model{cascades.NewModel("a", cascades.Variant{Memory: 2})}}
	for i := range 24 {
		p.PlanningSamples.Correct[0][i] = true
	}
	for b := 1; b <= 8; b++ {
		p.Models[0].FastestTimes = append(p.Models[0].FastestTimes, time.Duration(2000+250*b)*time.Microsecond)
	}
	q := inBlocks(p, []int{2, 1}, []int{1, 1}, []int64{0, 0}, 0, []float64{.21, .79}, []float64{.1, 6})
	plan, err := Solve(context.Background(), q, solver(t), Options{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	if len(plan.Chains) != 1 || plan.Accuracy != .6 {
		t.Errorf("accuracy %v with %d chains, expected .6 with one", plan.Accuracy, len(plan.Chains))
	}
	if _, err := Solve(context.Background(), withoutStages(q), solver(t), Options{Seed: 1}); err == nil {
		t.Error("whole models do as well: the test shows nothing")
	}
}
