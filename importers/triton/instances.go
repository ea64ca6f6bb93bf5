package triton

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/triton"
	"inferplan/formats/triton/configpb"
)

// instances are the instances of a model on one device.
type instances struct {
	device triton.Device
	count  int
	share  int // v of the share 1/v of the device that each has; 0 if the configuration does not say it
}

// maxInstances bounds the instances of a group: more are a mistake.
const maxInstances = 1024

// instancesOf returns the instances of a model on its host.
func (r *reader) instancesOf(m *triton.Model, host *triton.Host) ([]instances, error) {
	groups := m.Config.InstanceGroup
	if len(groups) == 0 {
		groups = []*configpb.ModelInstanceGroup{{}}
	}
	var list []instances
	for i, g := range groups {
		path := fmt.Sprintf("instance_group[%d]", i)
		if g.Count < 0 || g.Count > maxInstances {
			return nil, &document.Error{File: m.File, Path: path + ".count", Found: fmt.Sprint(g.Count), Expected: fmt.Sprintf("1 to %d", maxInstances)}
		}
		if g.Passive {
			continue // it takes no requests
		}
		placed, err := r.groupInstances(m, g, host, path)
		if err != nil {
			return nil, err
		}
		list = append(list, placed...)
	}
	return list, nil
}

// groupInstances returns the instances of one group. Without a kind they are on GPUs, where the host has some.
func (r *reader) groupInstances(m *triton.Model, g *configpb.ModelInstanceGroup, host *triton.Host, path string) ([]instances, error) {
	kind := g.Kind
	if kind == configpb.ModelInstanceGroup_KIND_AUTO {
		kind = configpb.ModelInstanceGroup_KIND_GPU
		if len(g.Gpus) == 0 && len(host.GPUs) == 0 {
			kind = configpb.ModelInstanceGroup_KIND_CPU
		}
	}
	switch kind {
	case configpb.ModelInstanceGroup_KIND_CPU:
		count := int(g.Count)
		if count == 0 {
			count = 1
			if isOnnx(m.Config) {
				count = 2
			}
		}
		return r.onThreads(m, g.Name, count, host, path)
	case configpb.ModelInstanceGroup_KIND_GPU:
		return r.onGPUs(m, g, host, path)
	}
	return nil, &document.Error{File: m.File, Path: path + ".kind", Found: kind.String(), Expected: "KIND_GPU or KIND_CPU", Hint: "say where the model's instances are, as they use devices that are planned"}
}

// isOnnx reports whether ONNX Runtime executes a model.
func isOnnx(c *configpb.ModelConfig) bool {
	return c.Backend == triton.OnnxBackend || c.Platform == triton.OnnxPlatform || c.Backend == "" && c.Platform == "" && cmp.Or(c.DefaultModelFilename, triton.OnnxFile) == triton.OnnxFile
}

// onGPUs returns the instances of a group on GPUs: on all of the host, if the group names none.
func (r *reader) onGPUs(m *triton.Model, g *configpb.ModelInstanceGroup, host *triton.Host, path string) ([]instances, error) {
	gpus := slices.Clone(g.Gpus)
	if len(gpus) == 0 {
		for i := range host.GPUs {
			gpus = append(gpus, int32(i))
		}
	}
	if len(gpus) == 0 {
		return nil, &document.Error{File: m.File, Path: path, Found: "instances on GPUs", Expected: "KIND_CPU: the cluster has no GPUs on " + host.Name}
	}
	named, share, _ := triton.ParseGroupName(g.Name)
	var list []instances
	for _, n := range gpus {
		if n < 0 || int(n) >= len(host.GPUs) {
			return nil, &document.Error{File: m.File, Path: path + ".gpus", Found: fmt.Sprint(n), Expected: fmt.Sprintf("0 to %d: the cluster has %d GPUs on %s", len(host.GPUs)-1, len(host.GPUs), host.Name)}
		}
		d := host.GPUs[n]
		placed := instances{device: d, count: int(max(g.Count, 1))}
		switch {
		case r.pools[d.Pool].TimeShared():
			if placed.count > 1 {
				r.note("%s: the %d instances on a %s count as one, because stages take turns on these devices (sharing: time)", m.Config.Name, placed.count, r.pools[d.Pool].Device)
			}
			placed.count, placed.share = 1, 1
		case named == r.pools[d.Pool].Device:
			placed.share = share
		}
		list = append(list, placed)
	}
	return list, nil
}

// onThreads returns instances on sets of CPU threads of the host, which Triton does not number: on those with the
// fewest instances. The name of the group, or the threads of the model, say of which kind they are, else the first.
func (r *reader) onThreads(m *triton.Model, groupName string, count int, host *triton.Host, path string) ([]instances, error) {
	if len(host.CPUs) == 0 {
		return nil, &document.Error{File: m.File, Path: path, Found: "instances on CPUs", Expected: "KIND_GPU: the cluster has no CPU devices on " + host.Name}
	}
	named, _, _ := triton.ParseGroupName(groupName)
	threads, _ := strconv.Atoi(m.Config.Parameters[triton.ThreadsOption].GetStringValue())
	pool := host.CPUs[0].Pool
	for _, d := range slices.Backward(host.CPUs) { // the first that fits counts
		n, _ := formats.CPUThreads(r.pools[d.Pool].Device)
		if r.pools[d.Pool].Device == named || named == "" && threads > 0 && n == threads {
			pool = d.Pool
		}
	}
	devices := slices.DeleteFunc(slices.Clone(host.CPUs), func(d triton.Device) bool { return d.Pool != pool })
	slices.SortStableFunc(devices, func(a, b triton.Device) int { return cmp.Compare(r.onCPU[a], r.onCPU[b]) })
	switch kind := r.pools[pool].Device; {
	case count <= len(devices):
		devices = devices[:count]
	case !r.pools[pool].TimeShared():
		return nil, &document.Error{File: m.File, Path: path + ".count", Found: fmt.Sprint(count), Expected: fmt.Sprintf("at most the %d %s of %s", len(devices), kind, host.Name)}
	default:
		r.note("%s: its %d instances take turns on the %d %s of the cluster", m.Config.Name, count, len(devices), kind)
	}
	var list []instances
	for _, d := range devices {
		r.onCPU[d]++
		list = append(list, instances{device: d, count: 1, share: 1})
	}
	return list, nil
}

// setShares gives the instances without a share one: that of a device which all instances on it divide evenly.
func (r *reader) setShares() {
	onDevice := map[triton.Device]int{}
	for _, p := range r.parts {
		for _, in := range p.instances {
			onDevice[in.device] += in.count
		}
	}
	for _, p := range r.parts {
		for i := range p.instances {
			if in := &p.instances[i]; in.share == 0 {
				in.share = onDevice[in.device]
			}
		}
	}
}
