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
type answers struct {
	samples int
	reaches [][]set // by model and level l: samples at level l or above
	right   []set   // by model: samples that it answers correctly
}

// bitSet is a set of samples.
type set []uint64

func newSet(n int) set { return make(set, (n+63)/64) }

func (s set) add(i int) { s[i/64] |= 1 << (i % 64) }

func (s set) size() int {
	n := 0
	for _, w := range s {
		n += bits.OnesCount64(w)
	}
	return n
}

// setDifference sets its first argument to a without b.
func without(out, a, b set) {
	for i := range a {
		out[i] = a[i] &^ b[i]
	}
}

// commonCount returns the number of members that two sets share.
func common(a, b set) int {
	n := 0
	for i := range a {
		n += bits.OnesCount64(a[i] & b[i])
	}
	return n
}

// planRecords returns the records inside the plan. It returns false if they are incomplete.
func (c *checker) ownRecords() (*answers, bool) {
	p := c.gear
	a := &answers{samples: p.Samples}
	for i := range p.Models {
		m := &p.Models[i]
		if len(m.Levels) != p.Samples || len(m.Correct) != p.Samples {
			c.Fail("records", fmt.Sprintf("gear.models[%d]", i), fmt.Sprintf("%d levels, %d answers", len(m.Levels), len(m.Correct)), fmt.Sprint(p.Samples), "one of each per sample is needed")
			return nil, false
		}
		a.addModel(len(m.Thresholds), func(i int) int { return strings.IndexByte(formats.GearLevels, m.Levels[i]) }, m.Correct)
	}
	return a, true
}

// addRecords adds a model with the levels of its certainties by some thresholds.
func (a *answers) addRecords(m *formats.ModelRecords, t []float64) {
	a.addModel(len(t), func(i int) int {
		return sort.Search(len(t), func(l int) bool { return t[l] > m.Certainty[i] })
	}, m.Correct)
}

// addModel adds a model with a number of thresholds. level returns the level of a sample, and correct has '1' for
// a correct answer.
func (a *answers) addModel(thresholds int, level func(int) int, correct string) {
	reaches := make([]set, thresholds+1)
	for l := range reaches {
		reaches[l] = newSet(a.samples)
	}
	right := newSet(a.samples)
	for i := range a.samples {
		for l := 0; l <= min(level(i), thresholds); l++ {
			reaches[l].add(i)
		}
		if correct[i] == '1' {
			right.add(i)
		}
	}
	a.reaches, a.right = append(a.reaches, reaches), append(a.right, right)
}

// profileRecords returns the records of today's profile that have all of some models, or nil if there are none.
func (c *checker) records(models []string) *formats.Records {
	for i := range c.Profile.Records {
		r := &c.Profile.Records[i]
		if !slices.ContainsFunc(models, func(n string) bool { return r.Find(n) == nil }) {
			return r
		}
	}
	return nil
}

// recordsToday applies the plan's thresholds to today's records and compares them with those in the plan. If there
// are none today, it returns those of the plan.
func (c *checker) recordsToday(g *gears, own *answers) *answers {
	p := c.gear
	var names []string
	for i := range p.Models {
		names = append(names, p.Models[i].Model)
	}
	r := c.records(names)
	if r == nil {
		c.Fail("records", "gear.models", list(names), "records of all of them on the same samples", "the profile no longer has the answers that the cascades were chosen on")
		g.moved = true
		return own
	}
	a := &answers{samples: r.Planning}
	for i, n := range names {
		a.addRecords(r.Find(n), p.Models[i].Thresholds)
	}
	if a.samples != own.samples || !slices.EqualFunc(a.right, own.right, slices.Equal[set]) ||
		!slices.EqualFunc(a.reaches, own.reaches, func(x, y []set) bool { return slices.EqualFunc(x, y, slices.Equal[set]) }) {
		g.moved = true
		c.Warn("records", "gear.models", fmt.Sprintf("%d samples", own.samples), fmt.Sprintf("%d samples of the profile", a.samples), "the profile's records are others than the plan was made from")
	}
	return a
}

// commaList joins names with commas.
func list(names []string) string { return strings.Join(names, ", ") }

// replayCascade sends all samples through a cascade. It returns the share that reaches each stage, and the share
// that is answered correctly.
func (a *answers) replay(models, levels []int) (fractions []float64, accuracy float64) {
	left, next := newSet(a.samples), newSet(a.samples)
	for i := range a.samples {
		left.add(i)
	}
	right := 0
	for k, m := range models {
		fractions = append(fractions, float64(left.size())/float64(a.samples))
		if k == len(models)-1 {
			right += common(left, a.right[m])
			break
		}
		without(next, left, a.reaches[m][levels[k]])
		right += common(left, a.right[m]) - common(next, a.right[m])
		left, next = next, left
	}
	return fractions, float64(right) / float64(a.samples)
}
