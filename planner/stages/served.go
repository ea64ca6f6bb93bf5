package stages

import (
	"math"
	"slices"

	"inferplan/formats"
)

// Served is what serving takes for blocks [first, last) of a model, whose planned times
// at batch 1 and up are given: on average over all runs, and how much more where a run
// begins on a device that had nothing to do. Planned times are of undisturbed runs, so
// that plans can be compared. The profile tells both of whole models; blocks of them are
// taken to vary as the whole does, unless they were measured in one piece. Nil: the
// profile does not say it.
func Served(m *formats.ProfileModel, device string, share, first, last int, planned []formats.Micros) (mean []formats.Micros, idle formats.Micros) {
	var of []*formats.Measurement // by rising batch
	for i := range m.Measurements {
		if ms := &m.Measurements[i]; ms.Device == device && max(ms.Share, 1) == share && ms.Whole != nil && ms.Whole.MeanUS > 0 {
			of = append(of, ms)
		}
	}
	slices.SortFunc(of, func(a, b *formats.Measurement) int { return a.Batch - b.Batch })
	for b := range planned {
		i := slices.IndexFunc(of, func(ms *formats.Measurement) bool { return ms.Batch > b })
		if i < 0 {
			return nil, 0
		}
		l := of[i].Whole
		for k := range of[i].Ranges {
			if r := &of[i].Ranges[k]; r.Blocks == [2]int{first, last} && r.Latency.MeanUS > 0 {
				l = &r.Latency
			}
		}
		mean = append(mean, max(1, formats.Micros(math.Round(float64(planned[b])*float64(l.MeanUS)/float64(l.WallUS)))))
	}
	if i := slices.IndexFunc(of, func(ms *formats.Measurement) bool { return ms.Whole.IdleUS > 0 }); i >= 0 {
		idle = max(0, of[i].Whole.IdleUS-of[i].Whole.MeanUS)
	}
	return mean, idle
}
