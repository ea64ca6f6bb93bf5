package search

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"inferplan/planner/kind"
	"inferplan/planner/lists"
	"inferplan/planner/pool/incumbent"
	"inferplan/planner/pool/placement"
	"inferplan/planner/pool/problem"
	"inferplan/planner/stages"
	"inferplan/solver/milp"
)

// ErrKinds is returned when DART-r is asked to pair more than two device kinds, or time-shared ones.
var ErrKinds = errors.New("DART-r pairs one device of each of two kinds")

// DARTr plans as the baseline DART-r of PPipe. Every model gets the devices that it has in a plan without
// partitioning, and an even share of the idle ones of each kind, rounded down. On those it repeats the best use
// of one device of each kind (a chain of two stages, or each alone) as often as there are pairs. The remaining
// devices of the more numerous kind run whole models. Devices are whole. The bound is that of pooled pipelines:
// the gap is the most that pooling could bring.
//
// Plans without partitioning that reach the same objective divide the devices differently. DARTr tries the one
// of the fewest devices, the one of the largest weighted sum, and divisions in which one model has more devices
// of a kind than the fewest that it needs. It takes the best plan by objective, then by weighted sum of rates,
// then by fewer devices.
func DARTr(ctx context.Context, p *problem.Problem, s milp.Solver, o problem.Options) (*problem.Outcome, error) {
	return solveAtFloors(p, func(p *problem.Problem) (*problem.Outcome, error) { return planDARTr(ctx, p, s, o) })
}

// planDARTr plans as the baseline DARTr does: it divides the devices among the models, and uses those of a
// model in pairs of one device of each kind that form a chain of two stages, or singly with whole models. It
// returns the best of several divisions. It refuses floors (the least rates asked for) that no plan of whole models
// carries exactly; its caller allows for a tolerance. The bound is that of pooled pipelines, so it covers these plans,
// too. If there are more than two kinds of devices, or time-shared ones, it returns ErrKinds.
func planDARTr(ctx context.Context, p *problem.Problem, s milp.Solver, o problem.Options) (*problem.Outcome, error) {
	var kinds []int
	for k := range p.Pools {
		if p.Pools[k].Count > 0 {
			kinds = append(kinds, k)
		}
		if p.Pools[k].TimeShared {
			return nil, fmt.Errorf("%w: %s is shared in time", ErrKinds, p.Pools[k].Kind)
		}
	}
	if len(kinds) > 2 {
		return nil, fmt.Errorf("%w: the cluster has %d", ErrKinds, len(kinds))
	}
	search, err := newSearch(ctx, p, s, o, incumbent.MaxThroughput{})
	if err != nil {
		return nil, err
	}

	// Start from two plans of whole models, the one of the fewest devices and the one of the largest weighted sum of rates.
	// Take the best plan of the division of the devices ([model][pool] counts) in each. The first one leaves devices idle
	// that one model may have as well, so for it also try divisions in which one does.
	pairing := &devicePairing{p, search.catalogue.Templates}
	var bestOutcome *problem.Outcome
	var phasesDone []kind.Phase
	for i, baseline := range []func(context.Context, *problem.Problem, milp.Solver, problem.Options) (*problem.Outcome, error){FewestDevicesNP, largestSumNP} {
		np, err := baseline(ctx, p, s, o)
		if err != nil {
			return nil, err
		}
		phasesDone = append(phasesDone, np.Phases...)
		npDevices := pairing.devicesOf(np)
		divisions := [][][]int{npDevices}
		if i == 0 {
			divisions = append(divisions, pairing.largerDivisions(npDevices)...)
		}
		if bestOutcome, err = pairing.bestOf(bestOutcome, divisions); err != nil {
			return nil, err
		}
	}

	// The bound of pooled pipelines, and the work of all solves.
	bestOutcome.Bound = max(search.catalogue.UnitsToRate(search.incumbent.ProvenBound()), bestOutcome.Value)
	bestOutcome.Templates, bestOutcome.Phases = len(search.catalogue.Templates), append(phasesDone, search.outcome.Phases...)
	bestOutcome.StoppedBy = milp.StoppedByWork
	if ctx.Err() != nil {
		bestOutcome.StoppedBy = milp.StoppedByInterrupt
	}
	return bestOutcome, nil
}

// devicePairing divides devices among models, and repeats pairs of them.
type devicePairing struct {
	problem   *problem.Problem
	templates []stages.Template
}

// bestOf makes a plan of each division of the devices among the models ([model][pool] counts): idle devices are dealt
// out evenly, and every model uses its devices in pairs of two kinds or singly (pairPipelines). It returns the best of
// these outcomes and of best, which may be nil.
func (pairing *devicePairing) bestOf(best *problem.Outcome, divisions [][][]int) (*problem.Outcome, error) {
	for _, division := range divisions {
		pipelines := pairing.pairPipelines(pairing.dealIdle(division))
		outcome, _, err := placement.Adopt(pairing.problem, pipelines) // places them and computes their rates
		if err != nil {
			return nil, fmt.Errorf("repeating pairs of devices: %w", err)
		}
		if best == nil || pairing.isBetter(outcome, best) {
			best = outcome
		}
	}
	return best, nil
}

// isBetter reports whether plan a is better than b by objective, weighted sum of rates and devices, in this
// order.
func (pairing *devicePairing) isBetter(a, b *problem.Outcome) bool {
	totals := func(o *problem.Outcome) (rps, devices float64) {
		for d, v := range o.RPS {
			rps += v * pairing.problem.Models[d].Weight
		}
		for i := range o.Pipelines {
			for _, v := range o.Pipelines[i].Devices {
				devices += v
			}
		}
		return rps, devices
	}
	if math.Abs(a.Value-b.Value) > problem.ValueTolerance*b.Value {
		return a.Value > b.Value
	}
	sumA, devicesA := totals(a)
	sumB, devicesB := totals(b)
	if math.Abs(sumA-sumB) > problem.ValueTolerance*sumB {
		return sumA > sumB
	}
	return devicesA < devicesB
}

// devicesOf returns, by model and pool, how many devices the models have in np, a plan of whole models on whole devices, where
// each replica takes one.
func (pairing *devicePairing) devicesOf(np *problem.Outcome) [][]int {
	devices := lists.Filled(len(pairing.problem.Models), func(int) []int { return make([]int, len(pairing.problem.Pools)) })
	for i := range np.Pipelines {
		pipeline := &np.Pipelines[i]
		for si := range pipeline.Stages {
			devices[pipeline.Model][pipeline.Stages[si].Pool] += pipeline.Replicas[si]
		}
	}
	return devices
}

// idleDevices returns how many devices of a pool no model has.
func (pairing *devicePairing) idleDevices(devices [][]int, pool int) int {
	idle := pairing.problem.Pools[pool].Count
	for d := range devices {
		idle -= devices[d][pool]
	}
	return idle
}

// maxSplits bounds how many numbers of additional devices are tried for a model and kind.
const maxSplits = 128

// largerDivisions returns variants of a division of the devices ([model][pool] counts). In each, one model has more
// devices of a pool that it uses already: in at most maxSplits equal steps up to all idle ones. The division is that of a
// plan of whole models with the fewest devices at its objective, the least rate per weight. A plan that also gives idle
// devices to one model has the same objective. So the baseline may as well start from that, and pairs of devices may then
// carry more.
func (pairing *devicePairing) largerDivisions(devices [][]int) [][][]int {
	var divisions [][][]int
	for d := range devices {
		for pool, n := range devices[d] {
			if n == 0 {
				continue
			}
			idleCount := pairing.idleDevices(devices, pool)
			step := (idleCount + maxSplits - 1) / maxSplits // rounded up
			for extra := 0; extra < idleCount; {
				extra = min(extra+step, idleCount)
				division := slices.Clone(devices)
				division[d] = slices.Clone(devices[d])
				division[d][pool] += extra
				divisions = append(divisions, division)
			}
		}
	}
	return divisions
}

// dealIdle returns a division of the devices ([model][pool] counts) in which every model has, beside its devices in the given
// one, an even share of the devices of each pool that no model has, rounded down.
func (pairing *devicePairing) dealIdle(devices [][]int) [][]int {
	dealt := make([][]int, len(devices))
	for d := range dealt {
		dealt[d] = slices.Clone(devices[d])
		for i := range pairing.problem.Pools {
			dealt[d][i] += pairing.idleDevices(devices, i) / len(pairing.problem.Models)
		}
	}
	return dealt
}

// pairPipelines turns the devices of each model ([model][pool] counts) into pipelines: as many chains over a
// device of each kind as there are pairs, if chains pay, and whole models on the devices that remain.
func (pairing *devicePairing) pairPipelines(devices [][]int) []problem.Pipeline {
	// addReplicas adds a pipeline with n replicas of each stage of template i, unless there is no template (-1).
	var pipelines []problem.Pipeline
	addReplicas := func(i, n int) {
		if i >= 0 && n > 0 {
			t := pairing.templates[i]
			pipelines = append(pipelines, problem.Pipeline{Template: t, Replicas: slices.Repeat([]int{n}, len(t.Stages))})
		}
	}
	for d := range pairing.problem.Models {
		// Pair devices for the fastest chain (two stages, one on each kind), if that carries more than its two devices do
		// with whole models. The devices that are left run whole models.
		wholeModels, chain := pairing.fastestTemplates(d)
		remaining := slices.Clone(devices[d])
		if chain >= 0 && pairing.chainPays(chain, wholeModels) {
			a, b := pairing.templates[chain].Stages[0].Pool, pairing.templates[chain].Stages[1].Pool
			n := min(remaining[a], remaining[b])
			addReplicas(chain, n)
			remaining[a] -= n
			remaining[b] -= n
		}
		for pool, n := range remaining {
			addReplicas(wholeModels[pool], n)
		}
	}
	return pipelines
}

// fastestTemplates returns, for model d on whole devices, the fastest template of one stage on each pool, and
// the fastest one of two stages on two pools. Where there is none, the index is -1.
func (pairing *devicePairing) fastestTemplates(d int) (wholeModels []int, chain int) {
	wholeModels, chain = slices.Repeat([]int{-1}, len(pairing.problem.Pools)), -1
	keepFaster := func(fastest *int, i int) {
		if *fastest < 0 || pipelineRate(&pairing.templates[i]) > pipelineRate(&pairing.templates[*fastest]) {
			*fastest = i
		}
	}
	for i := range pairing.templates {
		t := &pairing.templates[i]
		if t.Model != d || slices.ContainsFunc(t.Stages, func(s stages.Stage) bool { return s.Share != 1 }) {
			continue
		}
		switch {
		case len(t.Stages) == 1:
			keepFaster(&wholeModels[t.Stages[0].Pool], i)
		case len(t.Stages) == 2 && t.Stages[0].Pool != t.Stages[1].Pool:
			keepFaster(&chain, i)
		}
	}
	return wholeModels, chain
}

// chainPays reports whether a chain, a pipeline over a device of each of two kinds, carries more than the two
// devices do with a whole model each.
func (pairing *devicePairing) chainPays(chain int, wholeModels []int) bool {
	separateRate := 0.0
	for _, s := range pairing.templates[chain].Stages {
		if i := wholeModels[s.Pool]; i >= 0 {
			separateRate += pipelineRate(&pairing.templates[i])
		}
	}
	return pipelineRate(&pairing.templates[chain]) > separateRate
}

// pipelineRate returns the rate that a template carries with one replica of each stage: that of its slowest
// stage, in requests/s.
func pipelineRate(t *stages.Template) float64 {
	return lists.Min(t.Stages[0].Rate, len(t.Stages), func(i int) float64 { return t.Stages[i].Rate })
}
