package policy

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
)

// Compile returns the flat tables that all kinds of plans share, which policies, the simulator and the executor
// index. The package of a kind makes the kind's own tables; package policies does both.
//
// Devices. On an exclusive pool every replica is a device of its own: slot s of physical device g, with the share
// 1/v of it. On a time-shared pool every physical device that a placement names is one device, in the lists of all
// the stages that are placed on it. Devices are numbered by pool, physical device and slot.
//
// Nodes and links. Device i of a pool is on node i / per_node of that pool. A pool with nic_gbps > 0 has one
// uplink and one downlink per node. A pool without it is on the planning host and has no links, and all such pools
// share one node.
//
// Transfers. A stage's transfer time per batch is the plan's transfer_us. If a plan has none, it is batch *
// TransferTime at the slower of the two ends. Between two devices of one node a tensor crosses no NIC: such a
// transfer takes no time and holds no link, see TransferBetween.
func Compile(plan *formats.Plan) (*Tables, error) {
	c := compiler{plan: plan}
	if err := c.compile(); err != nil {
		return nil, fmt.Errorf("compiling the plan: %w", err)
	}
	return c.builder.BuildTables(), nil
}

// TransferTime returns how long one sample's cut takes over a link: bytes * 8 divided by the rate, rounded to
// whole microseconds. A batch takes batch times as long (there is no base latency).
func TransferTime(bytes int64, gbps float64) time.Duration {
	if gbps <= 0 || bytes <= 0 {
		return 0
	}
	return time.Duration(math.Round(float64(bytes)*8/(gbps*1000))) * time.Microsecond
}

// compiler makes tables from a plan.
type compiler struct {
	plan    *formats.Plan
	builder Builder
	pools   map[string]int // index of a pool by its device kind
	devices [][]poolDevice // by pool, in the order of physical device and slot
}

// poolDevice is a device of a pool that has no number yet, with the stages placed on it.
type poolDevice struct {
	gpu, sharesPerDevice int
	stages               []int32
}

// compile makes the run-time tables of a plan: it adds its pools, its models with their pipelines, and its devices,
// in this order. It returns the first error of the plan.
func (c *compiler) compile() error {
	if len(c.plan.Deployment) == 0 {
		return &document.Error{Path: "deployment", Found: "no model", Expected: "at least one"}
	}
	if err := c.addPools(); err != nil {
		return err
	}
	for mi := range c.plan.Deployment {
		if err := c.addModel(mi); err != nil {
			return err
		}
	}
	return c.numberDevices()
}

// addPools checks the pools (devices of one kind) of a plan and indexes them by device kind. It returns an error
// for a kind that comes twice or a number out of range.
func (c *compiler) addPools() error {
	c.pools = make(map[string]int, len(c.plan.Pools))
	c.devices = make([][]poolDevice, len(c.plan.Pools))
	for i, p := range c.plan.Pools {
		path := fmt.Sprintf("pools[%d]", i)
		if _, repeated := c.pools[p.Device]; repeated {
			return &document.Error{Path: path + ".device", Found: strconv.Quote(p.Device) + " a second time", Expected: "each device kind once"}
		}
		if p.Count < 0 {
			return &document.Error{Path: path + ".count", Found: strconv.Itoa(p.Count), Expected: "a count of devices"}
		}
		if p.NICGbps < 0 || p.NICEfficiency < 0 || math.IsNaN(p.NICGbps) || math.IsInf(p.NICGbps, 0) {
			return &document.Error{Path: path + ".nic_gbps", Found: fmt.Sprint(p.NICGbps), Expected: "a rate of at least 0"}
		}
		c.pools[p.Device] = i
	}
	return nil
}

// addModel adds model mi of the plan, with its SLO, its percentile and its pipelines. It returns an error if it has
// no SLO or comes twice with the same class.
func (c *compiler) addModel(mi int) error {
	m, promise := &c.plan.Deployment[mi], c.plan.PromiseFor(mi)
	path := fmt.Sprintf("deployment[%d]", mi)
	if promise.SLOUS <= 0 {
		return &document.Error{Path: path, Found: "an SLO of " + promise.SLOUS.D().String(), Expected: "more than 0"}
	}

	// Each model and class may come once.
	for earlier := range mi {
		if c.plan.Deployment[earlier].Key() == m.Key() {
			return &document.Error{Path: path + ".model", Found: m.Key().String() + " a second time", Expected: "each model and class once"}
		}
	}

	// Add the model, then its pipelines.
	percentile, err := ParsePercentile(promise.Percentile)
	if err != nil {
		return &document.Error{Path: path, Found: "the percentile " + strconv.Quote(promise.Percentile), Expected: "a percentile between p0 and p100, such as p99"}
	}
	c.builder.AddModel(Model{Name: m.Model, Class: m.Class, SLO: promise.SLOUS.D(), Percentile: percentile, RPS: promise.RPS})
	for pi := range m.Pipelines {
		if err := c.addPipeline(&m.Pipelines[pi], fmt.Sprintf("%s.pipelines[%d]", path, pi)); err != nil {
			return err
		}
	}
	return nil
}

// ParsePercentile returns the value of a percentile such as p99. The default is p99.
func ParsePercentile(s string) (float64, error) {
	if s == "" {
		return 0.99, nil
	}
	return document.ParsePercentile(s)
}

// addPipeline adds a pipeline of the latest model with its stages: their times by batch size, the transfers into
// them, and their devices. path is the field of the plan that errors name.
func (c *compiler) addPipeline(p *formats.Pipeline, path string) error {
	if p.Batch < 1 {
		return &document.Error{Path: path + ".batch", Found: strconv.Itoa(p.Batch), Expected: "at least 1"}
	}
	if len(p.Stages) == 0 {
		return &document.Error{Path: path + ".stages", Found: "no stage", Expected: "at least one"}
	}
	c.builder.AddPipeline(p.Batch, p.RPS)
	for si := range p.Stages {
		s := &p.Stages[si]
		spath := fmt.Sprintf("%s.stages[%d]", path, si)
		pool, ok := c.pools[s.Device]
		if !ok {
			return &document.Error{Path: spath + ".device", Found: strconv.Quote(s.Device), Expected: "a device kind of pools"}
		}

		// Check the stage and its times.
		if len(s.InferUS) != p.Batch {
			return &document.Error{Path: spath + ".infer_us", Found: fmt.Sprintf("%d values", len(s.InferUS)), Expected: fmt.Sprintf("%d, one for each batch up to the planned", p.Batch)}
		}

		// Set the times of inference by batch size.
		stage := Stage{FirstBlock: int32(s.Blocks[0]), LastBlock: int32(s.Blocks[1]), Infer: make([]time.Duration, p.Batch)}
		for b, micros := range s.InferUS {
			if micros <= 0 {
				return &document.Error{Path: fmt.Sprintf("%s.infer_us[%d]", spath, b), Found: micros.D().String(), Expected: "more than 0"}
			}
			stage.Infer[b] = micros.D()
		}
		for b, r := range s.InferRangeUS {
			if r[0] == r[1] && b < p.Batch {
				stage.MeasuredBatches = append(stage.MeasuredBatches, b+1)
			}
		}

		// Add the times when serving, the transfer into the stage, and its devices.
		if err := setServingTimes(&stage, s, p.Batch, spath); err != nil {
			return err
		}
		if si > 0 {
			if err := c.addTransfer(&stage, p, si, path); err != nil {
				return err
			}
		}
		if err := c.placeStage(c.builder.AddStage(stage), pool, s, spath); err != nil {
			return err
		}
	}
	return nil
}

// setServingTimes sets the times that a stage takes on average while serving, if the plan has them, and the penalty
// for a device that was idle before. Without them the planned times count.
func setServingTimes(stage *Stage, s *formats.Stage, batch int, path string) error {
	if stage.IdlePenalty = s.IdleUS.D(); stage.IdlePenalty < 0 {
		return &document.Error{Path: path + ".idle_us", Found: stage.IdlePenalty.String(), Expected: "at least 0"}
	}
	if s.MeanUS == nil {
		return nil
	}
	if len(s.MeanUS) != batch {
		return &document.Error{Path: path + ".mean_us", Found: fmt.Sprintf("%d values", len(s.MeanUS)), Expected: fmt.Sprintf("%d, one for each batch up to the planned", batch)}
	}
	for b, micros := range s.MeanUS {
		if micros <= 0 {
			return &document.Error{Path: fmt.Sprintf("%s.mean_us[%d]", path, b), Found: micros.D().String(), Expected: "more than 0"}
		}
		stage.Mean = append(stage.Mean, micros.D())
	}
	return nil
}

// addTransfer sets the times, by batch size, of the transfer into stage si of a pipeline: the plan's times or,
// without them, the bytes at the rate of the slower network card. path is the field of the plan that errors name.
func (c *compiler) addTransfer(stage *Stage, p *formats.Pipeline, si int, path string) error {
	// Find the cut between the stages.
	sender, receiver := &p.Stages[si-1], &p.Stages[si]
	cpath := fmt.Sprintf("%s.stages[%d].cut", path, si-1)
	if sender.Cut == nil {
		return &document.Error{Path: cpath, Found: "nothing", Expected: "what crosses to the next stage"}
	}
	stage.CutBytes = sender.Cut.Bytes
	stage.FP16In = strings.EqualFold(sender.Cut.DType, "FP16")

	// Set its transfer time by batch size: the plan's, or the time at the rate of the slower NIC.
	xfer := make([]time.Duration, p.Batch)
	switch {
	case len(sender.Cut.TransferUS) == p.Batch:
		for b, micros := range sender.Cut.TransferUS {
			if micros < 0 {
				return &document.Error{Path: fmt.Sprintf("%s.transfer_us[%d]", cpath, b), Found: micros.D().String(), Expected: "at least 0"}
			}
			xfer[b] = micros.D()
		}
	case len(sender.Cut.TransferUS) == 0:
		sampleTime := TransferTime(sender.Cut.Bytes, slowerRate(c.plan.Pools[c.pools[sender.Device]].NICRate(), c.plan.Pools[c.pools[receiver.Device]].NICRate()))
		for b := range xfer {
			xfer[b] = time.Duration(b+1) * sampleTime
		}
	default:
		return &document.Error{Path: cpath + ".transfer_us", Found: fmt.Sprintf("%d values", len(sender.Cut.TransferUS)), Expected: fmt.Sprintf("%d, one for each batch up to the planned", p.Batch)}
	}

	// Keep the times if any is positive.
	for _, d := range xfer {
		if d > 0 {
			stage.Xfer = xfer
			return nil
		}
	}
	return nil // nothing to wait for: on one host
}

// slowerRate returns the lower of two NIC rates; 0 stands for no NIC.
func slowerRate(a, b float64) float64 {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// placeStage adds the placements of a stage to the devices of its pool. A share of n means that a device is divided
// into n parts, of which the stage takes one for each replica. It returns an error if the placements do not fit the
// pool or the number of replicas.
func (c *compiler) placeStage(stage int32, pool int, s *formats.Stage, spath string) error {
	// Check the share.
	p := &c.plan.Pools[pool]
	isShared := p.TimeShared()
	if s.Share < 1 || isShared && s.Share != 1 {
		return &document.Error{Path: spath + ".share", Found: strconv.Itoa(s.Share), Expected: "1 or more; 1 on a time-shared pool"}
	}

	// Add the devices of each placement.
	total := 0
	for i, pl := range s.Placement {
		path := fmt.Sprintf("%s.placement[%d]", spath, i)
		if pl.FirstDevice < 0 || pl.Replicas < 0 || pl.PerDevice < 1 || pl.PerDevice > s.Share {
			return &document.Error{Path: path, Found: fmt.Sprintf("first %d, per_device %d, replicas %d", pl.FirstDevice, pl.PerDevice, pl.Replicas),
				Expected: fmt.Sprintf("first and replicas of at least 0, per_device from 1 to %d", s.Share)}
		}
		if lastDevice := pl.FirstDevice + (pl.Replicas-1)/pl.PerDevice; pl.Replicas > 0 && lastDevice >= p.Count {
			return &document.Error{Path: path, Found: fmt.Sprintf("device %d", lastDevice), Expected: fmt.Sprintf("at most %d: pool %s has %d devices", p.Count-1, p.Device, p.Count)}
		}
		total += pl.Replicas
		for r := 0; r < pl.Replicas; r++ {
			c.devices[pool] = addDevice(c.devices[pool], pl.FirstDevice+r/pl.PerDevice, s.Share, stage, isShared)
		}
	}

	// Check that they are all of the stage's replicas.
	if total != s.Replicas || total == 0 {
		return &document.Error{Path: spath + ".placement", Found: fmt.Sprintf("%d replicas", total), Expected: fmt.Sprintf("%d, at least one", max(1, s.Replicas))}
	}
	return nil
}

// addDevice adds a stage on a physical device to a list: a new device or, on a time-shared pool, the one that is
// there.
func addDevice(list []poolDevice, gpu, share int, stage int32, isShared bool) []poolDevice {
	if isShared {
		for i := range list {
			if list[i].gpu == gpu {
				list[i].stages = append(list[i].stages, stage)
				return list
			}
		}
	}
	return append(list, poolDevice{gpu: gpu, sharesPerDevice: share, stages: []int32{stage}})
}

// numberDevices adds the devices of all pools, with the stages on them, to the builder, which numbers devices,
// nodes and links. It is called last, when all placements are known. Shares of a device that exceed one whole are
// an error.
func (c *compiler) numberDevices() error {
	for pi := range c.plan.Pools {
		p := &c.plan.Pools[pi]

		// Sort the pool's devices by physical device.
		byGPU := make([][]poolDevice, p.Count)
		for _, d := range c.devices[pi] {
			byGPU[d.gpu] = append(byGPU[d.gpu], d)
		}

		// Add them with the stages on them.
		c.builder.AddKind(p.Device, p.Count)
		c.builder.SetNodes(p.PerNode, p.NICRate())
		for gpu, list := range byGPU {
			usedShare := 0.0
			for slot, d := range list {
				usedShare += 1 / float64(d.sharesPerDevice)
				index := c.builder.AddDevice(Device{Kind: int32(pi), Share: int32(d.sharesPerDevice), GPU: int32(gpu), Slot: int32(slot)})
				for _, s := range d.stages {
					c.builder.PlaceStage(s, index)
				}
			}

			// A physical device must hold its shares.
			if usedShare > 1+1e-9 {
				return &document.Error{Path: fmt.Sprintf("pools[%d]", pi), Found: fmt.Sprintf("placements that take %.3g of device %d of %s", usedShare, gpu, p.Device),
					Expected: "at most one whole device", Hint: "placements on an exclusive pool must not overlap"}
			}
		}
	}
	return nil
}
