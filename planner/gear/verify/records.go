package verify

import (
	"fmt"
	"math/bits"
	"slices"
	"sort"
	"strings"

	"inferplan/formats"
)

// sampleBits has levels and correct answers of the models of a plan, as bit sets over samples.
type sampleBits struct {
	sampleCount int
	atLevel     [][]bitSet // by model and level l: samples at level l or above
	correct     []bitSet   // by model: samples that it answers correctly
}

// bitSet is a set of samples.
type bitSet []uint64

// newSet returns an empty set of numbers below n.
func newSet(n int) bitSet { return make(bitSet, (n+63)/64) }

// add adds number i to the set.
func (s bitSet) add(i int) { s[i/64] |= 1 << (i % 64) }

// size returns the number of members of a set.
func (s bitSet) size() int {
	n := 0
	for _, w := range s {
		n += bits.OnesCount64(w)
	}
	return n
}

// setDifference sets its first argument to a without b.
func setDifference(difference, a, b bitSet) {
	for i := range a {
		difference[i] = a[i] &^ b[i]
	}
}

// commonCount returns the number of members that two sets share.
func commonCount(a, b bitSet) int {
	n := 0
	for i := range a {
		n += bits.OnesCount64(a[i] & b[i])
	}
	return n
}

// planRecords returns the records inside the plan: for each of its models the level of certainty and the correctness of
// every answer to the planning samples. If they are incomplete, it adds an error to the findings and returns false.
func (c *gearChecker) planRecords() (*sampleBits, bool) {
	section := c.gear
	samples := &sampleBits{sampleCount: section.Samples}
	for i := range section.Models {
		m := &section.Models[i]
		if len(m.Levels) != section.Samples || len(m.Correct) != section.Samples {
			c.AddError("records", fmt.Sprintf("gear.models[%d]", i), fmt.Sprintf("%d levels, %d answers", len(m.Levels), len(m.Correct)), fmt.Sprint(section.Samples), "one of each per sample is needed")
			return nil, false
		}
		samples.addModel(len(m.Thresholds), func(i int) int { return strings.IndexByte(formats.GearLevels, m.Levels[i]) }, m.Correct)
	}
	return samples, true
}

// addRecords adds a model with the levels of its certainties by some thresholds.
func (a *sampleBits) addRecords(m *formats.ModelRecords, thresholds []float64) {
	a.addModel(len(thresholds), func(i int) int {
		return sort.Search(len(thresholds), func(l int) bool { return thresholds[l] > m.Certainty[i] })
	}, m.Correct)
}

// addModel adds a model to the samples: for each level of certainty the set of samples with at least that level, and
// the set of samples that the model answers correctly. level returns the level of a sample from its index, from 0 to the number of
// thresholds, and correct has '1' for each correct answer.
func (a *sampleBits) addModel(thresholds int, level func(int) int, correct string) {
	levelBits := make([]bitSet, thresholds+1)
	for l := range levelBits {
		levelBits[l] = newSet(a.sampleCount)
	}
	correctBits := newSet(a.sampleCount)
	for i := range a.sampleCount {
		for l := 0; l <= min(level(i), thresholds); l++ {
			levelBits[l].add(i)
		}
		if correct[i] == '1' {
			correctBits.add(i)
		}
	}
	a.atLevel, a.correct = append(a.atLevel, levelBits), append(a.correct, correctBits)
}

// profileRecords returns the first set of records (the answers of models to the same samples) in today's profile that
// has all of some models, by name, or nil if there is none.
func (c *gearChecker) profileRecords(models []string) *formats.Records {
	for i := range c.Profile.Records {
		r := &c.Profile.Records[i]
		if !slices.ContainsFunc(models, func(n string) bool { return r.FindModel(n) == nil }) {
			return r
		}
	}
	return nil
}

// recordsToday returns today's records (the certainty and correctness of every answer) of the plan's models, with the
// plan's thresholds. If they differ from those in the plan, it warns and notes in g that inputs have changed. If
// today's profile has none, it reports an error and returns those of the plan, planSamples.
func (c *gearChecker) recordsToday(g *gearsToday, planSamples *sampleBits) *sampleBits {
	section := c.gear
	var names []string
	for i := range section.Models {
		names = append(names, section.Models[i].Model)
	}
	records := c.profileRecords(names)
	if records == nil {
		c.AddError("records", "gear.models", commaList(names), "records of all of them on the same samples", "the profile no longer has the answers that the cascades were chosen on")
		g.inputsChanged = true
		return planSamples
	}
	todaySamples := &sampleBits{sampleCount: records.PlanningSamples}
	for i, n := range names {
		todaySamples.addRecords(records.FindModel(n), section.Models[i].Thresholds)
	}
	if todaySamples.sampleCount != planSamples.sampleCount || !slices.EqualFunc(todaySamples.correct, planSamples.correct, slices.Equal[bitSet]) ||
		!slices.EqualFunc(todaySamples.atLevel, planSamples.atLevel, func(x, y []bitSet) bool { return slices.EqualFunc(x, y, slices.Equal[bitSet]) }) {
		g.inputsChanged = true
		c.AddWarning("records", "gear.models", fmt.Sprintf("%d samples", planSamples.sampleCount), fmt.Sprintf("%d samples of the profile", todaySamples.sampleCount), "the profile's records are others than the plan was made from")
	}
	return todaySamples
}

// commaList joins names with commas.
func commaList(names []string) string { return strings.Join(names, ", ") }

// replayCascade sends all samples through a cascade, given as models and, for each but the last, the level of certainty
// below which it forwards a sample. It returns the share of the samples that reaches each model, and the share that is
// answered correctly.
func (a *sampleBits) replayCascade(models, levels []int) (fractions []float64, accuracy float64) {
	remaining, forwarded := newSet(a.sampleCount), newSet(a.sampleCount)
	for i := range a.sampleCount {
		remaining.add(i)
	}
	correctCount := 0
	for k, m := range models {
		fractions = append(fractions, float64(remaining.size())/float64(a.sampleCount))
		if k == len(models)-1 {
			correctCount += commonCount(remaining, a.correct[m])
			break
		}
		// The model forwards the samples below its level, and answers the others.
		setDifference(forwarded, remaining, a.atLevel[m][levels[k]])
		correctCount += commonCount(remaining, a.correct[m]) - commonCount(forwarded, a.correct[m])
		remaining, forwarded = forwarded, remaining
	}
	return fractions, float64(correctCount) / float64(a.sampleCount)
}
