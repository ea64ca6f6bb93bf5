package gear

import (
	"testing"
	"time"

	"inferplan/formats/document"
	"inferplan/planner/gear/cascades"
	"inferplan/planner/gear/trials"
)

// The section of a plan states the tail latencies of a gear's trials, on the planning samples and on those held out.
func TestSectionStatesLatenciesOfTrials(t *testing.T) {
	samples := &cascades.Samples{N: 2, Levels: [][]uint8{{0, 0}}, Correct: [][]bool{{true, false}}}
	p := &cascades.Problem{Models: []cascades.Model{{Name: "m"}}, Thresholds: [][]float64{nil}, PlanningSamples: samples, Percentile: .95, RangeEdges: []float64{9}, RangeWeights: []float64{1}}
	trial := trials.Trial{Latency: 3 * time.Millisecond, HeldOutLatency: 7 * time.Millisecond}
	plan := &trials.Plan{Problem: p, Gears: []trials.PlannedGear{{Cascade: cascades.Cascade{Models: []uint8{0}, ReachCounts: []int32{2}, CorrectCount: 1}, MinQueue: 1, Shares: [][]float64{{1}}, Trial: trial}}}
	if g := writeSection(plan, "zipf").Gears[0]; g.LatencyUS != document.Micros(trial.Latency) || g.LatencyHeldOutUS != document.Micros(trial.HeldOutLatency) {
		t.Errorf("the plan says %v and %v, the trials %v", g.LatencyUS, g.LatencyHeldOutUS, trial)
	}
}
