package triton

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"inferplan/engine"
	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/triton"
	"inferplan/formats/triton/configpb"
)

// dataTypes are Triton's names of element types.
var dataTypes = map[engine.DType]configpb.DataType{
	engine.F32: configpb.DataType_TYPE_FP32, engine.F16: configpb.DataType_TYPE_FP16, engine.BF16: configpb.DataType_TYPE_BF16, engine.F64: configpb.DataType_TYPE_FP64,
	engine.I64: configpb.DataType_TYPE_INT64, engine.I32: configpb.DataType_TYPE_INT32, engine.I16: configpb.DataType_TYPE_INT16, engine.I8: configpb.DataType_TYPE_INT8,
	engine.U64: configpb.DataType_TYPE_UINT64, engine.U32: configpb.DataType_TYPE_UINT32, engine.U16: configpb.DataType_TYPE_UINT16, engine.U8: configpb.DataType_TYPE_UINT8,
	engine.Bool: configpb.DataType_TYPE_BOOL,
}

// partConfig returns the configuration of part k of a variant. groups are its instances on the host, and share is their
// part of all its instances.
func (x *exporter) partConfig(v *variant, k int, groups []*configpb.ModelInstanceGroup, share float64) *configpb.ModelConfig {
	p := &v.parts[k]
	c := &configpb.ModelConfig{
		Name: p.name, Backend: triton.OnnxBackend, Platform: triton.OnnxPlatform, DefaultModelFilename: triton.OnnxFile, InstanceGroup: groups,
		Parameters: map[string]*configpb.ModelParameter{},
	}
	v.setBoundary(c, p.inputs, p.outputs)
	if c.MaxBatchSize > 0 {
		c.SchedulingChoice = &configpb.ModelConfig_DynamicBatching{DynamicBatching: v.dynamicBatching(x.isPool, share)}
	}

	// How the runtime executes it.
	if p.threads > 0 {
		setParameter(c, triton.ThreadsOption, strconv.Itoa(p.threads))
	}
	if p.accelerator != nil {
		c.Optimization = &configpb.ModelOptimizationPolicy{ExecutionAccelerators: &configpb.ModelOptimizationPolicy_ExecutionAccelerators{
			GpuExecutionAccelerator: []*configpb.ModelOptimizationPolicy_ExecutionAccelerators_Accelerator{p.accelerator},
		}}
	}

	// What of the plan it is.
	setParameter(c, triton.ModelParameter, v.deployed.Model)
	if v.deployed.Class != "" {
		setParameter(c, triton.ClassParameter, v.deployed.Class)
	}
	if len(v.parts) > 1 {
		setParameter(c, triton.BlocksParameter, fmt.Sprintf("%d-%d", p.spec.From, p.spec.To))
		setParameter(c, triton.PipelineParameter, strconv.Itoa(v.pipeline))
	}
	return c
}

func setParameter(c *configpb.ModelConfig, key, value string) {
	c.Parameters[key] = &configpb.ModelParameter{StringValue: value}
}

// setBoundary sets the inputs and outputs of a configuration, and the largest batch. A model without a dimension for
// the batch gets none.
func (v *variant) setBoundary(c *configpb.ModelConfig, inputs, outputs []engine.Spec) {
	hasBatch := !v.deployed.HasNoBatchAxis()
	if hasBatch {
		c.MaxBatchSize = int32(v.batch)
	}
	for _, s := range inputs {
		dims, reshape := tensorDims(s, hasBatch)
		c.Input = append(c.Input, &configpb.ModelInput{Name: s.Name, DataType: dataTypes[s.Type], Dims: dims, Reshape: reshape})
	}
	for _, s := range outputs {
		dims, reshape := tensorDims(s, hasBatch)
		c.Output = append(c.Output, &configpb.ModelOutput{Name: s.Name, DataType: dataTypes[s.Type], Dims: dims, Reshape: reshape})
	}
}

// tensorDims returns the dimensions of a tensor without the batch, of which unknown ones are -1. If there are none left, it returns
// one of size 1, which Triton asks for, and the reshape that takes it away.
func tensorDims(s engine.Spec, hasBatch bool) ([]int64, *configpb.ModelTensorReshape) {
	dims := slices.Clone(s.Shape)
	if hasBatch && len(dims) > 0 {
		dims = dims[1:]
	}
	for i := range dims {
		if dims[i] < 1 {
			dims[i] = -1
		}
	}
	if len(dims) == 0 {
		return []int64{1}, &configpb.ModelTensorReshape{}
	}
	return dims, nil
}

// ensembleConfig returns the ensemble of a variant of several parts: each takes the tensors of the cut before it, by
// position.
func (v *variant) ensembleConfig() *configpb.ModelConfig {
	c := &configpb.ModelConfig{Name: v.name, Platform: triton.EnsembleWord}
	last := len(v.parts) - 1
	v.setBoundary(c, v.parts[0].inputs, v.parts[last].outputs)
	ensemble := &configpb.ModelEnsembling{}
	names := document.Map(v.parts[0].inputs, func(s *engine.Spec) string { return s.Name })
	for k := range v.parts {
		p := &v.parts[k]
		step := &configpb.ModelEnsembling_Step{ModelName: p.name, ModelVersion: -1, InputMap: map[string]string{}, OutputMap: map[string]string{}}
		for i, s := range p.inputs {
			step.InputMap[s.Name] = names[i]
		}
		names = document.Map(p.outputs, func(s *engine.Spec) string {
			if k == last {
				return s.Name
			}
			return fmt.Sprintf("cut%d/%s", k+1, s.Name)
		})
		for i, s := range p.outputs {
			step.OutputMap[s.Name] = names[i]
		}
		ensemble.Step = append(ensemble.Step, step)
	}
	c.SchedulingChoice = &configpb.ModelConfig_EnsembleScheduling{EnsembleScheduling: ensemble}
	return c
}

// instanceGroups returns the instances of part k of a variant on a host: those on GPUs by device, and the number of those
// on sets of CPU threads. The name of a group says which part of which kind of device an instance has.
func (x *exporter) instanceGroups(v *variant, k int, h *triton.Host) []*configpb.ModelInstanceGroup {
	var groups []*configpb.ModelInstanceGroup
	for _, s := range v.parts[k].stages {
		name := triton.GroupName(s.Device, s.Share)
		replicas := replicasByDevice(s)
		replicasOn := func(d triton.Device) int {
			if x.plan.Pools[d.Pool].Device != s.Device || !x.holdsAtStart(v.deployed.Model, d) {
				return 0
			}
			return replicas[d.Number]
		}

		// Sets of CPU threads are not numbered.
		onCPUs := 0
		for _, d := range h.CPUs {
			onCPUs += replicasOn(d)
		}
		if onCPUs > 0 {
			groups = append(groups, &configpb.ModelInstanceGroup{Name: name, Kind: configpb.ModelInstanceGroup_KIND_CPU, Count: int32(onCPUs)})
		}

		// GPUs with as many instances are in one group.
		gpus := map[int][]int32{} // by number of instances
		for i, d := range h.GPUs {
			if n := replicasOn(d); n > 0 {
				gpus[n] = append(gpus[n], int32(i))
			}
		}
		for _, n := range slices.SortedFunc(maps.Keys(gpus), func(a, b int) int { return cmp.Compare(gpus[a][0], gpus[b][0]) }) {
			groups = append(groups, &configpb.ModelInstanceGroup{Name: name, Kind: configpb.ModelInstanceGroup_KIND_GPU, Count: int32(n), Gpus: gpus[n], RateLimiter: x.turns(s.Device)})
		}
	}
	return groups
}

// holdsAtStart reports whether a device holds a placed model at the start. In workflows, models are placed on all devices
// that may load them, and the residents of a module are numbered through all pools.
func (x *exporter) holdsAtStart(model string, d triton.Device) bool {
	flow := formats.FlowOf(x.plan)
	if flow == nil || !flow.Workflow() {
		return true
	}
	number := d.Number
	for i := range d.Pool {
		number += x.plan.Pools[i].Count
	}
	module := document.First(flow.Modules, func(m *formats.FlowModule) bool { return m.Model == model })
	return module != nil && slices.Contains(module.Resident, number)
}

// turns returns the resource of a device whose stages take turns: each instance there needs the one that the device
// has. On other kinds of devices it returns nil.
func (x *exporter) turns(device string) *configpb.ModelRateLimiter {
	pool := document.First(x.plan.Pools, func(p *formats.Pool) bool { return p.Device == device })
	if !pool.TimeShared() {
		return nil
	}
	x.takesTurns = true
	return &configpb.ModelRateLimiter{Resources: []*configpb.ModelRateLimiter_Resource{{Name: "device", Count: 1}}}
}

// replicasByDevice returns the replicas of a stage by the number of their device.
func replicasByDevice(s *formats.Stage) map[int]int {
	replicas := map[int]int{}
	for _, run := range s.Placement {
		for n := range run.DeviceCount() {
			replicas[run.FirstDevice+n] += min(run.PerDevice, run.Replicas-n*run.PerDevice)
		}
	}
	return replicas
}
