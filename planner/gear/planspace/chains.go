package planspace

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"inferplan/planner/gear/cascades"
	"inferplan/planner/lists"
	"inferplan/planner/stages"
	"inferplan/solver/pareto"
)

// Chain is a member cut into stages. A replica of it has one device per stage.
type Chain struct {
	Model    int           // index of the member
	MaxBatch int           // largest batch
	Latency  time.Duration // of a batch of MaxBatch, with the transfers between stages
	Stages   []Stage
}

// Stage is a range of a member's blocks on a kind of devices.
type Stage struct {
	Kind                 int             // index of the kind
	FirstBlock, EndBlock int             // blocks, half-open
	Memory               int64           // bytes on the device
	MedianTimes          []time.Duration // [b-1]: undisturbed time of a batch of b
	MeanTimes            []time.Duration // [b-1]: mean time of a batch of b
	CutBytes             int64           // per sample, to the next stage
	TransferTimes        []time.Duration // [b-1]: to the next stage; nil for the last stage

	SecondsPerSample             float64 // device seconds per sample, in the largest batch
	nicSeconds                   float64 // NIC seconds per sample, to the next stage
	usesSourceNIC, usesTargetNIC bool    // whether the transfer occupies a NIC of this kind, and one of the next stage's kind
}

// PlacedChain is a chain on devices. Devices[stage] are numbers within the stage's kind, ascending. The chain has
// as many replicas as its widest stage has devices. Every other stage has a divisor of that number, and each of
// its devices serves consecutive replicas.
type PlacedChain struct {
	Chain   *Chain
	Devices [][]int
}

// Key returns a text that is equal for chains of the same member, batch size, stages and devices.
func (c *PlacedChain) Key() string {
	key := fmt.Sprint(c.Chain.Model, "x", c.Chain.MaxBatch, c.Devices)
	for i := range c.Chain.Stages {
		s := &c.Chain.Stages[i]
		key += fmt.Sprint(" ", s.Kind, ":", s.FirstBlock, "-", s.EndBlock)
	}
	return key
}

// Replicas returns the number of the chain's replicas.
func (c *PlacedChain) Replicas() int {
	return lists.Max(0, len(c.Devices), func(i int) int { return len(c.Devices[i]) })
}

// DeviceOf returns the number, within its kind, of the device that runs a stage of a replica. Stages and replicas are
// counted from 0. If a stage has fewer devices than there are replicas, each serves equally many consecutive ones.
func (c *PlacedChain) DeviceOf(stage, replica int) int {
	list := c.Devices[stage]
	return list[replica/(c.Replicas()/len(list))]
}

// errTooManyChains is returned if a member can be cut in too many ways. It names the options that help.
var errTooManyChains = errors.New("too many ways to cut the members into stages: fewer blocks (--blocks) or stages (--max-partitions)")

// EnumerateChains returns the chains within the SLO: ways to run a member (a model of the family) cut into stages, each
// on a device of its own, with their largest batch. By member it also returns the least time in which one sample passes
// it in stages, or 0 if the member cannot be cut. Without blocks in the problem, or with one stage at most, there are
// no chains.
func EnumerateChains(p *cascades.Problem) (chains []*Chain, minTimes []time.Duration, err error) {
	minTimes = make([]time.Duration, len(p.Models))
	if p.Blocks == nil || p.Blocks.MaxPartitions < 2 {
		return nil, minTimes, nil
	}
	blocks := *p.Blocks
	blocks.Models = slices.Clone(blocks.Models)

	// Make the templates of each member (package stages: a cut into stages with kinds of devices and a batch size), without a
	// margin, and turn those of several stages into chains.
	for m := range blocks.Models {
		model := &blocks.Models[m]
		model.SLO, model.Margin, model.BatchWaitMicros, model.EveryBatch = p.SLO, 0, 0, false // trials show the queueing that a margin would be for
		if model.NumBlocks() < 2 {
			continue
		}
		templates, _, err := blocks.ListTemplates(m)
		if errors.Is(err, stages.ErrTooManyTemplates) {
			return nil, nil, fmt.Errorf("%s: %w", p.Models[m].Name, errTooManyChains)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("cutting members into stages: %w", err)
		}
		hasChain := false
		for i := range templates {
			if t := &templates[i]; len(t.Stages) > 1 && !hasNeedlessCut(&blocks, t) {
				chains, hasChain = append(chains, newChain(&blocks, m, t)), true
			}
		}
		if hasChain {
			if t, ok := blocks.MinLatency(m, 1); ok {
				minTimes[m] = t
			}
		}
	}
	return chains, minTimes, nil
}

// hasNeedlessCut reports whether two consecutive stages of a template (a cut of a model into stages) could be one: they
// are on the same kind of devices, and fit its memory together; a limit of 0 is none. Such templates are left out, as a
// cut there only costs a transfer.
func hasNeedlessCut(b *stages.Problem, t *stages.Template) bool {
	for i := 1; i < len(t.Stages); i++ {
		previous, s := &t.Stages[i-1], &t.Stages[i]
		if previous.Pool != s.Pool {
			continue
		}
		weightBytes := b.Models[t.Model].WeightBytes(s.FirstBlock, s.EndBlock)
		if limit := b.Pools[s.Pool].Memory; limit == 0 || previous.Memory+weightBytes <= limit {
			return true
		}
	}
	return false
}

// newChain returns the chain of member m (a model cut into stages) that a template of the package stages describes,
// with the times of each stage for every batch size up to the template's, and those of the transfers between stages.
// The pools of b are the kinds of devices.
func newChain(b *stages.Problem, m int, t *stages.Template) *Chain {
	c := &Chain{Model: m, MaxBatch: t.Batch, Latency: t.Latency}
	for i := range t.Stages {
		templateStage := &t.Stages[i]
		stage := Stage{Kind: templateStage.Pool, FirstBlock: templateStage.FirstBlock, EndBlock: templateStage.EndBlock, Memory: templateStage.Memory, SecondsPerSample: templateStage.MeanTime.Seconds() / float64(t.Batch)}
		for n := 1; n <= t.Batch; n++ {
			expected := b.Models[m].ShareCosts[templateStage.Pool][0].ExpectedTimes(n)
			stage.MedianTimes, stage.MeanTimes = append(stage.MedianTimes, expected.Median(templateStage.FirstBlock, templateStage.EndBlock)), append(stage.MeanTimes, expected.Mean(templateStage.FirstBlock, templateStage.EndBlock))
		}

		// The transfer to the next stage.
		if i+1 < len(t.Stages) {
			next := t.Stages[i+1].Pool
			stage.CutBytes = b.Models[m].CutBytes[templateStage.EndBlock-1]
			stage.nicSeconds, stage.usesSourceNIC, stage.usesTargetNIC = b.LinkTime(templateStage.Pool, next, stage.CutBytes)
			if templateStage.Pool == next && b.Pools[next].PerNode > 1 {
				stage.usesSourceNIC, stage.usesTargetNIC = false, false // both devices may share one NIC
			}
			for n := 1; n <= t.Batch; n++ {
				stage.TransferTimes = append(stage.TransferTimes, b.TransferTime(templateStage.Pool, next, stage.CutBytes, n))
			}
		}
		c.Stages = append(c.Stages, stage)
	}
	return c
}

// SameRoute reports whether two chains are of one member and run over the same kinds in the same order.
func (c *Chain) SameRoute(other *Chain) bool {
	return c.Model == other.Model && slices.EqualFunc(c.Stages, other.Stages, func(a, b Stage) bool { return a.Kind == b.Kind })
}

// dominates reports whether chain c is at least as good as another one on the same route: no stage takes more
// time or memory, and no cut more time of the network card.
func (c *Chain) dominates(other *Chain) bool {
	for i := range c.Stages {
		a, b := &c.Stages[i], &other.Stages[i]
		if a.SecondsPerSample > b.SecondsPerSample || a.Memory > b.Memory || a.nicSeconds > b.nicSeconds {
			return false
		}
	}
	return true
}

// UndominatedChains returns the chains (members in stages) of at most a latency that no other one on their route, the
// kinds of devices of their stages, beats in device time, memory and network time. Of equal chains it keeps the one of
// least latency. list is not changed.
func UndominatedChains(list []*Chain, maxLatency time.Duration) []*Chain {
	// Group the chains within the latency by route.
	var groups [][]*Chain
	for _, c := range list {
		if c.Latency > maxLatency {
			continue
		}
		group := slices.IndexFunc(groups, func(g []*Chain) bool { return g[0].SameRoute(c) })
		if group < 0 {
			group, groups = len(groups), append(groups, nil)
		}
		groups[group] = append(groups[group], c)
	}

	// In each group keep the undominated ones, by rising latency.
	var undominated []*Chain
	for _, g := range groups {
		slices.SortStableFunc(g, func(a, b *Chain) int { return cmp.Compare(a.Latency, b.Latency) })
		var best []*Chain
		for _, c := range g {
			if !slices.ContainsFunc(best, func(k *Chain) bool { return k.dominates(c) }) {
				best = append(slices.DeleteFunc(best, c.dominates), c)
			}
		}
		undominated = append(undominated, best...)
	}
	return undominated
}

// Limits on the chains of one placement: stages that devices of a kind hold beside whole members, members and
// stages from which the sets of a kind are made, and sets of all kinds.
const (
	maxStagesPerKind = 6
	maxSetItems      = 14
	maxConfigs       = 120
)

// mostUsedChains returns, for every member and route (the kinds of devices of the stages), the chain that the
// relaxation (the linear program with fractions of devices) sends most samples along, by falling use. use has these
// shares of the samples by index of the space's chains; up to a millionth it is only the solver's rounding.
func (space *Space) mostUsedChains(use []float64) []*Chain {
	order := make([]int, 0, len(use))
	for i, u := range use {
		if u > 1e-6 {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(use[b], use[a]) })
	var used []*Chain
	for _, i := range order {
		if c := space.Chains[i]; !slices.ContainsFunc(used, c.SameRoute) {
			used = append(used, c)
		}
	}
	return used
}

// chainsForMemory returns chains (members in stages) along which members use devices that they do not fit on whole. Of
// the chains of one route (the kinds of devices of the stages) it returns the one with the highest throughput on all
// devices. They come by falling throughput. The linear program with fractions of devices does not show that such chains
// are needed: if the member fits whole on other devices, it goes there, even if it then leaves no memory there for
// other members.
func (space *Space) chainsForMemory() []*Chain {
	// throughput returns the samples per second of a chain if it had all devices to itself.
	throughput := func(c *Chain) float64 {
		stageCounts := make([]int, len(space.Problem.Kinds))
		for s := range c.Stages {
			stageCounts[c.Stages[s].Kind]++
		}
		minRate := math.Inf(1)
		for s := range c.Stages {
			k := c.Stages[s].Kind
			minRate = min(minRate, float64(space.Problem.Kinds[k].Devices)/float64(stageCounts[k])/c.Stages[s].SecondsPerSample)
		}
		return minRate
	}

	// Keep the best chain of each route.
	var chains []*Chain
	for _, c := range space.Chains {
		if !slices.ContainsFunc(c.Stages, func(s Stage) bool { return math.IsInf(space.SecondsPerSample[s.Kind][c.Model], 1) }) {
			continue
		}
		if found := slices.IndexFunc(chains, c.SameRoute); found < 0 {
			chains = append(chains, c)
		} else if throughput(c) > throughput(chains[found]) {
			chains[found] = c
		}
	}
	slices.SortStableFunc(chains, func(a, b *Chain) int { return cmp.Compare(throughput(b), throughput(a)) })
	return chains
}

// chooseChains sets the space's ChosenChains, those that a placement may use, to candidates in their order, at most one
// for each route (the kinds of its stages), and sets the configs that follow. It passes over a candidate if with it
// some kind of devices would hold too many stages, or there would be too many configs (sets of models and stages on a
// device): the program of the placement must stay small.
func (space *Space) chooseChains(candidates []*Chain) {
	space.ChosenChains = nil
	for _, c := range candidates {
		if slices.ContainsFunc(space.ChosenChains, c.SameRoute) {
			continue
		}

		// Add the chain, and count the stages on each kind.
		space.ChosenChains = append(space.ChosenChains, c)
		stageCounts, fitsLimits := make([]int, len(space.Problem.Kinds)), true
		for _, chosen := range space.ChosenChains {
			for s := range chosen.Stages {
				k := chosen.Stages[s].Kind
				stageCounts[k]++
				// At most two stages are always allowed. Beyond, models and stages together are at most maxSetItems.
				fitsLimits = fitsLimits && stageCounts[k] <= max(2, min(maxStagesPerKind, maxSetItems-len(space.Problem.Models)))
			}
		}

		// Take the chain back if there are too many stages or sets.
		if fitsLimits {
			space.SetConfigs()
			fitsLimits = len(space.Configs) <= maxConfigs || len(space.ChosenChains) == 1
		}
		if !fitsLimits {
			space.ChosenChains = space.ChosenChains[:len(space.ChosenChains)-1]
		}
	}
	space.SetConfigs()
}

// StageShapes returns the shapes that a placed chain may have: the number of devices of each stage, at most maxDevices
// of that stage. The widest stage has one device per replica, and every other number divides that, so that replicas use
// its devices evenly. A shape that is nowhere wider than another is left out. The shape of the highest throughput is
// first.
func (c *Chain) StageShapes(maxDevices []int) [][]int {
	var shapes [][]int

	// For each number of replicas, give every stage the largest divisor that its devices allow.
	for n := slices.Max(maxDevices); n > 0; n-- {
		shape := make([]int, len(maxDevices))
		for s := range shape {
			for k := min(n, maxDevices[s]); k > 0; k-- {
				if n%k == 0 {
					shape[s] = k
					break
				}
			}
		}
		dominated := func(o []int) bool { return pareto.AllAtMost(shape, o) }
		if slices.Max(shape) == n && slices.Min(shape) > 0 && !slices.ContainsFunc(shapes, dominated) {
			shapes = append(shapes, shape)
		}
	}

	// Sort by the throughput of the slowest stage.
	throughput := func(shape []int) float64 {
		return lists.Min(math.Inf(1), len(shape), func(s int) float64 { return float64(shape[s]) / c.Stages[s].SecondsPerSample })
	}
	slices.SortStableFunc(shapes, func(a, b []int) int { return cmp.Compare(throughput(b), throughput(a)) })
	return shapes
}
