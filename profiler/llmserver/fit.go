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

// averagedPoints are the points of a run, each with the average of its samples.
type averagedPoints struct {
	decodes  []llmruns.MeasuredStep
	beside   []llmfit.BesidePoint
	samples  int     // of all points
	loose    int     // points whose interval is wide
	widthSum float64 // sum of the half widths of the points' intervals
	maxBatch int     // largest number of sequences that decoded at once
}

// averagePoints averages the samples of each point. Where the budget of tokens is known, a prompt alone takes as many
// iterations as it says.
func (r *runner) averagePoints(budget int) averagedPoints {
	var out averagedPoints
	for _, p := range r.measuredPoints() {
		s := r.average(p)
		out.samples += len(r.knownSamples[p])
		halfWidth := r.interval(p)
		if out.widthSum += halfWidth; halfWidth > tightShare {
			out.loose++
		}
		if p.Kind == decode {
			out.decodes = append(out.decodes, llmruns.MeasuredStep{Phase: llmruns.Decode, Batch: p.Sequences, Context: s.Context, Elapsed: s.TookUS.D()})
			out.maxBatch = max(out.maxBatch, p.Sequences)
			continue
		}
		b := llmfit.BesidePoint{Sequences: p.Sequences, Context: s.Context, Prompt: s.Prompt, Iterations: s.Iterations, Chunks: s.Chunks, Elapsed: s.TookUS.D()}
		if p.Kind == prefill && budget > 0 {
			b.Iterations = (s.Prompt + budget - 1) / budget
			b.Chunks = b.Iterations
		}
		out.beside = append(out.beside, b)
	}
	return out
}

// makeResult makes an entry of a profile from the samples. Without enough of them it returns an error that says
// what is missing.
func (r *runner) makeResult() (*Result, error) {
	budget := r.tokenBudget()
	points := r.averagePoints(budget)
	if len(points.decodes) == 0 || len(points.beside) == 0 {
		return nil, fmt.Errorf("%w: %d samples of prompts and %d of decoding: expected some of both; give it a larger budget", profiler.ErrInput, len(points.beside), len(points.decodes))
	}

	// Fit, and note what makes the fit doubtful.
	it, fit, err := llmfit.FitServed(points.decodes, points.beside)
	if err != nil {
		return nil, err
	}
	fit.Interval = math.Round(1e4*points.widthSum/float64(len(points.decodes)+len(points.beside))) / 1e4
	if maxHalfWidth := max(fit.DecodeMAPE, fit.PrefillMAPE, fit.BesideMAPE); maxHalfWidth > poorFit {
		r.note("fit", "it is %.0f %% off in the mean: what is planned with it is hardly better", 100*maxHalfWidth)
	}
	if slower := r.disturbance(); slower > disturbedShare {
		r.note("busy machine", "samples took %.0f %% longer than those of the quieter half; the fit is of all, and plans count that", 100*slower)
	}

	// Describe the instance.
	in := formats.LLMInstance{
		Device: r.o.Device, TensorParallel: r.o.TensorParallel, Engine: r.facts.Engine, Source: "measured at a running server",
		Iteration: *it, Fit: fit, KVTokens: r.facts.KVTokens, BlockTokens: r.facts.BlockTokens, Sequences: r.sequences(points.maxBatch), TokenBudget: budget, Loads: r.modelLoads(),
	}
	context := float64(cmp.Or(r.facts.Context, unknownContext))
	in.OneBatch = llmfit.OneBatch(it, points.decodes, points.maxBatch, min(oneBatchPrompt, math.Round(context/2)), min(oneBatchAnswer, math.Round(context/10)))
	if r.facts.Doubt != "" {
		r.note("KV capacity", "%s", r.facts.Doubt)
	}
	if in.KVTokens > 0 {
		in.KVSource = formats.KVFromServer
	} else {
		r.note("KV capacity", "the server does not tell it: set kv_tokens and kv_source before planning")
	}

	// Put the profile together.
	out := &Result{Samples: points.samples, Loose: points.loose}
	out.Profile = &formats.Profile{
		Format: formats.FormatProfile, Devices: []formats.ProfileDevice{{Device: r.o.Device}}, Models: []formats.ProfileModel{}, Notes: r.notes,
		LLMs: []formats.LLMProfile{{Model: r.o.Name, WeightBytes: r.facts.WeightBytes, ContextTokens: r.facts.Context, Instances: []formats.LLMInstance{in}}},
	}
	return out, out.Profile.Validate()
}

// measuredPoints returns the points with samples that a fit can use, in a fixed order.
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

// undisturbed returns the samples of a point with the same number of iterations, the most frequent number, in the
// order of their times.
func (r *runner) undisturbed(p Point) []Sample {
	counts := map[int]int{}
	bestStart := 0
	for _, s := range r.knownSamples[p] {
		counts[s.Iterations]++
	}
	for n, times := range counts {
		if times > counts[bestStart] || times == counts[bestStart] && n < bestStart {
			bestStart = n
		}
	}
	list := slices.DeleteFunc(slices.Clone(r.knownSamples[p]), func(s Sample) bool { return s.Iterations != bestStart })
	slices.SortStableFunc(list, func(a, b Sample) int { return cmp.Compare(a.TookUS, b.TookUS) })
	return list
}

// average returns the middle one of them with the mean of their times, because queues grow with the mean.
func (r *runner) average(p Point) Sample {
	list := r.undisturbed(p)
	out := list[(len(list)-1)/2]
	out.TookUS = document.Micros(mean(elapsedTimes(list)))
	return out
}

// disturbance returns by which share all samples took longer than the middle one of each point's quieter half.
func (r *runner) disturbance() float64 {
	var total, quiet float64
	for _, p := range r.measuredPoints() {
		list := r.undisturbed(p)
		total += float64(mean(elapsedTimes(list)))
		quiet += float64(list[(len(list)-1)/4].TookUS)
	}
	return total/quiet - 1
}

func elapsedTimes(list []Sample) []time.Duration {
	out := make([]time.Duration, len(list))
	for i, s := range list {
		out[i] = s.TookUS.D()
	}
	return out
}

// interval returns half the 95 % interval of a point's median, as a share of the median. With too few samples it
// is large.
func (r *runner) interval(p Point) float64 {
	list := r.undisturbed(p)
	if len(list) < 2 {
		return 1
	}
	l := profiler.Summarize(nil, elapsedTimes(list))
	return float64(l.HalfWidthUS) / float64(l.WallUS)
}

// sequences returns how many sequences the server runs at once: the reported number, else the largest number that
// ran concurrently if more did not. It returns 0 if that is not known.
func (r *runner) sequences(maxSequences int) int {
	switch {
	case r.facts.Sequences > 0:
		return r.facts.Sequences
	case r.spacing > 0:
		r.note("sequences", "%d ran side by side and %d did not: the server does not tell its limit", maxSequences, r.spacing)
		return maxSequences
	}
	r.note("sequences", "the server does not tell how many it runs at once: at least %d", maxSequences)
	return 0
}

// tokenBudget returns the tokens of an iteration: the reported number, else that of the chunks in which prompts
// ran beside sequences, rounded to the nearest power of two, which engines use. It returns 0 if that is not known,
// because prompts did not run in chunks, or in chunks of different sizes.
func (r *runner) tokenBudget() int {
	if r.facts.Budget > 0 {
		return r.facts.Budget
	}
	votes, total := map[int]int{}, 0
	for _, p := range r.measuredPoints() {
		if s := r.average(p); p.Kind == besideKind && s.Chunks > 1 {
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
