package check

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"

	"inferplan/formats"
	"inferplan/planner/kind"
)

// What profiles of one machine leave of a difference, relative standard deviations of
// one profile, where they tell how fast the machine was (make bench-gate).
const (
	// SteadyBetweenRuns is of a model's times, all batches together, in relation to the
	// other models and the reference.
	SteadyBetweenRuns = 0.007
	// CommonBetweenRuns is of all models' times in relation to the reference.
	CommonBetweenRuns = 0.01
)

// batchLuck is by how much the times of one batch may depart from those of all batches
// of its model: where its tensors came to lie in memory is by chance.
const batchLuck = 0.05

// machineMetric compares the machine itself, by its reference.
const machineMetric = "machine"

// drift is how a profile differs from the first of the promise, in logarithms.
type drift struct {
	reference float64
	models    map[string]float64         // over all batches
	batches   map[string]map[int]float64 // by model and batch
	ratio     [2]float64                 // of the reference: then and now, in microseconds
}

// steadied are profiles as of a machine that was as fast each time as under the first
// profile of the promise. How fast it was is the middle of what the reference and the
// models say, so that a model that got slower stands out; but where all of them moved
// away from the reference by more than chance, the reference alone tells.
func (p *profiles) steadied(plan *formats.Plan) {
	if p.same || len(p.old) == 0 || len(plan.Pools) != 1 || !oneThread(plan.Pools[0].Device) {
		return
	}
	device := plan.Pools[0].Device
	var drifts [2][]*drift
	shift := 0.0
	for side, list := range [][]*formats.Profile{p.old, p.now} {
		var common []float64
		for _, one := range list {
			d := driftOf(p.old[0], one, device)
			if d == nil {
				return
			}
			drifts[side] = append(drifts[side], d)
			common = append(common, d.common())
		}
		shift = stat.Mean(common, nil) - shift
	}
	chance := noise{spread: CommonBetweenRuns, alpha: alarms, a: len(p.old), b: len(p.now)}
	if min(chance.a, chance.b) < enoughRuns { // a spell of a neighbour is all of a single profile
		chance.alpha /= 5
	}
	p.steady, p.common = true, math.Abs(shift) > chance.least()
	s := kind.Sample{Metric: machineMetric, What: device + " (reference)", Unit: "us", Old: drifts[0][0].ratio[0]}
	for side, list := range [][]*formats.Profile{p.old, p.now} {
		steady := make([]*formats.Profile, len(list))
		var took []float64
		for i, one := range list {
			d := drifts[side][i]
			took = append(took, d.ratio[1])
			steady[i] = d.undone(one, device, p.common)
		}
		if side == 0 {
			p.old, s.Old = steady, center(took)
			continue
		}
		p.now, s.New = steady, center(took)
	}
	p.machine = append(p.machine, s)
}

// driftOf compares a profile with the first; nil where one does not tell how fast the
// machine was, or they have no model in common.
func driftOf(first, one *formats.Profile, device string) *drift {
	d := &drift{models: map[string]float64{}, batches: map[string]map[int]float64{}, ratio: [2]float64{reference(first, device), reference(one, device)}}
	if d.ratio[0] == 0 || d.ratio[1] == 0 {
		return nil
	}
	d.reference = math.Log(d.ratio[1] / d.ratio[0])
	for i := range first.Models {
		name := first.Models[i].Model
		m := one.Find(name)
		if m == nil {
			continue
		}
		at := map[int]float64{}
		var all []float64
		for k := range first.Models[i].Measurements {
			was := &first.Models[i].Measurements[k]
			now := m.At(was.Device, was.Share, was.Batch)
			if was.Device != device || now == nil || was.Whole == nil || now.Whole == nil {
				continue
			}
			at[was.Batch] = math.Log(float64(now.Whole.WallUS) / float64(was.Whole.WallUS))
			all = append(all, at[was.Batch])
		}
		if len(all) > 0 {
			d.models[name], d.batches[name] = stat.Mean(all, nil), at
		}
	}
	if len(d.models) == 0 {
		return nil
	}
	return d
}

// common is by how much all models together moved away from the reference.
func (d *drift) common() float64 {
	return stat.Mean(d.changes(), nil) - d.reference
}

// changes are those of the models, ascending.
func (d *drift) changes() []float64 {
	var all []float64
	for _, x := range d.models {
		all = append(all, x)
	}
	slices.Sort(all)
	return all
}

// machine is by how much the machine was slower.
func (d *drift) machine(byReference bool) float64 {
	if all := d.changes(); !byReference && len(all) > 1 {
		return center(append(all, d.reference))
	}
	return d.reference
}

// undone is a profile without what the machine did, and without what a batch did that
// its model's other batches did not, within chance.
func (d *drift) undone(p *formats.Profile, device string, byReference bool) *formats.Profile {
	machine := d.machine(byReference)
	return p.WithTimes(func(i int, m *formats.Measurement) func(*formats.Latency) {
		if m.Device != device {
			return nil
		}
		change := -machine
		name := p.Models[i].Model
		if own, ok := d.batches[name][m.Batch]; ok && math.Abs(own-d.models[name]) <= batchLuck {
			change += d.models[name] - own
		}
		factor := math.Exp(change)
		return func(l *formats.Latency) { *l = l.Times(factor, factor) }
	})
}

// reference is what the reference took under a profile on a kind of devices, in
// microseconds; 0 where it does not tell.
func reference(p *formats.Profile, device string) float64 {
	var all []float64
	for i := range p.Models {
		for k := range p.Models[i].Measurements {
			if m := &p.Models[i].Measurements[k]; m.Device == device && m.ReferenceUS > 0 {
				all = append(all, float64(m.ReferenceUS.D())/1000)
			}
		}
	}
	if len(all) == 0 {
		return 0
	}
	return center(all)
}
