package check

import (
	"fmt"
	"slices"
	"strings"

	"inferplan/formats"
	"inferplan/planner/lists"
)

// withCutsOf returns profile p with its models cut into the same blocks as in target, so that their blocks can be compared, and the names
// of the models that it changed. A model that p cuts elsewhere gets target's blocks, whose times are assumed to have changed as the time
// of the whole model has. A model that was not measured whole in both stays as it is. p itself does not change.
func withCutsOf(p, target *formats.Profile) (result *formats.Profile, names []string) {
	result = p
	for i := range p.Models {
		m := &p.Models[i]
		other := target.FindModel(m.Model)
		if other == nil || formats.SameCuts(m.Blocks, other.Blocks) {
			continue
		}
		measurements := measurementsAs(m, other)
		if len(measurements) == 0 {
			continue
		}
		if result == p {
			recutProfile := *p
			recutProfile.Models = slices.Clone(p.Models)
			result = &recutProfile
		}
		result.Models[i].Blocks, result.Models[i].Measurements = other.Blocks, measurements
		names = append(names, m.Model)
	}
	return result, names
}

// measurementsAs returns the measurements of model m with the blocks of other, the same model in another profile: the blocks' times of
// other, scaled by how the time of the whole model has changed. Measurements of which other has no counterpart are left out.
func measurementsAs(m, other *formats.ProfileModel) (measurements []formats.Measurement) {
	for k := range m.Measurements {
		current := m.Measurements[k]
		reference := other.FindMeasurement(current.Device, current.Share, current.Batch)
		if reference == nil || current.WholeModel == nil || reference.WholeModel == nil {
			continue
		}
		wallFactor := float64(current.WholeModel.WallUS) / float64(reference.WholeModel.WallUS)
		cpuFactor := float64(current.WholeModel.CPUUS) / float64(max(reference.WholeModel.CPUUS, 1))
		scaled := func(l formats.Latency) formats.Latency { return l.Scaled(wallFactor, cpuFactor) }
		current.Ranges = nil
		current.Blocks = lists.Map(len(reference.Blocks), func(i int) formats.Latency { return scaled(reference.Blocks[i]) })
		for _, r := range reference.Ranges {
			current.Ranges = append(current.Ranges, formats.RangeLatency{Blocks: r.Blocks, Latency: scaled(r.Latency)})
		}
		measurements = append(measurements, current)
	}
	return measurements
}

// useCutsOfPromise gives all profiles of both sides the cuts (between blocks) of the first promised one, so that their blocks can be
// compared, and returns a note that names the models which had others, or "".
func (p *profileSets) useCutsOfPromise() (note string) {
	if len(p.promised) == 0 {
		return ""
	}
	var changedModels []string
	recutAll := func(list []*formats.Profile) []*formats.Profile {
		list = slices.Clone(list)
		for i := range list {
			var names []string
			list[i], names = withCutsOf(list[i], p.promised[0])
			changedModels = append(changedModels, names...)
		}
		return list
	}
	p.current = recutAll(p.current)
	p.promised = append(p.promised[:1:1], recutAll(p.promised[1:])...) // a copy: the capacity of 1 makes append allocate
	if len(changedModels) == 0 {
		return ""
	}
	slices.Sort(changedModels)
	return fmt.Sprintf("%s: cut at other tensors than for the plan, so each block is taken to have changed as the whole model did; plan profile --cuts FILE measures with the same cuts",
		strings.Join(slices.Compact(changedModels), ", "))
}
