package check

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"

	"inferplan/formats"
	"inferplan/planner/kind"
)

// Relative standard deviations of one profile that remain between profiles of one machine, if they say
// how fast the machine was (make bench-gate).
const (
	// SteadyBetweenRuns is that of a model's times, over all batch sizes, relative to the other
	// models and the reference.
	SteadyBetweenRuns = 0.007
	// CommonBetweenRuns is that of all models' times relative to the reference.
	CommonBetweenRuns = 0.01
)

// batchLuck is the largest difference between the change of one batch size and that of all batch sizes of
// its model that counts as chance: the place of its tensors in memory is random.
const batchLuck = 0.05

// machineMetric compares the speed of the machine, by its reference.
const machineMetric = "machine"

// profileDrift holds how a profile differs from the first promised one, as logarithms of ratios.
type drift struct {
	reference float64
	models    map[string]float64         // mean over all batch sizes
	batches   map[string]map[int]float64 // by model and batch
	ratio     [2]float64                 // of the first promised profile and of this one, in microseconds
}

// removeDrift scales the profiles to one speed of the machine, that of the first promised profile. The
// change of the speed is the median of the changes of the reference and of the models, so that a single
// slower model stands out. If all models together changed relative to the reference by more than chance,
// the reference alone decides.
func (p *profiles) steadied(plan *formats.Plan) {
	if p.same || len(p.old) == 0 || len(plan.Pools) != 1 || !oneThread(plan.Pools[0].Device) {
		return
	}

	// Compare each profile with the first one, and the sides with each other.
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
	if min(chance.a, chance.b) < enoughRuns { // with a single profile, a busy neighbour may last for all of it
		chance.alpha /= 5
	}

	// Scale all profiles, and note the speeds.
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

// driftOf compares a profile with the first promised one. It returns nil if one of them has no reference,
// or they have no model in common.
func driftOf(first, one *formats.Profile, device string) *drift {
	d := &drift{models: map[string]float64{}, batches: map[string]map[int]float64{}, ratio: [2]float64{reference(first, device), reference(one, device)}}
	if d.ratio[0] == 0 || d.ratio[1] == 0 {
		return nil
	}
	d.reference = math.Log(d.ratio[1] / d.ratio[0])

	// The changes of each model, by batch size and on average.
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

// commonShift returns the mean change of all models relative to the reference.
func (d *drift) common() float64 {
	return stat.Mean(d.changes(), nil) - d.reference
}

// modelChanges returns the changes of the models in ascending order.
func (d *drift) changes() []float64 {
	var all []float64
	for _, x := range d.models {
		all = append(all, x)
	}
	slices.Sort(all)
	return all
}

// machineChange returns the change of the machine's speed.
func (d *drift) machine(byReference bool) float64 {
	if all := d.changes(); !byReference && len(all) > 1 {
		return center(append(all, d.reference))
	}
	return d.reference
}

// withoutDrift returns a profile without the change of the machine, and without differences between the
// batch sizes of a model that may be chance.
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

// referenceTime returns the time of the reference in a profile on a device kind, in microseconds, or 0 if
// the profile has none.
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
