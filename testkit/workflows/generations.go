package workflows

import (
	"math"
	"math/rand/v2"
	"time"

	"inferplan/formats"
	"inferplan/formats/seeded"
	"inferplan/policy/flow"
)

// llama, opt and card are the costs of an iteration of Llama-2-7B, OPT-6.7B and OPT-1.3B.
// The first is set so that a sequence of 128 tokens and 128 more takes 1.65 s alone, and
// sixteen that begin at once 2.0 s, as was measured on an A100 (fleet.go). The weights
// are read once per iteration, keys and values of a token at 1.5 TB/s, and a prompt costs
// nothing more up to 150 tokens. The others are in proportion.
var (
	llama = generation{formats.Iteration{BaseNS: 12.79e6, SequenceNS: 30e3, ContextNS: 350, PromptNS: 90e3, HingeTokens: 150}, 128, 128, 1 << 19}
	opt   = generation{formats.Iteration{BaseNS: 12.98e6, SequenceNS: 30e3, ContextNS: 350, PromptNS: 90e3, HingeTokens: 150}, 64, 46, 1 << 19}
	card  = generation{formats.Iteration{BaseNS: 5.42e6, SequenceNS: 15e3, ContextNS: 130, PromptNS: 17e3, HingeTokens: 150}, 128, 128, 3 << 16}
)

// generation is a language model with the tokens of a usual task.
type generation struct {
	iteration      formats.Iteration
	prompt, output float64
	kvBytes        int64 // of a token
}

// generationOf is a service as a language model; nil where it is none.
func generationOf(service int32) *generation {
	switch {
	case service == LLM:
		return &llama
	case service == OPT:
		return &opt
	case service >= Card:
		return &card
	}
	return nil
}

// kv is the KV memory of a copy, in tokens: so many sequences at their ends.
func (g *generation) kv(sequences int) int64 {
	return (int64(sequences)*int64(g.prompt+g.output) + 15) / 16 * 16
}

// on is the service as the own tables have it, on kinds of devices that take so many
// times as long.
func (g *generation) on(sequences int, slower ...float64) flow.LanguageModel {
	out := flow.LanguageModel{KVBytes: g.kvBytes, Prompt: g.prompt, Output: g.output}
	for _, f := range slower {
		it := g.iteration
		it.BaseNS, it.SequenceNS, it.ContextNS, it.PromptNS, it.AttentionNS = it.BaseNS*f, it.SequenceNS*f, it.ContextNS*f, it.PromptNS*f, it.AttentionNS*f
		out.Engines = append(out.Engines, flow.Engine{Iteration: it, KVTokens: g.kv(sequences), BlockTokens: 16, MaxSequences: int32(sequences)})
	}
	return out
}

// Tokens draws the tokens of tasks of language models.
type Tokens struct {
	// Spread is the standard deviation of an answer's length over its mean. Lengths are
	// lognormal, and at most four times the mean.
	Spread float64

	streams [3]*rand.Rand
}

// NewTokens makes the streams of a seed.
func NewTokens(seed uint64, spread float64) *Tokens {
	t := &Tokens{Spread: spread}
	for i, name := range Names {
		t.streams[i] = seeded.New(seed, "tokens/"+name)
	}
	return t
}

// draw sets the tokens of the tasks of a way.
func (t *Tokens) draw(model int32, w *Way) {
	for i := range w.n {
		k := &w.Tasks[i]
		k.Prompt, k.Output = 0, 0
		g := generationOf(k.Service)
		if g == nil {
			continue
		}
		work := 1.0
		if k.Work > 0 {
			work = float64(k.Work) / 1e6
		}
		variance := math.Log1p(t.Spread * t.Spread)
		times := min(4, math.Exp(math.Sqrt(variance)*t.streams[model].NormFloat64()-variance/2))
		k.Prompt, k.Output = int32(max(1, math.Round(g.prompt*work))), int32(max(1, math.Round(g.output*work*times)))
	}
}

// took is how long a task takes alone on a device of the first kind, in seconds.
func (t *Task) took(g *generation) float64 {
	return g.iteration.ResidenceTime(1, float64(t.Prompt), float64(t.Output), 0).Seconds()
}

// times are those of one sequence among one, two and so on.
func (g *generation) times(sequences int, slower float64) []time.Duration {
	var out []time.Duration
	for n := range sequences {
		out = append(out, seconds(slower*g.iteration.ResidenceTime(int32(n+1), g.prompt, g.output, 0).Seconds()))
	}
	return out
}
