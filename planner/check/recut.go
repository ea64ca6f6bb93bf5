package check

import (
	"fmt"
	"slices"
	"strings"

	"inferplan/formats"
)

// withCutsOf returns a profile with the cuts of another one. Models that it cuts elsewhere get the blocks
// of the other; each block is assumed to have changed as the whole model has. A model that was not
// measured whole in both stays as it is. names lists the models that got other blocks.
func recut(p, like *formats.Profile) (out *formats.Profile, names []string) {
	out = p
	for i := range p.Models {
		m := &p.Models[i]
		other := like.Find(m.Model)
		if other == nil || formats.SameCuts(m.Blocks, other.Blocks) {
			continue
		}
		measured := measuredAs(m, other)
		if len(measured) == 0 {
			continue
		}
		if out == p {
			copied := *p
			copied.Models = slices.Clone(p.Models)
			out = &copied
		}
		out.Models[i].Blocks, out.Models[i].Measurements = other.Blocks, measured
		names = append(names, m.Model)
	}
	return out, names
}

// measurementsAs returns the measurements of a model with the blocks of another profile.
func measuredAs(m, other *formats.ProfileModel) (out []formats.Measurement) {
	for k := range m.Measurements {
		now := m.Measurements[k]
		then := other.At(now.Device, now.Share, now.Batch)
		if then == nil || now.Whole == nil || then.Whole == nil {
			continue
		}
		changed := func(l formats.Latency) formats.Latency {
			return l.Times(float64(now.Whole.WallUS)/float64(then.Whole.WallUS), float64(now.Whole.CPUUS)/float64(max(then.Whole.CPUUS, 1)))
		}
		now.Blocks, now.Ranges = nil, nil
		for _, l := range then.Blocks {
			now.Blocks = append(now.Blocks, changed(l))
		}
		for _, r := range then.Ranges {
			now.Ranges = append(now.Ranges, formats.RangeLatency{Blocks: r.Blocks, Latency: changed(r.Latency)})
		}
		out = append(out, now)
	}
	return out
}

// useCutsOfPromise gives all profiles the cuts of the first promised one, and returns a note if some had others.
func (p *profiles) recut() (note string) {
	if len(p.old) == 0 {
		return ""
	}
	var all []string
	to := func(list []*formats.Profile) []*formats.Profile {
		list = slices.Clone(list)
		for i := range list {
			var names []string
			list[i], names = recut(list[i], p.old[0])
			all = append(all, names...)
		}
		return list
	}
	p.now = to(p.now)
	p.old = append(p.old[:1:1], to(p.old[1:])...)
	if len(all) == 0 {
		return ""
	}
	slices.Sort(all)
	return fmt.Sprintf("%s: cut at other tensors than for the plan, so each block is taken to have changed as the whole model did; plan profile --cuts FILE measures with the same cuts",
		strings.Join(slices.Compact(all), ", "))
}
