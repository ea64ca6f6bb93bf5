package trials

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	policygear "inferplan/policy/gear"
)

// Of gears at the edge of the promise no more pass than the confidence says; where
// blocks are like their neighbours, which has to be estimated, hardly more.
func TestJudgedAtItsConfidence(t *testing.T) {
	const limit, dev, tries = .05, .01, 4000
	z := 2.3263 // of the chance that a fresh trial may fail with
	for alike, most := range map[float64]float64{0: 1 - TrialConfidence, .5: 1.5 * (1 - TrialConfidence)} {
		rng, passed, clear := rand.New(rand.NewPCG(1, 1)), 0, 0
		long := dev * math.Sqrt((1+alike)/(1-alike)/(.75*freshTrialFactor*blocksPerRun)) // of a fresh trial's mean
		judged := func(mean float64) bool {
			var e trialEvidence
			for range maxStreams {
				x, blocks := rng.NormFloat64()*dev, make([]runBlock, streamRunFactor*blocksPerRun)
				for i := range blocks {
					x = alike*x + math.Sqrt(1-alike*alike)*dev*rng.NormFloat64()
					blocks[i] = runBlock{lateShare: mean + x, tailLatency: time.Millisecond}
				}
				if e.addStream(blocks); !slices.Contains(judgedAfterStreams, e.streams) {
					continue
				}
				if keeps, hopeless := e.judgeGear(time.Second, limit); keeps || hopeless {
					return keeps
				}
			}
			return false
		}
		for range tries {
			if judged(limit - z*long) {
				passed++
			}
			if judged(limit - 12*long) {
				clear++
			}
		}
		t.Logf("alike %v: %.3f pass at the edge, %.3f clear of it", alike, float64(passed)/tries, float64(clear)/tries)
		if float64(passed)/tries > most || float64(clear)/tries < .6 {
			t.Errorf("alike %v: %d of %d pass at the edge of the promise, %d clear of it", alike, passed, tries, clear)
		}
	}
}

// A mean latency that wanders far does not pass near full load, however early all answers are; one
// that hardly moves does. With time to spare many streams say enough.
func TestWanderingMeans(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, c := range []struct {
		dev     time.Duration
		load    float64
		streams int
		keeps   bool
	}{{10 * time.Millisecond, .98, 8, true}, {100 * time.Millisecond, .98, 8, false}, {100 * time.Millisecond, .95, 3, false}, {100 * time.Millisecond, .95, 5, true}, {100 * time.Millisecond, .85, 1, true}} {
		e := trialEvidence{busiestLoad: c.load}
		for range c.streams {
			blocks := make([]runBlock, streamRunFactor*blocksPerRun)
			for i := range blocks {
				blocks[i] = runBlock{tailLatency: 500 * time.Millisecond, meanLatency: 300*time.Millisecond + time.Duration(rng.NormFloat64()*float64(c.dev))}
			}
			e.addStream(blocks)
		}
		if keeps, _ := e.judgeGear(time.Second, .05); keeps != c.keeps {
			t.Errorf("means that deviate by %v in %d streams at load %v: passed %v, expected %v", c.dev, c.streams, c.load, keeps, c.keeps)
		}
	}
}

// Every stream has all samples once, whole, in an order of its own.
func TestSamplesInAnOrderOfTheirOwn(t *testing.T) {
	r := policygear.SampleRecords{Samples: 200, Levels: [][]uint8{make([]uint8, 200), make([]uint8, 200)}, Correct: [][]bool{make([]bool, 200), make([]bool, 200)}}
	for i := range 200 {
		r.Levels[0][i], r.Levels[1][i], r.Correct[1][i] = uint8(i), uint8(i), i%3 == 0
	}
	first := shuffleRecords(&r, rand.New(rand.NewPCG(1, 1)))
	second := shuffleRecords(&r, rand.New(rand.NewPCG(1, 2)))
	if slices.Equal(first.Levels[0], second.Levels[0]) || slices.Equal(first.Levels[0], r.Levels[0]) {
		t.Error("two streams have one order")
	}
	seen := map[uint8]bool{}
	for i, l := range first.Levels[0] {
		if seen[l] = true; first.Levels[1][i] != l || first.Correct[1][i] != (l%3 == 0) {
			t.Fatalf("at %d, sample %d is not whole", i, l)
		}
	}
	if len(seen) != 200 {
		t.Errorf("%d of 200 samples", len(seen))
	}
}
