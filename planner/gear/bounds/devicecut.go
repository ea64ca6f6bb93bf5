package bounds

import (
	"context"
	"math"
	"slices"

	"inferplan/planner/gear/cascades"
	"inferplan/planner/gear/planspace"
	"inferplan/solver/milp"
)

// DeviceCut bounds the relaxation from above, by numbers of devices:
//
//	value(n) ≤ value + Σ_k GainPerDevice(k) · (n(k) - devices(k))
type DeviceCut struct {
	Devices         []int     // by kind: counts at which it was computed
	Value           float64   // of the relaxation at these counts; if a range is not served, minus the unserved share
	GainPerDevice   []float64 // by kind: value of one more device at most
	RequiredGain    float64   // the target is reached only if Σ_k GainPerDevice(k) · n(k) is at least this
	ServesAllRanges bool      // whether the relaxation serves all ranges
	slack           float64   // by which the value may be too low, because one NIC serves several devices
}

// Shortfall returns by how much the counts of devices, at which the cut (an inequality on counts) was computed, miss
// the RequiredGain, which all counts that reach the target have. A positive value means that the cut rules these counts
// out.
func (t *DeviceCut) Shortfall() float64 {
	shortfall := t.RequiredGain
	for k, n := range t.Devices {
		shortfall -= t.GainPerDevice[k] * float64(n)
	}
	return shortfall
}

// CutOfRanges solves the linear program of each range of rates at the problem's counts of devices, and returns a cut: a
// linear inequality, from the duals, that all counts of devices keep which reach the target accuracy. The search for
// the cheapest devices adds it to its program. startCascades, by range, are indexes of cascades to start from, and are
// set to those that the solved program has, for the next call.
func CutOfRanges(ctx context.Context, space *planspace.Space, startCascades [][]int) (*DeviceCut, error) {
	p := space.Problem
	cut := &DeviceCut{Devices: p.DeviceCounts(), GainPerDevice: make([]float64, len(p.Kinds)), ServesAllRanges: true}

	// Solve range by range. If the devices cannot serve a range (more than rounding stays unserved), the cut is made from that
	// range alone, by a program that only minimises the unserved share.
	for r := range p.RangeEdges {
		program, sol, _, err := space.SolveRelaxation(ctx, r, false, startCascades[r])
		if err != nil {
			return nil, err
		}
		startCascades[r] = program.CascadeColumns[0]
		if sol.X[program.UnservedVar[0]] > 1e-7 {
			cut = &DeviceCut{Devices: cut.Devices, GainPerDevice: make([]float64, len(p.Kinds))}
			if program, sol, _, err = space.SolveRelaxation(ctx, r, true, startCascades[r]); err != nil {
				return nil, err
			}
			cut.addDuals(space, program, sol, 1) // the value is minus the unserved share, which must become 0
			break
		}
		// The program weighs a range of weight 0 by 1e-6; here it counts by its own weight.
		cut.addDuals(space, program, sol, p.RangeWeights[r]/max(p.RangeWeights[r], 1e-6))
	}

	// Other counts n reach the target (or serve all requests, if a range is not served) only if
	//
	//	Value + Σ_k GainPerDevice(k) · (n(k) - Devices(k)) ≥ target
	//
	// Solved for Σ_k GainPerDevice(k) · n(k), that gives the RequiredGain.
	target := 0.0
	if cut.ServesAllRanges {
		target = p.TargetAccuracy - cascades.TargetTolerance
	}
	cut.RequiredGain = -cut.Value - cut.slack + target
	for k, n := range cut.Devices {
		cut.RequiredGain += cut.GainPerDevice[k] * float64(n)
	}
	return cut, nil
}

// addDuals adds to the cut the value of the linear program of one range and, by its duals, how much one more device of
// each kind raises that value, all times a factor. It also adds to the slack, by which the value may be too low: the
// program counts whole network cards, while the cut counts parts of them.
func (t *DeviceCut) addDuals(space *planspace.Space, program *planspace.MixtureProgram, sol *milp.Solution, factor float64) {
	t.Value += factor * sol.Value
	for k, row := range program.DeviceRow {
		if row >= 0 {
			t.GainPerDevice[k] += factor * math.Abs(sol.RowDuals[row])
		}
	}

	// A NIC serves the devices of a node, so one more device brings a part of a NIC. The slack covers a node that is not full
	// but has a whole NIC.
	for k := range space.Problem.Kinds {
		for _, inbound := range []bool{false, true} {
			if row, ok := program.NICRow[0][planspace.NICDirection{Kind: k, Inbound: inbound}]; ok {
				price, perNode := factor*math.Abs(sol.RowDuals[row]), float64(max(1, space.Problem.Blocks.Pools[k].PerNode))
				t.GainPerDevice[k] += price / perNode
				t.slack += price * ((float64(t.Devices[k])+perNode-1)/perNode - space.NICCount(k))
			}
		}
	}
}

// scaleHalvings is the number of halvings in the search for the least worth of pooled devices that reaches a
// target.
const scaleHalvings = 8

// DeviceCut returns the cut for an SLO over all requests together: a linear inequality that all counts of devices keep
// which reach the target accuracy. At the prices of the pooled devices such counts are worth at least RequiredGain,
// where the problem's devices are worth 1. available has, by kind, the number of devices in the cluster. The caller
// fills in the value of the relaxation.
func (p *PooledDevices) DeviceCut(available []int) *DeviceCut {
	cut := &DeviceCut{Devices: p.problem.DeviceCounts(), GainPerDevice: slices.Clone(p.devicePrice)}
	// A network card serves the devices of a node, so a device brings a part of one. A node that is not full
	// has a whole card: slack allows for that.
	for n, price := range p.nicPrice {
		perNode := float64(max(1, p.problem.Blocks.Pools[n.Kind].PerNode))
		cut.GainPerDevice[n.Kind] += price / perNode
		cut.slack += price * (perNode - 1) / perNode
	}

	// Worths between which the target is reached: the problem's devices, and all devices of the cluster.
	low, high := 1.0, 0.0
	for k, n := range available {
		high += cut.GainPerDevice[k] * float64(n)
	}
	if p.boundAtScale(low) >= p.problem.TargetAccuracy-cascades.TargetTolerance {
		return cut // fewer devices reach the target at these prices, so the cut rules nothing out
	}

	// Bisect the factor on the devices at which the bound reaches the target.
	for range scaleHalvings {
		if middle := (low + high) / 2; p.boundAtScale(middle) >= p.problem.TargetAccuracy-cascades.TargetTolerance {
			high = middle
		} else {
			low = middle
		}
	}
	cut.RequiredGain = low - cut.slack
	return cut
}
