package check

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"

	"inferplan/formats"
	"inferplan/planner/kind"
	"inferplan/planner/recompute"
)

// Relative standard deviations of one profile that remain between profiles of one machine, if they say
// how fast the machine was (make bench NAME=gate).
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
type profileDrift struct {
	reference      float64
	models         map[string]float64         // mean over all batch sizes
	batches        map[string]map[int]float64 // by model and batch
	firstReference float64                    // time of the reference task in the first promised profile, in microseconds; no logarithm
	ownReference   float64                    // the same in this profile
}

// removeDrift scales the times of all profiles to one speed of the machine, that of the first promised profile, so
// that a slower machine does not look like slower models. It applies to one pool of single threads, whose profiles
// time a reference task.
//
// The change of the speed is the median of the changes of the reference and of the models, so that a single slower
// model stands out. If all models together changed relative to the reference by more than chance, the reference
// alone decides.
func (p *profileSets) removeDrift(plan *formats.Plan) {
	if p.sameProfile || len(p.promised) == 0 || len(plan.Pools) != 1 || !oneThread(plan.Pools[0].Device) {
		return
	}

	// Compare each profile with the first one, and the sides with each other.
	device := plan.Pools[0].Device
	var drifts [2][]*profileDrift
	var meanShifts [2]float64 // by side: mean change of all models relative to the reference
	for sideIndex, list := range [][]*formats.Profile{p.promised, p.current} {
		var common []float64
		for _, profile := range list {
			drift := driftOf(p.promised[0], profile, device)
			if drift == nil {
				return
			}
			drifts[sideIndex] = append(drifts[sideIndex], drift)
			common = append(common, drift.commonShift())
		}
		meanShifts[sideIndex] = stat.Mean(common, nil)
	}

	// Decide whether all models together changed, from the promised side to today's, by more than chance. Other work on the machine may
	// have lasted for all of a few profiles, so with fewer than minProfiles on a side chance gets a wider limit.
	chance := chanceModel{spread: CommonBetweenRuns, alpha: falseAlarmRate, promisedProfiles: len(p.promised), currentProfiles: len(p.current)}
	if min(chance.promisedProfiles, chance.currentProfiles) < minProfiles {
		chance.alpha /= 5
	}
	p.driftRemoved, p.commonShift = true, math.Abs(meanShifts[1]-meanShifts[0]) > chance.minDifference()

	// Scale all profiles, and note the speeds of the machine: the median time of the reference task on each side.
	machineFigure := kind.FigurePair{Metric: machineMetric, Subject: device + " (reference)", Unit: "us"}
	for sideIndex, list := range [][]*formats.Profile{p.promised, p.current} {
		corrected := make([]*formats.Profile, len(list))
		var referenceTimes []float64
		for i, profile := range list {
			drift := drifts[sideIndex][i]
			referenceTimes = append(referenceTimes, drift.ownReference)
			corrected[i] = drift.withoutDrift(profile, device, p.commonShift)
		}
		if sideIndex == 0 {
			p.promised, machineFigure.Old = corrected, median(referenceTimes)
			continue
		}
		p.current, machineFigure.New = corrected, median(referenceTimes)
	}
	p.machineFigures = append(p.machineFigures, machineFigure)
}

// driftOf returns how the times of a profile on a device kind differ from those of the first promised one, as logarithms of ratios: of
// the reference task (timed beside every measurement to show the machine's speed), and of each model, by batch size and on average. It
// returns nil if one of them has no reference, or they have no model in common.
func driftOf(first, profile *formats.Profile, device string) *profileDrift {
	drift := &profileDrift{models: map[string]float64{}, batches: map[string]map[int]float64{}}
	drift.firstReference, drift.ownReference = referenceTime(first, device), referenceTime(profile, device)
	if drift.firstReference == 0 || drift.ownReference == 0 {
		return nil
	}
	drift.reference = math.Log(drift.ownReference / drift.firstReference)

	// The changes of each model, by batch size and on average.
	for i := range first.Models {
		name := first.Models[i].Model
		m := profile.FindModel(name)
		if m == nil {
			continue
		}
		byBatch := map[int]float64{}
		var changes []float64
		for k := range first.Models[i].Measurements {
			firstMeasurement := &first.Models[i].Measurements[k]
			measurement := m.FindMeasurement(firstMeasurement.Device, firstMeasurement.Share, firstMeasurement.Batch)
			if firstMeasurement.Device != device || measurement == nil || firstMeasurement.WholeModel == nil || measurement.WholeModel == nil {
				continue
			}
			byBatch[firstMeasurement.Batch] = math.Log(float64(measurement.WholeModel.WallUS) / float64(firstMeasurement.WholeModel.WallUS))
			changes = append(changes, byBatch[firstMeasurement.Batch])
		}
		if len(changes) > 0 {
			drift.models[name], drift.batches[name] = stat.Mean(changes, nil), byBatch
		}
	}
	if len(drift.models) == 0 {
		return nil
	}
	return drift
}

// commonShift returns the mean change of all models relative to the reference.
func (d *profileDrift) commonShift() float64 {
	return stat.Mean(d.modelChanges(), nil) - d.reference
}

// modelChanges returns the changes of the models, as logarithms of ratios, in ascending order.
func (d *profileDrift) modelChanges() []float64 {
	var changes []float64
	for _, x := range d.models {
		changes = append(changes, x)
	}
	slices.Sort(changes)
	return changes
}

// machineChange returns the logarithm of the factor by which the machine's times have changed. It is the change of the
// reference task, or the median of that and the changes of the models. The models do not count with byReference, or if
// there is only one.
func (d *profileDrift) machineChange(byReference bool) float64 {
	if changes := d.modelChanges(); !byReference && len(changes) > 1 {
		return median(append(changes, d.reference))
	}
	return d.reference
}

// withoutDrift returns profile p with the times on a device kind divided by the factor by which the machine's times have changed since the
// first promised profile. It also removes differences between a model's batch sizes that are small enough (batchLuck) to be chance: the
// change of such a size is replaced by the mean change of its model. With byReference the reference task alone gives the machine's change.
// All changes are logarithms of ratios, so they are added and subtracted.
func (d *profileDrift) withoutDrift(p *formats.Profile, device string, byReference bool) *formats.Profile {
	machineChange := d.machineChange(byReference)
	// WithTimes asks for each measurement m of model i how to change its times; nil leaves them as they are.
	return p.WithTimes(func(i int, m *formats.Measurement) func(*formats.Latency) {
		if m.Device != device {
			return nil
		}
		correction := -machineChange // logarithm of the factor on the times
		name := p.Models[i].Model
		modelChange := d.models[name]
		if batchChange, ok := d.batches[name][m.Batch]; ok && math.Abs(batchChange-modelChange) <= batchLuck {
			correction += modelChange - batchChange
		}
		factor := math.Exp(correction)
		return func(l *formats.Latency) { *l = l.Scaled(factor, factor) }
	})
}

// referenceTime returns the median time of the reference task in a profile on a device kind, in microseconds. The task is the same in all
// profiles and timed beside every measurement, so it shows the machine's speed. If the profile has none, it returns 0.
func referenceTime(p *formats.Profile, device string) float64 {
	var times []float64
	for i := range p.Models {
		for k := range p.Models[i].Measurements {
			if m := &p.Models[i].Measurements[k]; m.Device == device && m.ReferenceUS > 0 {
				times = append(times, float64(m.ReferenceUS.D())/1000)
			}
		}
	}
	if len(times) == 0 {
		return 0
	}
	return median(times)
}

// minBusyShare is the excess of the time of a thread over its CPU time from which on other work on
// the machine must have caused it.
const minBusyShare = 0.25

// BusyBetweenRuns replaces BetweenRuns if CPU times of profiles of a busy machine are compared: other
// work evicts its caches. With 20 to 37 waiting threads on two cores it was 3 % of ResNet-50 and up
// to 7 % of ShuffleNet (make bench NAME=gate).
const BusyBetweenRuns = 0.07

// wasBusy returns whether a profile was taken while other work had the processor. On a quiet machine a single thread's CPU time is its
// elapsed time; on a busy one, the plan's stages take noticeably longer than their CPU time. For devices of several threads CPU times
// cannot say so, and it returns false.
func wasBusy(plan *formats.Plan, p *formats.Profile) bool {
	if !slices.ContainsFunc(plan.Pools, func(q formats.Pool) bool { return oneThread(q.Device) }) {
		return false
	}
	quiet := withCPUTimes(p)
	return float64(recompute.TotalWork(plan, p)) > (1+minBusyShare)*float64(recompute.TotalWork(plan, quiet))
}

// oneThread reports whether a device is a CPU thread set of one thread.
func oneThread(device string) bool {
	n, ok := formats.CPUThreads(device)
	return ok && n == 1
}

// withCPUTimes returns a copy of a profile in which single-threaded devices have their CPU times in place of
// elapsed times, without the waiting for other work.
func withCPUTimes(p *formats.Profile) *formats.Profile {
	useCPUTime := func(l *formats.Latency) {
		if l.CPUUS > 0 && l.CPUUS < l.WallUS {
			l.WallUS = l.CPUUS
		}
	}
	return p.WithTimes(func(_ int, m *formats.Measurement) func(*formats.Latency) {
		if !oneThread(m.Device) {
			return nil // its times stay as they are
		}
		return useCPUTime
	})
}

// useCPUTimes replaces the elapsed times in all profiles by CPU times, which leave out the waiting for other work, if any profile was
// taken on a busy machine, and records that in p.cpuTimes. All are replaced, so that they can be compared.
func (p *profileSets) useCPUTimes(plan *formats.Plan) {
	everyProfile := slices.Concat(p.promised, p.current)
	if p.sameProfile || !slices.ContainsFunc(everyProfile, func(profile *formats.Profile) bool { return wasBusy(plan, profile) }) {
		return
	}
	p.cpuTimes = true
	p.promised, p.current = slices.Clone(p.promised), slices.Clone(p.current)
	for _, list := range [][]*formats.Profile{p.promised, p.current} {
		for i := range list {
			list[i] = withCPUTimes(list[i])
		}
	}
}
