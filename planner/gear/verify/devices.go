package verify

import (
	"fmt"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/recompute"
)

// readDeployment reads from the plan, into g, where models run and how long their batches take, planned and today, and
// checks the memory of every device. It also notes whether pools have changed since the plan was made. It returns false
// if a stage is on devices that do not exist.
func (c *gearChecker) readDeployment(g *gearsToday) bool {
	reader := &deploymentReader{checker: c, gears: g, uses: recompute.DeviceUses{}}
	ok := true
	for i := range c.Plan.Deployment {
		ok = reader.readModel(i) && ok
	}
	c.CheckDevices(reader.uses)

	// Changed pools.
	for i := range c.Plan.Pools {
		if poolToday := c.Pool(c.Plan.Pools[i].Device); poolToday == nil || poolToday.Count != c.Plan.Pools[i].Count || poolToday.Memory != c.Plan.Pools[i].Memory {
			g.inputsChanged = true
		}
	}
	return ok
}

// deploymentReader reads a deployment into gears, and adds up what it takes of every device.
type deploymentReader struct {
	checker *gearChecker
	gears   *gearsToday
	uses    recompute.DeviceUses // memory alone: models take turns on a device
}

// readModel adds to the gears, for model i of the plan, its replicas with their devices, and the planned and today's
// times of its stages. Stages are numbered over all pipelines of the model, in their order. It returns false if a stage
// is on devices that do not exist.
func (r *deploymentReader) readModel(i int) bool {
	g := r.gears
	var replicas []modelReplica
	var planned, today [][]time.Duration
	ok := true
	pipelines := r.checker.Plan.Deployment[i].Pipelines
	for n := range pipelines {
		chains := make([]modelReplica, pipelines[n].ChainCount()) // a replica of a pipeline is a chain of one device per stage
		for k := range pipelines[n].Stages {
			devices, plannedTimes, todayTimes, stageOK := r.readStage(i, n, k)
			stageNumber := len(planned) // the stages before are in planned already

			// A stage with fewer devices than chains has each device in equally many of them, which follow each other.
			chainsPerDevice := max(1, len(chains)/max(1, len(devices)))
			for chain := range chains {
				if d := chain / chainsPerDevice; d < len(devices) {
					device := devices[d]
					device.stage = stageNumber
					chains[chain].pipeline, chains[chain].stages = n, append(chains[chain].stages, device)
				}
			}
			planned, today = append(planned, plannedTimes), append(today, todayTimes)
			ok = ok && stageOK
		}
		replicas = append(replicas, chains...)
	}
	g.replicas, g.plannedTimes, g.todayTimes = append(g.replicas, replicas), append(g.plannedTimes, planned), append(g.todayTimes, today)
	return ok
}

// readStage returns the devices of a stage of pipeline n of a model, which are given by their indexes in the plan, and
// the times of the stage's batches (from size 1) as planned and as they are today. It reports times and cuts that have
// changed. If the profile lacks a time that is needed, today's times are the planned ones. stageDevices adds the
// stage's bytes to the memory of the devices. ok is false if a device does not exist.
func (r *deploymentReader) readStage(model, n, stage int) (devices []stageDevice, planned, today []time.Duration, ok bool) {
	m := &r.checker.Plan.Deployment[model]
	pipeline := &m.Pipelines[n]
	s := &pipeline.Stages[stage]
	path := fmt.Sprintf("deployment[%d].pipelines[%d].stages[%d]", model, n, stage)
	devices, ok = r.stageDevices(m, pipeline, s, path)
	for _, t := range s.InferUS {
		planned = append(planned, t.D())
	}

	// Today's latencies, of a whole model or of the stage's blocks, for the batch sizes that were measured of the whole model.
	today = r.checker.latenciesOn(m.Model, s.Device)
	if len(pipeline.Stages) > 1 {
		today = r.checker.blockLatencies(r.checker.ProfileModel(m.Model), s.Device, s.Blocks, len(today))
		if pipelineToday := r.checker.PipelineCosts(m, pipeline); s.Cut != nil && pipelineToday.IsKnown {
			r.checker.CheckCut(m, pipeline, s, &pipelineToday.Stages[stage], path)
		}
	}
	// A missing time is an error if the profile has the model. Else the plan is checked with its own times.
	lacksTimes := len(today) < pipeline.Batch
	if lacksTimes && r.checker.ProfileModel(m.Model) != nil {
		r.checker.AddError("measurement", path, fmt.Sprintf("%s, batch %d", s.Device, pipeline.Batch), "a measurement of it", "the profile does not say what %s costs there", m.Model)
	}
	if lacksTimes {
		today = planned
	}
	today = today[:pipeline.Batch]

	// Report the first latency that has changed.
	for b := range planned {
		if recompute.Differs(planned[b], today[b]) {
			r.gears.inputsChanged, r.gears.latenciesChanged = true, true
			r.checker.AddWarning("latency", fmt.Sprintf("%s.infer_us[%d]", path, b), s.InferUS[b].String(), document.Micros(today[b]).String(),
				"%s on %s at batch %d takes %s today", m.Model, s.Device, b+1, recompute.ChangeText(planned[b], today[b]))
			break
		}
	}
	return devices, planned, today, ok
}

// stageDevices returns the devices of a stage s of a pipeline, one for each replica, and adds the stage's bytes to
// their memory. path is the stage's field in the plan. If a device does not exist, or there are more or fewer than
// replicas, it reports an error and returns false.
func (r *deploymentReader) stageDevices(m *formats.Deployed, pipeline *formats.Pipeline, s *formats.Stage, path string) (devices []stageDevice, ok bool) {
	numbers, ok := r.checker.AddReplicas(r.uses, s, path, 0, r.checker.ReplicaMemory(m, pipeline, s))
	if len(pipeline.Stages) > 1 { // replicas of chains take devices by rising number
		slices.Sort(numbers)
	}
	for _, n := range numbers {
		devices = append(devices, stageDevice{device: n, kind: s.Device})
	}
	return devices, ok
}

// deviceKinds returns the kinds of the plan's devices.
func (c *gearChecker) deviceKinds() []string {
	var kinds []string
	for i := range c.Plan.Pools {
		kinds = append(kinds, c.Plan.Pools[i].Device)
	}
	return kinds
}

// fastestTimes returns today's latencies of a model, by batch size from 1, each on the kind of the plan's devices that
// is fastest at it. If none was measured, it returns nil.
func (c *gearChecker) fastestTimes(model string) []time.Duration {
	var fastest []time.Duration
	for _, kind := range c.deviceKinds() {
		for b, t := range c.latenciesOn(model, kind) {
			if b == len(fastest) {
				fastest = append(fastest, t)
			}
			fastest[b] = min(fastest[b], t)
		}
	}
	return fastest
}

// latenciesOn returns today's latencies (medians) of a whole model on a kind of devices, by batch size from 1 to the
// largest that was measured and that the plan's options allow. If none was measured, it returns nil.
func (c *gearChecker) latenciesOn(model, device string) []time.Duration {
	pm := c.ProfileModel(model)
	if pm == nil {
		return nil
	}
	maxBatch := 0
	for i := range pm.Measurements {
		if ms := &pm.Measurements[i]; ms.Device == device && isOnWholeDevice(ms) {
			maxBatch = max(maxBatch, ms.Batch)
		}
	}
	if limit := c.Plan.Options.WholeNumber("max-batch"); limit > 0 {
		maxBatch = min(maxBatch, limit)
	}
	return c.blockLatencies(pm, device, [2]int{0, len(pm.Blocks)}, maxBatch)
}

// rateTimes returns the batch times of a model on a kind of devices from which rates are computed: mean times, if the
// plan's rates are by means and the profile has all of them, and else the given latencies, which are medians. Both are
// by batch size, from 1.
func (c *gearChecker) rateTimes(model, device string, times []time.Duration) []time.Duration {
	pm := c.ProfileModel(model)
	var means []time.Duration
	for b := range times {
		today, ok := c.BatchTime(pm, device, 1, b+1, 0, len(pm.Blocks))
		if !ok || today.Mean == 0 || c.Plan.RatesBy != formats.RatesByMean {
			return times
		}
		means = append(means, today.Mean)
	}
	return means
}

// blockLatencies returns today's latencies (medians) of the blocks blocks[0] to blocks[1]-1 of a model, together, on a
// kind of devices, for batch sizes from 1 to maxBatch. It ends before the first batch size for which the profile has no
// time. pm may be nil.
func (c *gearChecker) blockLatencies(pm *formats.ProfileModel, device string, blocks [2]int, maxBatch int) []time.Duration {
	var latencies []time.Duration
	for b := 1; b <= maxBatch && pm != nil; b++ {
		today, ok := c.BatchTime(pm, device, 1, b, blocks[0], blocks[1])
		if !ok || len(pm.Blocks) < blocks[1] {
			break
		}
		latencies = append(latencies, today.Median)
	}
	return latencies
}

// isOnWholeDevice reports whether a measurement is of a whole device. Its Share is the v of a share 1/v of a device.
func isOnWholeDevice(measurement *formats.Measurement) bool { return measurement.Share <= 1 }

// modelMemory returns the bytes that a whole model needs on a kind of devices: the most that was measured on a whole
// device, or else its weights.
func (c *gearChecker) modelMemory(model, device string) int64 {
	pm := c.ProfileModel(model)
	measured, weightBytes := int64(0), int64(0)
	for i := range pm.Measurements {
		if ms := &pm.Measurements[i]; ms.Device == device && isOnWholeDevice(ms) {
			measured = max(measured, ms.MemoryBytes)
		}
	}
	for i := range pm.Blocks {
		weightBytes += pm.Blocks[i].WeightBytes
	}
	if measured > 0 {
		return measured
	}
	return weightBytes
}

// hasStages reports whether a model of the plan runs in several stages.
func (c *gearChecker) hasStages() bool {
	for i := range c.Plan.Deployment {
		if slices.ContainsFunc(c.Plan.Deployment[i].Pipelines, func(l formats.Pipeline) bool { return len(l.Stages) > 1 }) {
			return true
		}
	}
	return false
}
