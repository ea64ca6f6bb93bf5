package verify

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/recompute"
)

// readDeployment reads where models run and how long they take, and checks the memory of every device. It returns
// false if a stage is on devices that do not exist.
func (c *checker) deployed(g *gears) bool {
	// Stage by stage.
	memory := map[string]map[int]int64{}
	ok := true
	for i := range c.Plan.Deployment {
		var devices []replica
		var planned, today [][]time.Duration
		for n := range c.Plan.Deployment[i].Pipelines {
			chains := make([]replica, c.Plan.Deployment[i].Pipelines[n].Chains())
			for k := range c.Plan.Deployment[i].Pipelines[n].Stages {
				on, was, is, fine := c.stageOn(g, i, n, k, memory)
				for r := range chains {
					if each := len(chains) / max(1, len(on)); r/max(1, each) < len(on) {
						at := on[r/max(1, each)]
						at.stage = len(planned)
						chains[r].pipeline, chains[r].on = n, append(chains[r].on, at)
					}
				}
				planned, today = append(planned, was), append(today, is)
				ok = ok && fine
			}
			devices = append(devices, chains...)
		}
		g.devices, g.planned, g.today = append(g.devices, devices), append(g.planned, planned), append(g.today, today)
	}

	// Memory.
	for i := range c.Cluster.Pools {
		pool := &c.Cluster.Pools[i]
		for d := range pool.Count {
			if used := memory[pool.Device][d]; pool.Memory > 0 && used > int64(pool.Memory) {
				c.Fail("memory", "deployment", fmt.Sprintf("%d bytes on device %d", used, d), fmt.Sprintf("at most %d", int64(pool.Memory)),
					"the models placed on %s number %d do not fit its memory together", pool.Device, d)
			}
		}
	}

	// Changed pools.
	for i := range c.Plan.Pools {
		if now := c.Pool(c.Plan.Pools[i].Device); now == nil || now.Count != c.Plan.Pools[i].Count || now.Memory != c.Plan.Pools[i].Memory {
			g.moved = true
		}
	}
	return ok
}

// readStage returns the devices of a stage of a pipeline, and its latencies as planned and as they are today.
func (c *checker) stageOn(g *gears, model, n, stage int, memory map[string]map[int]int64) (devices []place, planned, today []time.Duration, ok bool) {
	m := &c.Plan.Deployment[model]
	pl := &m.Pipelines[n]
	s := &pl.Stages[stage]
	path := fmt.Sprintf("deployment[%d].pipelines[%d].stages[%d]", model, n, stage)
	devices, ok = c.places(m, pl, s, path, memory)
	for _, t := range s.InferUS {
		planned = append(planned, t.D())
	}

	// Today's latencies, of a whole model or of its blocks.
	if today = c.timesOf(m.Model, s.Device); len(pl.Stages) > 1 {
		today = c.partOf(c.ProfileModel(m.Model), s.Device, s.Blocks, len(today))
		if now := c.Pipeline(m, pl); s.Cut != nil && now.Known {
			c.Cut(m, pl, s, &now.Stages[stage], path)
		}
	}
	if c.ProfileModel(m.Model) != nil && len(today) < pl.Batch {
		c.Fail("measurement", path, fmt.Sprintf("%s, batch %d", s.Device, pl.Batch), "a measurement of it", "the profile does not say what %s costs there", m.Model)
	}
	if len(today) < pl.Batch {
		today = planned
	}
	today = today[:pl.Batch]

	// Report the first latency that has changed.
	for b := range planned {
		if recompute.Moved(planned[b], today[b]) {
			g.moved, g.slower = true, true
			c.Warn("latency", fmt.Sprintf("%s.infer_us[%d]", path, b), s.InferUS[b].String(), document.Micros(today[b]).String(),
				"%s on %s at batch %d takes %s today", m.Model, s.Device, b+1, recompute.Change(planned[b], today[b]))
			break
		}
	}
	return devices, planned, today, ok
}

// stageDevices returns the devices of a stage, and adds the stage's bytes to their memory.
func (c *checker) places(m *formats.Deployed, pl *formats.Pipeline, s *formats.Stage, path string, memory map[string]map[int]int64) (devices []place, ok bool) {
	// List the devices, one per replica.
	for _, at := range s.Placement {
		for k := range at.Replicas {
			devices = append(devices, place{device: at.First + k/max(1, at.PerDevice), kind: s.Device})
		}
	}
	if len(pl.Stages) > 1 { // replicas of chains take devices by rising number
		slices.SortStableFunc(devices, func(a, b place) int { return cmp.Compare(a.device, b.device) })
	}

	// Check that they exist, and add up their memory.
	pool := c.Pool(s.Device)
	ok = true
	for _, r := range devices {
		if d := r.device; pool != nil && (d < 0 || d >= pool.Count) {
			c.Fail("placement", path+".placement", fmt.Sprintf("device %d", d), fmt.Sprintf("0 to %d", pool.Count-1), "%s number %d is not there", s.Device, d)
			ok = false
			break
		}
		if memory[s.Device] == nil {
			memory[s.Device] = map[int]int64{}
		}
		need := c.Memory(m, pl, s)
		memory[s.Device][r.device] += need.Weights + need.Rest
	}
	if len(devices) != s.Replicas {
		c.Fail("placement", path+".placement", fmt.Sprintf("%d replicas", len(devices)), fmt.Sprint(s.Replicas), "the placement does not hold the model's replicas")
		ok = false
	}
	return devices, ok
}

// deviceKinds returns the kinds of the plan's devices.
func (c *documents) kinds() []string {
	var out []string
	for i := range c.Plan.Pools {
		out = append(out, c.Plan.Pools[i].Device)
	}
	return out
}

// fastestTimes returns a model's latencies, by batch, on the kind that is fastest at each batch.
func (c *documents) fastestOf(model string) []time.Duration {
	var out []time.Duration
	for _, kind := range c.kinds() {
		for b, t := range c.timesOf(model, kind) {
			if b == len(out) {
				out = append(out, t)
			}
			out[b] = min(out[b], t)
		}
	}
	return out
}

// latenciesOn returns a model's latencies today on a kind of devices, by batch, up to the largest batch that the
// plan's options allow. If none was measured, it returns nil.
func (c *documents) timesOf(model, device string) []time.Duration {
	pm := c.ProfileModel(model)
	if pm == nil {
		return nil
	}
	most := 0
	for i := range pm.Measurements {
		if ms := &pm.Measurements[i]; ms.Device == device && ms.Share <= 1 {
			most = max(most, ms.Batch)
		}
	}
	if limit := c.Plan.Options.Whole("max-batch"); limit > 0 {
		most = min(most, limit)
	}
	return c.partOf(pm, device, [2]int{0, len(pm.Blocks)}, most)
}

// rateTimes returns the batch times of a model that rates are computed with: means, if the plan's rates are by
// means and the profile has all of them, and else the given latencies.
func (c *documents) runsOf(model, device string, times []time.Duration) []time.Duration {
	pm := c.ProfileModel(model)
	var out []time.Duration
	for b := range times {
		today, ok := c.Taken(pm, device, 1, b+1, 0, len(pm.Blocks))
		if !ok || today.Mean == 0 || c.Plan.RatesBy != formats.RatesByMean {
			return times
		}
		out = append(out, today.Mean)
	}
	return out
}

// blockLatencies returns today's latencies of some blocks of a model, by batch, up to a batch size.
func (c *documents) partOf(pm *formats.ProfileModel, device string, blocks [2]int, most int) []time.Duration {
	var out []time.Duration
	for b := 1; b <= most && pm != nil; b++ {
		today, ok := c.Taken(pm, device, 1, b, blocks[0], blocks[1])
		if !ok || len(pm.Blocks) < blocks[1] {
			break
		}
		out = append(out, today.Infer)
	}
	return out
}

// modelMemory returns the bytes that a model needs on a kind of devices: as measured, or else its weights.
func (c *documents) weights(model, device string) int64 {
	pm := c.ProfileModel(model)
	most, sum := int64(0), int64(0)
	for i := range pm.Measurements {
		if ms := &pm.Measurements[i]; ms.Device == device && ms.Share <= 1 {
			most = max(most, ms.MemoryBytes)
		}
	}
	for i := range pm.Blocks {
		sum += pm.Blocks[i].WeightBytes
	}
	if most > 0 {
		return most
	}
	return sum
}

// hasStages reports whether a model of the plan runs in several stages.
func (c *documents) chained() bool {
	for i := range c.Plan.Deployment {
		if slices.ContainsFunc(c.Plan.Deployment[i].Pipelines, func(l formats.Pipeline) bool { return len(l.Stages) > 1 }) {
			return true
		}
	}
	return false
}
