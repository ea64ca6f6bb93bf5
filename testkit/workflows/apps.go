package workflows

import (
	"math"
	"math/rand/v2"

	"inferplan/formats/seeded"
)

// Models of the applications.
const (
	GILL int32 = iota
	KnowledgeCard
	Debate
)

// quarter is the work of a short answer.
const quarter = 250_000

// Apps draws requests of the applications.
type Apps struct {
	streams [3]*rand.Rand
	zipf    [numCards]float64 // cumulated
	times   []float64         // of a batch of one, by service
	ends    []float64

	// Heard hears of each request how long it takes at least, its longest path in
	// batches of one, loaded, with no transfer, and the device time of such
	// batches. It may be nil.
	Heard func(model int32, least, work float64)
	// Tokens draws those of tasks of language models, for fleets of Generations. If
	// it is nil, their times are fixed.
	Tokens *Tokens
}

// NewApps makes the streams of a seed.
func NewApps(seed uint64) *Apps {
	a := &Apps{}
	for i, name := range Names {
		a.streams[i] = seeded.New(seed, "requests/"+name)
	}
	sum := 0.0
	for c := range a.zipf {
		sum += math.Pow(float64(c+1), -1.2)
		a.zipf[c] = sum
	}
	for c := range a.zipf {
		a.zipf[c] /= sum
	}
	for _, m := range models() {
		a.times = append(a.times, m.first)
	}
	return a
}

// Draw draws the next request of an application, for Control.Draw.
func (a *Apps) Draw(model int32, w *Way) {
	rng := a.streams[model]
	switch model {
	case GILL:
		a.gill(rng, w)
	case KnowledgeCard:
		a.card(rng, w)
	default:
		a.debate(rng, w)
	}
	if a.Tokens != nil {
		a.Tokens.draw(model, w)
	}
	if a.Heard != nil {
		least, work := a.unloaded(w)
		a.Heard(model, least, work)
	}
}

// gill: images are read, the language model answers, and what it asks for is
// drawn.
func (a *Apps) gill(rng *rand.Rand, w *Way) {
	var seen [2]int32
	images := pick(rng, .3, .6, .1)
	for i := range images {
		seen[i] = w.add(ViT, 0)
	}
	answer := w.add(OPT, 0, seen[:images]...)
	w.end()
	drawn := pick(rng, .10, .85, .05)
	for range drawn {
		w.add(SD, 0, answer)
	}
	if drawn > 0 {
		w.end()
	}
}

// card: the language model asks for a knowledge card, perhaps a second one, and
// answers.
func (a *Apps) card(rng *rand.Rand, w *Way) {
	last := w.add(LLM, quarter)
	w.end()
	for _, p := range [2]float64{.75, .2} {
		if rng.Float64() >= p {
			break
		}
		u, c := rng.Float64(), 0
		for c < numCards-1 && u >= a.zipf[c] {
			c++
		}
		known := w.add(Card+int32(c), 0, last)
		last = w.add(LLM, quarter, known, last)
		w.end()
	}
	w.add(LLM, 0, last)
	w.end()
}

// debate: three agents answer round by round until they agree.
func (a *Apps) debate(rng *rand.Rand, w *Way) {
	for round := range 3 {
		at := int32(3 * round)
		for range 3 {
			if round == 0 {
				w.add(LLM, 0)
			} else {
				w.add(LLM, 0, at-3, at-2, at-1)
			}
		}
		w.end()
		if u := rng.Float64(); round == 0 && u < .55 || round == 1 && u < .6 {
			return
		}
	}
}

// pick draws an index by its chances.
func pick(rng *rand.Rand, chances ...float64) int {
	u := rng.Float64()
	for i, p := range chances[:len(chances)-1] {
		if u -= p; u < 0 {
			return i
		}
	}
	return len(chances) - 1
}

// unloaded is the longest path of a way, and the time of all of its tasks.
func (a *Apps) unloaded(w *Way) (last, work float64) {
	a.ends = a.ends[:0]
	before := 0.0 // no segment starts before the one before it has ended
	segment := 0
	for i := range w.n {
		if int32(i) == w.Ends[segment] {
			segment++
			before = last
		}
		t, start := &w.Tasks[i], before
		for _, in := range t.Reads {
			start = max(start, a.ends[in])
		}
		took := a.times[t.Service]
		if t.Output > 0 {
			took = t.took(generationOf(t.Service))
		} else if t.Work > 0 {
			took *= float64(t.Work) / 1e6
		}
		a.ends = append(a.ends, start+took)
		last, work = max(last, start+took), work+took
	}
	return last, work
}
