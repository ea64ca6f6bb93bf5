package bounds

import (
	"context"
	"math"
	"slices"

	"inferplan/planner/gear/cascades"
	"inferplan/planner/gear/planspace"
	"inferplan/planner/lists"
	"inferplan/solver/milp"
)

// DeviceCut bounds the relaxation from above, by numbers of devices:
//
//	value(n) ≤ value + slack + Σ_k GainPerDevice(k) · (n(k) - devices(k))
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
// linear inequality, from the duals, that holds for all counts of devices which reach the target accuracy. The search
// for the cheapest devices adds it to its program. startCascades, by range, are indexes of cascades to start from, and
// are set to those that the solved program has, for the next call.
func CutOfRanges(ctx context.Context, space *planspace.Space, startCascades [][]int) (*DeviceCut, error) {
	p := space.Problem
	cut := &DeviceCut{Devices: p.DeviceCounts(), GainPerDevice: make([]float64, len(p.Kinds)), ServesAllRanges: true}

	// Solve range by range. If the devices cannot serve a range (more than rounding stays unserved), the cut is made from that
	// range alone, by a program that only minimises the unserved share.
	const index, forAccuracy, serveOnly = 0, false, true // a program has one range, whose index is 0, and one of two aims
	for r := range p.RangeEdges {
		program, sol, _, err := space.SolveRelaxation(ctx, r, forAccuracy, startCascades[r])
		if err != nil {
			return nil, err
		}
		startCascades[r] = program.CascadeColumns[index]
		if sol.X[program.UnservedVar[index]] > 1e-7 {
			cut = &DeviceCut{Devices: cut.Devices, GainPerDevice: make([]float64, len(p.Kinds))}
			if program, sol, _, err = space.SolveRelaxation(ctx, r, serveOnly, startCascades[r]); err != nil {
				return nil, err
			}
			cut.addDuals(space, program, sol, 1) // the value is minus the unserved share, so the target below is 0
			break
		}
		// The program multiplies the range's accuracy by its weight or, if that is less, by 1e-6. The factor turns that into the
		// weight: it is 1 but for such ranges.
		factor := p.RangeWeights[r] / max(p.RangeWeights[r], 1e-6)
		cut.addDuals(space, program, sol, factor)
	}

	// Other counts n reach the target (or serve all requests, if a range is not served) only if
	//
	//	Value + slack + Σ_k GainPerDevice(k) · (n(k) - Devices(k)) ≥ target
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
// each kind raises that value, all times a factor. It also adds to the slack, by which the cut must be raised so that
// it holds for all counts: the program counts whole network cards (NICs), and the cut a part of a NIC for each device.
func (t *DeviceCut) addDuals(space *planspace.Space, program *planspace.MixtureProgram, sol *milp.Solution, factor float64) {
	t.Value += factor * sol.Value
	for k, row := range program.DeviceRow {
		if row >= 0 {
			t.GainPerDevice[k] += factor * math.Abs(sol.RowDuals[row])
		}
	}

	// A NIC serves the perNode devices of a node, so the cut counts 1/perNode of a NIC for each device. But a node that is not
	// full has a whole NIC: n devices have up to (n+perNode-1)/perNode NICs. The slack is the price of that at the cut's own
	// count, less the NICs that the program counted. Rows have index 0, as the program has one range.
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

// DeviceCut returns the cut for an SLO over all requests together: a linear inequality that holds for all counts of
// devices which reach the target accuracy. It says that their worth, the sum of their prices GainPerDevice, is at least
// RequiredGain. Prices are those of the pooled devices, scaled so that all devices of the problem, with their network
// cards, are worth 1. available has, by kind, the number of devices in the cluster. The caller fills in the value of
// the relaxation.
func (p *PooledDevices) DeviceCut(available []int) *DeviceCut {
	cut := &DeviceCut{Devices: p.problem.DeviceCounts(), GainPerDevice: slices.Clone(p.devicePrice)}
	// A network card serves the perNode devices of a node, so a device is worth 1/perNode of a card besides. A node that is not
	// full has a whole card, so counts may have up to (perNode-1)/perNode cards more than these parts sum to: the slack.
	for n, price := range p.nicPrice {
		perNode := float64(max(1, p.problem.Blocks.Pools[n.Kind].PerNode))
		cut.GainPerDevice[n.Kind] += price / perNode
		cut.slack += price * (perNode - 1) / perNode
	}

	// Worths between which the target is first reached: the problem's devices (1), and all devices of the cluster.
	low := 1.0
	high := lists.Sum(len(available), func(k int) float64 { return cut.GainPerDevice[k] * float64(available[k]) })
	if p.boundAtScale(low) >= p.problem.TargetAccuracy-cascades.TargetTolerance {
		return cut // the problem's devices may reach the target, so nothing is ruled out: RequiredGain stays 0
	}

	// Bisect the least worth at which the bound reaches the target.
	for range scaleHalvings {
		if middle := (low + high) / 2; p.boundAtScale(middle) >= p.problem.TargetAccuracy-cascades.TargetTolerance {
			high = middle
		} else {
			low = middle
		}
	}
	cut.RequiredGain = low - cut.slack // at low the bound misses the target, so every plan that reaches it is worth more
	return cut
}
