package trials

import (
	"testing"

	"inferplan/planner/gear/cascades"
)

// What fails says something of cascades that ask the same models and more, for no fewer
// samples or with more load, and nothing of others.
func TestWhatAFailureRulesOut(t *testing.T) {
	failed := failedCascade{&cascades.Cascade{Models: []uint8{0, 1}, ReachCounts: []int32{400, 160}}, .5}
	for _, c := range []struct {
		models []uint8
		reach  []int32
		taken  float64
		out    bool
	}{
		{[]uint8{0, 1}, []int32{400, 80}, .5, false}, // the busiest has model 0 alone: its load is the same
		{[]uint8{0, 1}, []int32{400, 80}, .6, true},
		{[]uint8{0, 1}, []int32{400, 200}, .5, true},
		{[]uint8{0, 1, 2}, []int32{400, 160, 10}, .4, true},
		{[]uint8{0, 1, 2}, []int32{400, 80, 70}, .7, true},
		{[]uint8{0}, []int32{400}, .5, false},
		{[]uint8{1}, []int32{400}, .9, false},
		{[]uint8{0, 2}, []int32{400, 200}, .9, false},
	} {
		if got := failed.rulesOut(&cascades.Cascade{Models: c.models, ReachCounts: c.reach}, c.taken); got != c.out {
			t.Errorf("%v %v at load %v: ruled out %v, expected %v", c.models, c.reach, c.taken, got, c.out)
		}
	}
}
