package llmserver

import (
	"cmp"
	"slices"
	"time"

	"inferplan/engine/llm"
)

// Kinds of points.
const (
	prefill    = "prefill"
	decode     = "decode"
	besideKind = "beside"
	load       = "load"
	cold       = "cold" // the load at the beginning of a run
	unload     = "unload"
	sleep      = "sleep"
	wake       = "wake"
	swap       = "swap"
)

// Point describes a measurement. Token counts are the requested ones. The actual ones are in the samples.
type Point struct {
	Kind      string `json:"what"`
	Sequences int    `json:"sequences,omitempty"` // sequences that decode
	Context   int    `json:"context,omitempty"`   // tokens of each sequence when it begins to decode
	Prompt    int    `json:"prompt,omitempty"`    // tokens that run alone or beside them
}

// steps is the number of tokens that each sequence makes while all of them decode.
const steps = 32

// slackChunk determines how many more tokens each makes, because sequences start one after the other: prompts run
// in chunks of at least slackChunk tokens, and each may be followed by an iteration.
const slackChunk = 256

// tokens returns the number of tokens that each sequence of the point makes: steps of them while all sequences decode,
// and those before and after.
func (p Point) tokens() int {
	return steps + p.Sequences + (p.Sequences*p.Context+p.Prompt)/slackChunk + 8
}

// limits are the limits of a server. 0 means not known.
type limits struct {
	context, kv, sequences int
}

// limitsOf returns the limits that a server reports.
func limitsOf(f llm.Facts) limits {
	return limits{f.Context, int(f.KVTokens), f.Sequences}
}

// If the server does not report its limits, points have at most this context and this many sequences.
const (
	unknownContext   = 4096
	unknownSequences = 64
)

// grid returns the points to measure: prompts alone of growing length, growing numbers of sequences that decode at
// growing lengths, and prompts beside sequences. It leaves out what the server cannot hold by its limits. A limit
// that is not known (0) is replaced by a usual one, except that of the KV memory.
func grid(l limits) []Point {
	context, sequences := cmp.Or(l.context, unknownContext), cmp.Or(l.sequences, unknownSequences)
	isPossible := func(p Point) bool {
		tokensEach := p.Context + p.tokens()
		total := p.Sequences*tokensEach + p.Prompt + 2 // a prompt alone has an answer of two tokens
		// Prompts are only about as long as asked for, and blocks are not full.
		return p.Sequences <= sequences && tokensEach*10 <= context*9 && (p.Prompt+2)*10 <= context*9 && (l.kv == 0 || total*10 <= l.kv*9)
	}
	var out []Point
	add := func(p Point) {
		if isPossible(p) && !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	for n := 16; n <= context; n *= 2 {
		add(Point{Kind: prefill, Prompt: n})
		if n < 1024 { // short prompts are cheap, so measure lengths in between
			add(Point{Kind: prefill, Prompt: n + n/2})
		}
	}
	lengths := []int{32}
	for n := 256; n <= context; n *= 4 {
		lengths = append(lengths, n)
	}
	for _, b := range batches(sequences) {
		for _, c := range lengths {
			add(Point{Kind: decode, Sequences: b, Context: c})
		}
	}
	for _, d := range besideOf(sequences) {
		for n := 64; n <= context; n *= 4 {
			add(Point{Kind: besideKind, Sequences: d, Context: 32, Prompt: n})
		}
	}
	return out
}

// batches returns the numbers of sequences that are measured decoding together: powers of two, and the most.
func batches(maxBatch int) []int {
	var out []int
	for b := 1; b < maxBatch; b *= 2 {
		out = append(out, b)
	}
	return append(out, maxBatch)
}

// besideOf returns the numbers of sequences beside which prompts are measured: one, a fourth of the most, and all
// but one, which leaves room for the prompt.
func besideOf(maxBatch int) []int {
	var out []int
	for _, d := range []int{1, maxBatch / 4, maxBatch - 1} {
		if d >= 1 && d < maxBatch && !slices.Contains(out, d) {
			out = append(out, d)
		}
	}
	return out
}

// pointCosts are first estimates of the server's costs.
type pointCosts struct {
	token  time.Duration // time per token of one sequence
	prompt float64       // ns of a prompt's token
	start  time.Duration // time from a request to its first token
}

// costOf returns the approximate time of one sample of a point, by which the budget is spent before anything is
// known. It assumes that another sequence costs a tenth of an iteration. That is less on a server that batches well,
// and more on few cores.
func (c pointCosts) costOf(p Point) time.Duration {
	prompts := time.Duration(c.prompt * float64(p.Prompt+p.Sequences*p.Context))
	if p.Sequences == 0 {
		return c.start + prompts
	}
	iteration := c.token + c.token*time.Duration(p.Sequences-1)/10
	return c.start + prompts + iteration*time.Duration(p.tokens())
}
