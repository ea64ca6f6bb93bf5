package remeasure

import (
	"fmt"
	"math"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
)

// minWork is the planned work from which on its factor counts, and minWorkDifference the part by which it must differ from
// 1: until then a server's policy has seen little beside what it expected.
const (
	minWork           = time.Minute
	minWorkDifference = 0.05
)

// workCounts reports whether the factor of a model's work differs, and on enough of it.
func workCounts(w *formats.WorkReport) bool {
	return w.PlannedUS.D() >= minWork && math.Abs(w.Factor-1) > minWorkDifference
}

// WorkLine says in one line how long the work of a language model took.
func WorkLine(w *formats.WorkReport) string {
	switch {
	case w.PlannedUS.D() < minWork:
		return fmt.Sprintf("%s on %s: as profiled; %s of work, of at least %s", w.Model, w.Device, w.PlannedUS.D().Round(time.Second), minWork)
	case !workCounts(w):
		return fmt.Sprintf("%s on %s: iterations take as long as profiled, within %g %%", w.Model, w.Device, 100*minWorkDifference)
	}
	return fmt.Sprintf("%s on %s: iterations take %.2f times the profiled time (%s of work)", w.Model, w.Device, w.Factor, w.PlannedUS.D().Round(time.Second))
}

// WithWork returns the profile with the iterations of language models as long as a server's report says. It returns nil
// if none differs.
func WithWork(profile *formats.Profile, work []formats.WorkReport) *formats.Profile {
	changed := *profile
	changed.LLMs = slices.Clone(profile.LLMs)
	differs := false
	for i := range changed.LLMs {
		m := &changed.LLMs[i]
		m.Instances = slices.Clone(m.Instances)
		for k := range m.Instances {
			in := &m.Instances[k]
			index := slices.IndexFunc(work, func(w formats.WorkReport) bool { return w.Model == m.Model && w.Device == in.Device && workCounts(&w) })
			if index < 0 {
				continue
			}
			scaleInstance(in, work[index].Factor)
			differs = true
		}
	}
	if !differs {
		return nil
	}
	return &changed
}

// scaleInstance multiplies the times of an instance of a language model by a factor. Those of its loads stay.
func scaleInstance(in *formats.LLMInstance, factor float64) {
	it := &in.Iteration
	for _, ns := range []*float64{&it.BaseNS, &it.SequenceNS, &it.ContextNS, &it.PromptNS, &it.AttentionNS, &it.CPUNS, &it.CPUSequenceNS} {
		*ns *= factor
	}
	if in.OneBatch != nil {
		b := *in.OneBatch
		b.PrefillUS, b.TokenUS, b.TokensPerSecond = document.Micros(factor*float64(b.PrefillUS)), document.Micros(factor*float64(b.TokenUS)), b.TokensPerSecond/factor
		in.OneBatch = &b
	}
}
