package remeasure

import (
	"fmt"
	"math"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/lists"
	"inferplan/policy"
)

// minLoads is the number of recorded loads of a model from which on their mean counts, and minLoadDifference the part by
// which it must differ: loads share the way into a device's memory with other work.
const (
	minLoads          = 10
	minLoadDifference = 0.1
)

// LoadPace is the time that loads of a model took while serving, as a multiple of the planned time.
type LoadPace struct {
	Model string
	Loads int
	// Factor is 1 for a mean from the shortest load, out of the host's memory, to the longest one, from disk.
	Factor float64
}

// LoadPaces returns the paces of the loads of models from recorded ones, by network, as sim.Samples has them. Models that
// were not loaded, or whose times are not planned, are left out.
func LoadPaces(t *policy.Tables, loads [][]time.Duration) (list []LoadPace) {
	for n := range min(len(loads), len(t.Networks)) {
		shortest, longest := time.Duration(math.MaxInt64), time.Duration(0)
		for _, times := range t.Networks[n].LoadTimes {
			for _, planned := range times {
				if planned > 0 {
					shortest, longest = min(shortest, planned), max(longest, planned)
				}
			}
		}
		if len(loads[n]) == 0 || longest == 0 {
			continue
		}
		sum := lists.Total(loads[n])
		p := LoadPace{Model: t.Networks[n].Name, Loads: len(loads[n]), Factor: 1}
		switch mean := sum / time.Duration(p.Loads); {
		case p.Loads < minLoads:
		case mean > longest:
			p.Factor = float64(mean) / float64(longest)
		case mean < shortest:
			p.Factor = float64(mean) / float64(shortest)
		}
		list = append(list, p)
	}
	return list
}

// differs reports whether the loads took another time than planned.
func (p *LoadPace) differs() bool { return math.Abs(p.Factor-1) > minLoadDifference }

// String returns what was measured in one line.
func (p *LoadPace) String() string {
	switch {
	case p.Loads < minLoads:
		return fmt.Sprintf("%s: loads as profiled; %d, of at least %d", p.Model, p.Loads, minLoads)
	case !p.differs():
		return fmt.Sprintf("%s: loads take as long as profiled, within %g %%", p.Model, 100*minLoadDifference)
	}
	return fmt.Sprintf("%s: loads take %.2f times the profiled time (%d loads)", p.Model, p.Factor, p.Loads)
}

// WithLoads returns the profile with the times of loads that the paces say. It returns nil if none differs.
func WithLoads(profile *formats.Profile, paces []LoadPace) *formats.Profile {
	changed := *profile
	changed.Models = slices.Clone(profile.Models)
	differs := false
	for i := range changed.Models {
		m := &changed.Models[i]
		index := slices.IndexFunc(paces, func(p LoadPace) bool { return p.Model == m.Model && p.differs() })
		if index < 0 || len(m.Loads) == 0 {
			continue
		}
		differs, m.Loads = true, slices.Clone(m.Loads)
		for k := range m.Loads {
			l := &m.Loads[k]
			for _, us := range []*document.Micros{&l.ColdUS, &l.WarmUS, &l.WakeUS} {
				*us = document.Micros(math.Round(paces[index].Factor * float64(*us)))
			}
		}
	}
	if !differs {
		return nil
	}
	return &changed
}
