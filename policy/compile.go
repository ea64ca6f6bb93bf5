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
	compiler := compiler{plan: plan}
	if err := compiler.compile(); err != nil {
		return nil, fmt.Errorf("compiling the plan: %w", err)
	}
	return compiler.builder.BuildTables(), nil
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

// compile makes the run-time tables of the plan: it adds its pools, its models with their pipelines, and its devices,
// in this order. It returns the first error of the plan.
func (c *compiler) compile() error {
	if len(c.plan.Deployment) == 0 {
		return &document.Error{Path: "deployment", Found: "no model", Expected: "at least one"}
	}
	if err := c.addPools(); err != nil {
		return err
	}
	for model := range c.plan.Deployment {
		if err := c.addModel(model); err != nil {
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
	for i, pool := range c.plan.Pools {
		path := fmt.Sprintf("pools[%d]", i)
		if _, repeated := c.pools[pool.Device]; repeated {
			return &document.Error{Path: path + ".device", Found: strconv.Quote(pool.Device) + " a second time", Expected: "each device kind once"}
		}
		if pool.Count < 0 {
			return &document.Error{Path: path + ".count", Found: strconv.Itoa(pool.Count), Expected: "a count of devices"}
		}
		if pool.NICGbps < 0 || pool.NICEfficiency < 0 || math.IsNaN(pool.NICGbps) || math.IsInf(pool.NICGbps, 0) {
			return &document.Error{Path: path + ".nic_gbps", Found: fmt.Sprint(pool.NICGbps), Expected: "a rate of at least 0"}
		}
		c.pools[pool.Device] = i
	}
	return nil
}

// addModel adds a model of the plan, by its index in the deployment, with its SLO, its percentile and its pipelines.
// It returns an error if it has no SLO or comes twice with the same class.
func (c *compiler) addModel(index int) error {
	model, promise := &c.plan.Deployment[index], c.plan.PromiseFor(index)
	path := fmt.Sprintf("deployment[%d]", index)
	if promise.SLOUS <= 0 {
		return &document.Error{Path: path, Found: "an SLO of " + promise.SLOUS.D().String(), Expected: "more than 0"}
	}

	// Each model and class may come once.
	for earlier := range index {
		if c.plan.Deployment[earlier].Key() == model.Key() {
			return &document.Error{Path: path + ".model", Found: model.Key().String() + " a second time", Expected: "each model and class once"}
		}
	}

	// Add the model, then its pipelines.
	percentile, err := ParsePercentile(promise.Percentile)
	if err != nil {
		return &document.Error{Path: path, Found: "the percentile " + strconv.Quote(promise.Percentile), Expected: "a percentile between p0 and p100, such as p99"}
	}
	c.builder.AddModel(Model{Name: model.Model, Class: model.Class, SLO: promise.SLOUS.D(), Percentile: percentile, RPS: promise.RPS})
	for pipeline := range model.Pipelines {
		if err := c.addPipeline(&model.Pipelines[pipeline], fmt.Sprintf("%s.pipelines[%d]", path, pipeline)); err != nil {
			return err
		}
	}
	return nil
}

// ParsePercentile returns the value of a percentile such as p99, which is 0.99. An empty text stands for p99.
func ParsePercentile(percentile string) (float64, error) {
	if percentile == "" {
		return 0.99, nil
	}
	return document.ParsePercentile(percentile)
}

// addPipeline adds a pipeline of the latest model with its stages: their times by batch size, the transfers into
// them, and their devices. path is the field of the plan that errors name.
func (c *compiler) addPipeline(pipeline *formats.Pipeline, path string) error {
	if pipeline.Batch < 1 {
		return &document.Error{Path: path + ".batch", Found: strconv.Itoa(pipeline.Batch), Expected: "at least 1"}
	}
	if len(pipeline.Stages) == 0 {
		return &document.Error{Path: path + ".stages", Found: "no stage", Expected: "at least one"}
	}
	c.builder.AddPipeline(pipeline.Batch, pipeline.RPS)
	for stageIndex := range pipeline.Stages {
		stagePlan := &pipeline.Stages[stageIndex]
		stagePath := fmt.Sprintf("%s.stages[%d]", path, stageIndex)
		pool, ok := c.pools[stagePlan.Device]
		if !ok {
			return &document.Error{Path: stagePath + ".device", Found: strconv.Quote(stagePlan.Device), Expected: "a device kind of pools"}
		}

		// Check the stage and its times.
		if len(stagePlan.InferUS) != pipeline.Batch {
			return &document.Error{Path: stagePath + ".infer_us", Found: fmt.Sprintf("%d values", len(stagePlan.InferUS)), Expected: fmt.Sprintf("%d, one for each batch up to the planned", pipeline.Batch)}
		}

		// Set the times of inference by batch size.
		stage := Stage{FirstBlock: int32(stagePlan.Blocks[0]), LastBlock: int32(stagePlan.Blocks[1]), Infer: make([]time.Duration, pipeline.Batch)}
		for sizeIndex, micros := range stagePlan.InferUS {
			if micros <= 0 {
				return &document.Error{Path: fmt.Sprintf("%s.infer_us[%d]", stagePath, sizeIndex), Found: micros.D().String(), Expected: "more than 0"}
			}
			stage.Infer[sizeIndex] = micros.D()
		}

		// A batch size was measured if the lower and the upper bound of its time are equal; other times are interpolated.
		for sizeIndex, timeRange := range stagePlan.InferRangeUS {
			if timeRange[0] == timeRange[1] && sizeIndex < pipeline.Batch {
				stage.MeasuredBatches = append(stage.MeasuredBatches, sizeIndex+1)
			}
		}

		// Add the times when serving, the transfer into the stage, and its devices.
		if err := setServingTimes(&stage, stagePlan, pipeline.Batch, stagePath); err != nil {
			return err
		}
		if stageIndex > 0 {
			if err := c.addTransfer(&stage, pipeline, stageIndex, path); err != nil {
				return err
			}
		}
		if err := c.placeStage(c.builder.AddStage(stage), pool, stagePlan, stagePath); err != nil {
			return err
		}
	}
	return nil
}

// setServingTimes sets the times that a stage takes on average while serving, if the plan has them, by batch size up
// to batch, and the penalty for a device that was idle before. Without them the planned times count. path is the
// field of the plan that errors name.
func setServingTimes(stage *Stage, stagePlan *formats.Stage, batch int, path string) error {
	stage.IdlePenalty = stagePlan.IdleUS.D()
	if stage.IdlePenalty < 0 {
		return &document.Error{Path: path + ".idle_us", Found: stage.IdlePenalty.String(), Expected: "at least 0"}
	}
	if stagePlan.MeanUS == nil {
		return nil
	}
	if len(stagePlan.MeanUS) != batch {
		return &document.Error{Path: path + ".mean_us", Found: fmt.Sprintf("%d values", len(stagePlan.MeanUS)), Expected: fmt.Sprintf("%d, one for each batch up to the planned", batch)}
	}
	for sizeIndex, micros := range stagePlan.MeanUS {
		if micros <= 0 {
			return &document.Error{Path: fmt.Sprintf("%s.mean_us[%d]", path, sizeIndex), Found: micros.D().String(), Expected: "more than 0"}
		}
		stage.Mean = append(stage.Mean, micros.D())
	}
	return nil
}

// addTransfer sets the times, by batch size, of the transfer into a stage of a pipeline. What is transferred is the
// cut: the tensors that the stage before sends. The times are the plan's or, if it has none, the bytes over the rate of
// the slower network card. path is the field of the plan that errors name.
func (c *compiler) addTransfer(stage *Stage, pipeline *formats.Pipeline, stageIndex int, path string) error {
	// Find the cut between the stages, which the plan lists at the sender.
	sender, receiver := &pipeline.Stages[stageIndex-1], &pipeline.Stages[stageIndex]
	cutPath := fmt.Sprintf("%s.stages[%d].cut", path, stageIndex-1)
	if sender.Cut == nil {
		return &document.Error{Path: cutPath, Found: "nothing", Expected: "what crosses to the next stage"}
	}
	stage.CutBytes = sender.Cut.Bytes
	stage.FP16In = strings.EqualFold(sender.Cut.DType, "FP16")

	// Set its transfer time by batch size: the plan's, or the time at the rate of the slower NIC.
	transferTimes := make([]time.Duration, pipeline.Batch)
	switch {
	case len(sender.Cut.TransferUS) == pipeline.Batch:
		for sizeIndex, micros := range sender.Cut.TransferUS {
			if micros < 0 {
				return &document.Error{Path: fmt.Sprintf("%s.transfer_us[%d]", cutPath, sizeIndex), Found: micros.D().String(), Expected: "at least 0"}
			}
			transferTimes[sizeIndex] = micros.D()
		}
	case len(sender.Cut.TransferUS) == 0:
		sampleTime := TransferTime(sender.Cut.Bytes, slowerRate(c.plan.Pools[c.pools[sender.Device]].NICRate(), c.plan.Pools[c.pools[receiver.Device]].NICRate()))
		for sizeIndex := range transferTimes {
			transferTimes[sizeIndex] = time.Duration(sizeIndex+1) * sampleTime
		}
	default:
		return &document.Error{Path: cutPath + ".transfer_us", Found: fmt.Sprintf("%d values", len(sender.Cut.TransferUS)), Expected: fmt.Sprintf("%d, one for each batch up to the planned", pipeline.Batch)}
	}

	// Set the times if any is positive. Otherwise both stages are on one host, and the stage waits for no transfer.
	for _, duration := range transferTimes {
		if duration > 0 {
			stage.Xfer = transferTimes
			return nil
		}
	}
	return nil
}

// slowerRate returns the lower of two NIC rates in Gbit/s, where 0 stands for no NIC and does not count.
func slowerRate(first, second float64) float64 {
	if first == 0 || second == 0 {
		return max(first, second)
	}
	return min(first, second)
}

// placeStage adds the placements of a stage to the devices of its pool (an index). A share of n means that a device
// is divided into n parts, of which the stage takes one for each replica. It returns an error, which names the field
// stagePath, if the placements do not fit the pool or the number of replicas.
func (c *compiler) placeStage(stage int32, pool int, stagePlan *formats.Stage, stagePath string) error {
	// Check the share.
	poolRow := &c.plan.Pools[pool]
	isShared := poolRow.TimeShared()
	if stagePlan.Share < 1 || isShared && stagePlan.Share != 1 {
		return &document.Error{Path: stagePath + ".share", Found: strconv.Itoa(stagePlan.Share), Expected: "1 or more; 1 on a time-shared pool"}
	}

	// Add the devices of each placement.
	total := 0
	for i, placement := range stagePlan.Placement {
		path := fmt.Sprintf("%s.placement[%d]", stagePath, i)
		if placement.FirstDevice < 0 || placement.Replicas < 0 || placement.PerDevice < 1 || placement.PerDevice > stagePlan.Share {
			return &document.Error{Path: path, Found: fmt.Sprintf("first %d, per_device %d, replicas %d", placement.FirstDevice, placement.PerDevice, placement.Replicas),
				Expected: fmt.Sprintf("first and replicas of at least 0, per_device from 1 to %d", stagePlan.Share)}
		}
		if lastDevice := placement.FirstDevice + (placement.Replicas-1)/placement.PerDevice; placement.Replicas > 0 && lastDevice >= poolRow.Count {
			return &document.Error{Path: path, Found: fmt.Sprintf("device %d", lastDevice), Expected: fmt.Sprintf("at most %d: pool %s has %d devices", poolRow.Count-1, poolRow.Device, poolRow.Count)}
		}
		total += placement.Replicas
		for replica := 0; replica < placement.Replicas; replica++ {
			c.devices[pool] = addDevice(c.devices[pool], placement.FirstDevice+replica/placement.PerDevice, stagePlan.Share, stage, isShared)
		}
	}

	// Check that they are all of the stage's replicas.
	if total != stagePlan.Replicas || total == 0 {
		return &document.Error{Path: stagePath + ".placement", Found: fmt.Sprintf("%d replicas", total), Expected: fmt.Sprintf("%d, at least one", max(1, stagePlan.Replicas))}
	}
	return nil
}

// addDevice puts a stage on the physical device gpu of a pool and returns the pool's devices. The stage gets a new
// device, which is 1/share of the physical one. On a time-shared pool (isShared) all stages on a physical device share
// one device, which is added only for the first of them.
func addDevice(devices []poolDevice, gpu, share int, stage int32, isShared bool) []poolDevice {
	if isShared {
		for i := range devices {
			if devices[i].gpu == gpu {
				devices[i].stages = append(devices[i].stages, stage)
				return devices
			}
		}
	}
	return append(devices, poolDevice{gpu: gpu, sharesPerDevice: share, stages: []int32{stage}})
}

// numberDevices adds the devices of all pools, with the stages on them, to the builder, which numbers devices,
// nodes and links. It is called last, when all placements are known. Shares of a device that exceed one whole are
// an error.
func (c *compiler) numberDevices() error {
	for poolIndex := range c.plan.Pools {
		pool := &c.plan.Pools[poolIndex]

		// Sort the pool's devices by physical device.
		byGPU := make([][]poolDevice, pool.Count)
		for _, device := range c.devices[poolIndex] {
			byGPU[device.gpu] = append(byGPU[device.gpu], device)
		}

		// Add them with the stages on them.
		c.builder.AddKind(pool.Device, pool.Count)
		c.builder.SetNodes(pool.PerNode, pool.NICRate())
		for gpu, list := range byGPU {
			usedShare := 0.0
			for slot, device := range list {
				usedShare += 1 / float64(device.sharesPerDevice)
				index := c.builder.AddDevice(Device{Kind: int32(poolIndex), Share: int32(device.sharesPerDevice), GPU: int32(gpu), Slot: int32(slot)})
				for _, stage := range device.stages {
					c.builder.PlaceStage(stage, index)
				}
			}

			// A physical device must hold its shares, apart from errors of rounding.
			if usedShare > 1+1e-9 {
				return &document.Error{Path: fmt.Sprintf("pools[%d]", poolIndex), Found: fmt.Sprintf("placements that take %.3g of device %d of %s", usedShare, gpu, pool.Device),
					Expected: "at most one whole device", Hint: "placements on an exclusive pool must not overlap"}
			}
		}
	}
	return nil
}
