package trials

import (
	"strings"
	"testing"
	"time"

	"inferplan/planner/gear/cascades"
	"inferplan/planner/gear/placement"
	"inferplan/planner/gear/planspace"
)

// samplesForwarding returns samples of two models: every n-th is uncertain and wrong at the first.
func samplesForwarding(samples, n int) *cascades.Samples {
	s := &cascades.Samples{N: samples, Levels: [][]uint8{make([]uint8, samples), make([]uint8, samples)}, Correct: [][]bool{make([]bool, samples), make([]bool, samples)}}
	for i := range samples {
		if s.Levels[0][i] = 1; i%n == 0 {
			s.Levels[0][i] = 0
		}
		s.Correct[0][i], s.Correct[1][i] = i%n != 0, true
	}
	return s
}

// twoModels returns a problem of a fast model and of one that takes fifteen times as long, on
// one device, with one range.
func twoModels(rate float64) *cascades.Problem {
	p := &cascades.Problem{Grid: 2, Kinds: []cascades.Kind{{Devices: 1}}, SLO: 400 * time.Millisecond, Percentile: .95, RangeEdges: []float64{rate}, RangeWeights: []float64{1}, PlanningSamples: samplesForwarding(2000, 20),
		Thresholds: [][]float64{{.5}, {.5}}}
	for _, per := range []time.Duration{time.Millisecond, 15 * time.Millisecond} {
		var m cascades.Variant
		for b := range 8 {
			m.MedianTimes = append(m.MedianTimes, time.Millisecond+time.Duration(b+1)*per)
		}
		p.Models = append(p.Models, cascades.NewModel("m", m))
	}
	return p
}

// Where no cascade holds on the samples held out, the reason says so.
func TestReasonOfSamplesHeldOut(t *testing.T) {
	p := twoModels(400)
	x := samplesForwarding(2000, 20)
	c := cascades.Cascade{Models: []uint8{0, 1}, Levels: []uint8{1}, ReachCounts: []int32{2000, 100}, CorrectCount: 2000}
	p.HeldOutSamples = samplesForwarding(2000, 6)
	b := NewSimulator(p, []planspace.Config{{ModelSet: 3, Count: 1}}, nil, 1)
	trial, err := b.TryCascade(t.Context(), &placement.LoadedCascade{Cascade: &c, Shares: [][]float64{{1}, {1}}, MaxLoad: 1. / 400}, 400)
	if err != nil {
		t.Fatal(err)
	}
	if text := noGearError(p, 0, &c, 1./400, &trial).Error(); !trial.failsHeldOut || !strings.Contains(text, "where requests bring the samples held out") {
		t.Errorf("%+v: %s", trial, text)
	}
	p.HeldOutSamples = x
	if trial, err = NewSimulator(p, []planspace.Config{{ModelSet: 3, Count: 1}}, nil, 1).TryCascade(t.Context(), &placement.LoadedCascade{Cascade: &c, Shares: [][]float64{{1}, {1}}, MaxLoad: 1. / 400}, 400); err != nil || trial.failsHeldOut || !trial.Passed {
		t.Errorf("samples like those planned on: %+v, %v", trial, err)
	}
}

// Where the SLO is over all requests, every second stream at the measured rates brings the
// samples held out.
func TestStreamsOfSamplesHeldOut(t *testing.T) {
	p := twoModels(400)
	for stream, other := range map[int]bool{EvenStream: false, 0: false, 1: true, 2: false, 3: true} {
		p.HeldOutSamples = nil
		if b := NewSimulator(p, nil, nil, 1); b.streamSamples(stream) != p.PlanningSamples {
			t.Errorf("stream %d without samples held out", stream)
		}
		p.HeldOutSamples = samplesForwarding(2000, 6)
		if b := NewSimulator(p, nil, nil, 1); (b.streamSamples(stream) == p.HeldOutSamples) != other {
			t.Errorf("stream %d brings samples held out: %v, expected %v", stream, !other, other)
		}
	}
	p.OverRequests, p.MeasuredRates = true, make([]float64, 60)
	for i := range p.MeasuredRates {
		p.MeasuredRates[i] = 400
	}
	c := cascades.Cascade{Models: []uint8{0, 1}, Levels: []uint8{1}, ReachCounts: []int32{2000, 100}, CorrectCount: 2000}
	gears := []PlannedGear{NewGear(p, &placement.LoadedCascade{Cascade: &c, Shares: [][]float64{{1}, {1}}, DeviceLoad: 1. / 400}, 400, Trial{})}
	b := NewSimulator(p, []planspace.Config{{ModelSet: 3, Count: 1}}, nil, 1)
	shown, err := b.RunStreams(t.Context(), gears, 2, .05)
	if err != nil || shown.KeepsSLO(p) {
		t.Errorf("a plan that is late on samples held out: %+v, %v", shown, err)
	}
	p.HeldOutSamples = samplesForwarding(2000, 20)
	shown, err = NewSimulator(p, []planspace.Config{{ModelSet: 3, Count: 1}}, nil, 1).RunStreams(t.Context(), gears, 2, .05)
	if err != nil || !shown.KeepsSLO(p) || shown.heldOutTail == 0 || shown.Tail == 0 || shown.Accuracy != 1 {
		t.Errorf("a plan that holds on both: %+v, %v", shown, err)
	}
}

// Samples as hard as their interval allows lack some of those that end at the first model, and
// nothing else: of 2000 of which a twentieth goes on, .8 points more do.
func TestHardenedSamples(t *testing.T) {
	s := samplesForwarding(2000, 20)
	c := cascades.Cascade{Models: []uint8{0, 1}, Levels: []uint8{1}}
	h := s.HardenedFor(&c, []float64{.001, .015})
	reach, _ := h.Replay(c.Models, c.Levels)
	if share := float64(reach[1]) / float64(h.N); reach[1] != 100 || share < .0575 || share > .0585 {
		t.Errorf("%d of %d go on", reach[1], h.N)
	}
	for _, seconds := range [][]float64{{.001, .015}, {.0123, .0457}, {1. / 3, 1. / 7}} {
		for m := range uint8(2) {
			if one := (cascades.Cascade{Models: []uint8{m}}); s.HardenedFor(&one, seconds) != s {
				t.Error("samples of one model are hardened")
			}
		}
	}
	// Where the first model forwards everything, those that end at the second are left out.
	three := cascades.Cascade{Models: []uint8{0, 1, 2}, Levels: []uint8{1, 1}}
	all := &cascades.Samples{N: 400, Levels: make([][]uint8, 3), Correct: make([][]bool, 3)}
	for m := range all.Levels {
		for i := range all.N {
			level := uint8(0)
			if m == 1 && i%4 > 0 || m == 2 {
				level = 1
			}
			all.Levels[m], all.Correct[m] = append(all.Levels[m], level), append(all.Correct[m], true)
		}
	}
	if h := all.HardenedFor(&three, []float64{.001, .002, .015}); h.N >= all.N {
		t.Errorf("%d of %d samples are left", h.N, all.N)
	}
	if none := samplesForwarding(2000, 5000); none.HardenedFor(&c, []float64{.001, .015}).N < 700 { // one goes on
		t.Error("samples of which one goes on are next to none")
	}
}
