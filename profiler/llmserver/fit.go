package llmserver

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/importer/llmruns"
	"inferplan/profiler"
	"inferplan/profiler/llmfit"
)

// Mean lengths for the one-batch profile, if the context is large enough.
const (
	oneBatchPrompt = 1000
	oneBatchAnswer = 200
)

// poorFit is the mean error of a fit above which a note reports it.
const poorFit = 0.3

// disturbedShare is by which share samples may take longer than the quieter half of them without a note.
const disturbedShare = 0.1

// makeResult fits the time of an iteration to the samples, and makes an entry of a profile. Without enough samples it
// returns an error that says what is missing. Run calls it at the end. It also sets notes about doubtful numbers.
func (r *runner) makeResult() (*Result, error) {
	budget := r.tokenBudget()
	var decodes []llmruns.MeasuredStep
	var besidePoints []llmfit.BesidePoint
	out := &Result{}
	widthSum, maxBatch := 0.0, 0

	// Average the samples of each point.
	for _, p := range r.measuredPoints() {
		s := r.average(p)
		out.Samples += len(r.knownSamples[p])
		halfWidth := r.interval(p)
		if widthSum += halfWidth; halfWidth > tightShare {
			out.Loose++
		}
		switch p.Kind {
		case decode:
			decodes = append(decodes, llmruns.MeasuredStep{Phase: llmruns.Decode, Batch: p.Sequences, Context: s.Context, Elapsed: s.TookUS.D()})
			maxBatch = max(maxBatch, p.Sequences)
		default:
			b := llmfit.BesidePoint{Sequences: p.Sequences, Context: s.Context, Prompt: s.Prompt, Iterations: s.Iterations, Chunks: s.Chunks, Elapsed: s.TookUS.D()}
			// A prompt alone runs in iterations of at most budget tokens each.
			if p.Kind == prefill && budget > 0 {
				b.Iterations = (s.Prompt + budget - 1) / budget
				b.Chunks = b.Iterations
			}
			besidePoints = append(besidePoints, b)
		}
	}
	points := len(decodes) + len(besidePoints)
	if len(decodes) == 0 || len(besidePoints) == 0 {
		return nil, fmt.Errorf("%w: %d samples of prompts and %d of decoding: expected some of both; give it a larger budget", profiler.ErrInput, len(besidePoints), len(decodes))
	}

	// Fit, and note what makes the fit doubtful.
	it, fit, err := llmfit.FitServed(decodes, besidePoints)
	if err != nil {
		return nil, err
	}
	fit.Interval = math.Round(1e4*widthSum/float64(points)) / 1e4
	if meanError := max(fit.DecodeMAPE, fit.PrefillMAPE, fit.BesideMAPE); meanError > poorFit {
		r.note("fit", "it is %.0f %% off in the mean: what is planned with it is hardly better", 100*meanError)
	}
	if slower := r.disturbance(); slower > disturbedShare {
		r.note("busy machine", "samples took %.0f %% longer than those of the quieter half; the fit is of all, and plans count that", 100*slower)
	}

	// Describe the instance.
	in := formats.LLMInstance{
		Device: r.options.Device, TensorParallel: r.options.TensorParallel, Engine: r.facts.Engine, Source: "measured at a running server",
		Iteration: *it, Fit: fit, KVTokens: r.facts.KVTokens, BlockTokens: r.facts.BlockTokens, Sequences: r.sequences(maxBatch), TokenBudget: budget, Loads: r.modelLoads(),
	}
	context := float64(cmp.Or(r.facts.Context, unknownContext))
	in.OneBatch = llmfit.OneBatch(it, decodes, maxBatch, min(oneBatchPrompt, math.Round(context/2)), min(oneBatchAnswer, math.Round(context/10)))
	if r.facts.Doubt != "" {
		r.note("KV capacity", "%s", r.facts.Doubt)
	}
	if in.KVTokens > 0 {
		in.KVSource = formats.KVFromServer
	} else {
		r.note("KV capacity", "the server does not tell it: set kv_tokens and kv_source before planning")
	}

	// Put the profile together.
	out.Profile = &formats.Profile{
		Format: formats.FormatProfile, Devices: []formats.ProfileDevice{{Device: r.options.Device}}, Models: []formats.ProfileModel{}, Notes: r.notes,
		LLMs: []formats.LLMProfile{{Model: r.options.Name, WeightBytes: r.facts.WeightBytes, ContextTokens: r.facts.Context, Instances: []formats.LLMInstance{in}}},
	}
	return out, out.Profile.Validate()
}

// measuredPoints returns the points (kinds of samples, with numbers of sequences and tokens) that have samples and
// that a fit can use, in a fixed order. Other kinds, such as load and swap, are times of operations, and are left
// out.
func (r *runner) measuredPoints() []Point {
	var out []Point
	for p := range r.knownSamples {
		if p.Kind == prefill || p.Kind == decode || p.Kind == besideKind {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b Point) int {
		return cmp.Or(strings.Compare(a.Kind, b.Kind), cmp.Compare(a.Sequences, b.Sequences), cmp.Compare(a.Context, b.Context), cmp.Compare(a.Prompt, b.Prompt))
	})
	return out
}

// undisturbed returns the samples of a point that can be compared, in the order of their times: those with the most
// frequent number of iterations. Other numbers show that something else ran in between. An iteration is one step of
// the server, in which each running sequence gets a token.
func (r *runner) undisturbed(p Point) []Sample {
	counts := map[int]int{} // samples by number of iterations
	usual := 0
	for _, s := range r.knownSamples[p] {
		counts[s.Iterations]++
	}
	for iterations, n := range counts {
		if n > counts[usual] || n == counts[usual] && iterations < usual {
			usual = iterations
		}
	}
	list := slices.DeleteFunc(slices.Clone(r.knownSamples[p]), func(s Sample) bool { return s.Iterations != usual })
	slices.SortStableFunc(list, func(a, b Sample) int { return cmp.Compare(a.TookUS, b.TookUS) })
	return list
}

// average returns one sample for a point: the middle one of the undisturbed samples, with the mean of their times,
// because queues grow with the mean.
func (r *runner) average(p Point) Sample {
	list := r.undisturbed(p)
	out := list[(len(list)-1)/2]
	out.TookUS = document.Micros(mean(elapsedTimes(list)))
	return out
}

// disturbance returns how much longer the samples took than those of a quiet machine, as a share: their mean, over
// all points, against the middle one of each point's quieter half.
func (r *runner) disturbance() float64 {
	var total, quiet float64
	for _, p := range r.measuredPoints() {
		list := r.undisturbed(p)
		total += float64(mean(elapsedTimes(list)))
		quiet += float64(list[(len(list)-1)/4].TookUS)
	}
	return total/quiet - 1
}

// elapsedTimes returns the times of samples.
func elapsedTimes(list []Sample) []time.Duration {
	out := make([]time.Duration, len(list))
	for i, s := range list {
		out[i] = s.TookUS.D()
	}
	return out
}

// interval returns how well a point's median is known: half its 95 % interval, as a share of the median. It is 1
// with fewer than two samples.
func (r *runner) interval(p Point) float64 {
	list := r.undisturbed(p)
	if len(list) < 2 {
		return 1
	}
	l := profiler.Summarize(nil, elapsedTimes(list))
	return float64(l.HalfWidthUS) / float64(l.WallUS)
}

// sequences returns how many sequences the server runs at once. It is the reported number or, if more were seen not
// to run side by side, the largest number that did (maxSequences). It returns 0 if neither is known.
func (r *runner) sequences(maxSequences int) int {
	switch {
	case r.facts.Sequences > 0:
		return r.facts.Sequences
	case r.tooMany > 0:
		r.note("sequences", "%d ran side by side and %d did not: the server does not tell its limit", maxSequences, r.tooMany)
		return maxSequences
	}
	r.note("sequences", "the server does not tell how many it runs at once: at least %d", maxSequences)
	return 0
}

// tokenBudget returns the most tokens that an iteration of the server processes: the reported number or, without one,
// that of the chunks in which long prompts ran beside sequences, rounded to the nearest power of two, which engines
// use. It returns 0 if that is not known, because prompts did not run in chunks, or in chunks of different sizes. At
// least two points, and more than half of those that ran in chunks, must agree. It then notes the number.
func (r *runner) tokenBudget() int {
	if r.facts.Budget > 0 {
		return r.facts.Budget
	}
	votes, total := map[int]int{}, 0
	for _, p := range r.measuredPoints() {
		if s := r.average(p); p.Kind == besideKind && s.Chunks > 1 {
			// An iteration runs a chunk of the prompt, and a token of every sequence.
			chunk := float64(s.Prompt)/float64(s.Chunks) + float64(p.Sequences)
			votes[int(math.Exp2(math.Round(math.Log2(chunk))))]++
			total++
		}
	}
	for budget, n := range votes {
		if n >= 2 && 2*n > total {
			r.note("iteration", "about %d tokens: by the chunks in which %d of %d long prompts came", budget, n, total)
			return budget
		}
	}
	return 0
}
