package llmfit

import (
	"fmt"
	"math"
	"slices"
	"time"

	"gonum.org/v1/gonum/mat"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/importer/llmruns"
	"inferplan/profiler"
)

// The time of an iteration (one forward pass of a server over all its sequences) is a sum of terms, each a coefficient
// times a count. These are the terms' indexes in a row of counts.
const (
	baseTerm        = iota // per iteration
	sequenceTerm           // per sequence that decodes, in each iteration
	contextTerm            // per token of context of each of them
	promptTerm             // per token of a prompt, beyond the hinge
	attentionTerm          // per pair of tokens of a prompt
	cpuSequenceTerm        // CPU time per sequence; can only be told from sequenceTerm if prompts ran beside sequences
	numTerms
)

// hinges are the values of formats.Iteration.HingeTokens that a fit tries. An iteration with up to that many tokens of
// prompts takes no longer than one without: a GPU is not busy with fewer.
var hinges = []float64{0, 32, 64, 96, 128, 160, 192, 224, 256, 320, 384, 448, 512}

// BesidePoint is a measurement of iterations that run a prompt beside sequences that decode. Without sequences,
// the prompt runs alone in all iterations.
type BesidePoint struct {
	Sequences  int     // sequences that decode
	Context    float64 // mean tokens of each of them
	Prompt     int     // tokens
	Iterations int     // total number
	Chunks     int     // number of iterations with a part of the prompt
	Elapsed    time.Duration
}

// observation is a measurement of one of two kinds: a step that was measured inside an engine, or a prompt beside
// sequences at a server. The other one is nil.
type observation struct {
	step        *llmruns.MeasuredStep
	besidePoint *BesidePoint
	elapsed     float64 // nanoseconds
}

// isPrefill reports whether the observation is of prompts alone, without sequences that decode.
func (o *observation) isPrefill() bool {
	if o.besidePoint != nil {
		return o.besidePoint.Sequences == 0
	}
	return o.step.Phase == llmruns.Prefill
}

// countTerms fills row with how often each term counts in the observation: its time is then the sum of row[term]
// times the term's coefficient. hinge is the number of a prompt's tokens that cost nothing more. A fit has one such
// row per observation. Terms are the parts of an iteration's time, such as a constant base and a cost per token of a
// prompt. A prompt beside sequences (besidePoint) counts its own terms.
func (o *observation) countTerms(hinge float64, row *[numTerms]float64) {
	*row = [numTerms]float64{}
	if o.besidePoint != nil {
		o.besidePoint.countTerms(hinge, row)
		return
	}
	m := o.step
	batch := float64(m.Batch) // sequences that run together
	addPrompts := func() {    // an iteration that runs the prompts of all of them
		tokens := float64(m.Tokens)
		row[promptTerm] += max(0, batch*tokens-hinge)
		row[attentionTerm] += batch * tokens * (m.Context + tokens/2) // each token attends to the context and to those before it
		row[cpuSequenceTerm] += batch
		row[baseTerm]++
	}
	switch m.Phase {
	case llmruns.Prefill:
		addPrompts()
	case llmruns.Decode:
		row[baseTerm], row[sequenceTerm], row[contextTerm], row[cpuSequenceTerm] = 1, batch, batch*m.Context, batch
	case llmruns.WholeStep:
		// The prompts, and an iteration for every further token of the answers. The context grows by one in each.
		addPrompts()
		steps := float64(m.Output - 1)
		row[baseTerm] += steps
		row[sequenceTerm] += steps * batch
		row[cpuSequenceTerm] += steps * batch
		row[contextTerm] += batch * (steps*float64(m.Tokens) + steps*(steps-1)/2)
	}
}

// countTerms fills row, which is zero, for a prompt that runs beside sequences. Each of its chunks (parts, one per
// iteration) shares an iteration, and its hinge, with all sequences.
func (b *BesidePoint) countTerms(hinge float64, row *[numTerms]float64) {
	tokens, chunks, decoded := float64(b.Prompt), float64(b.Chunks), float64(b.Sequences*b.Iterations) // decoded tokens of all sequences
	row[baseTerm], row[sequenceTerm], row[contextTerm] = float64(b.Iterations), decoded, decoded*b.Context
	// Tokens above the hinge cost time. In each chunk's iteration, a token of every sequence counts toward it, too.
	row[promptTerm], row[attentionTerm] = max(0, chunks*(float64(b.Sequences)-hinge)+tokens), tokens*tokens/2
	row[cpuSequenceTerm] = decoded + chunks
}

// tile is the smallest number of tokens of a chunk that attend to a block of context at once: kernels like
// FlashAttention read the block once per tile. A pair of tokens of a prompt therefore costs at most 1/tile of the
// cost of reading a token of context.
const tile = 32

// Iteration fits the coefficients of an iteration to measurements of one model on one kind of device: least
// squares of the relative error, with no coefficient below 0, for the best hinge. Partial measurements are left
// out. Prompts that were measured alone hardly separate attention from the rest, so attention is bounded by the
// cost of reading context.
func Iteration(steps []llmruns.MeasuredStep) (*formats.Iteration, *formats.IterationFit, error) {
	return fitIteration(observationsOf(steps), tile, 1<<cpuSequenceTerm-1) // all terms but the CPU time of sequences
}

// FitServed fits an iteration to measurements at a server: sequences that decode alone, and prompts beside them. The
// CPU time of the server per iteration is part of the base. Its CPU time per sequence can be separated from decoding
// by the prompts. A pair of tokens costs at most as much as in decoding, because not every server computes in tiles.
// Each element of besidePoints is a prompt, alone or beside sequences that decode, with the time of the iterations
// that ran it.
func FitServed(decode []llmruns.MeasuredStep, besidePoints []BesidePoint) (*formats.Iteration, *formats.IterationFit, error) {
	list := observationsOf(decode)
	for i := range besidePoints {
		if b := &besidePoints[i]; b.Elapsed > 0 {
			list = append(list, observation{besidePoint: b, elapsed: float64(b.Elapsed)})
		}
	}
	return fitIteration(list, 1, 1<<numTerms-1) // all terms
}

// observationsOf returns the measured steps that a fit can use. Partial ones, without attention, are left out.
func observationsOf(steps []llmruns.MeasuredStep) []observation {
	var list []observation
	for i := range steps {
		if m := &steps[i]; m.Phase != llmruns.Partial && m.Elapsed > 0 {
			list = append(list, observation{step: m, elapsed: float64(m.Elapsed)})
		}
	}
	return list
}

// fitIteration finds the coefficients of the terms whose bits are set in allowedTerms, and the hinge. The other
// coefficients are 0. A pair of a prompt's tokens costs at most 1/tile of the cost of reading a token of context. The
// hinge is the number of a prompt's tokens that cost nothing more, because the weights must be read in any case.
// Times are in nanoseconds. With a tile of 1 the bound is that cost itself.
func fitIteration(list []observation, tile float64, allowedTerms int) (*formats.Iteration, *formats.IterationFit, error) {
	hasPrompts := slices.ContainsFunc(list, func(o observation) bool { return o.besidePoint != nil || o.step.Phase != llmruns.Decode })
	hasDecodes := slices.ContainsFunc(list, func(o observation) bool { return !o.isPrefill() })
	if !hasPrompts || !hasDecodes {
		return nil, nil, fmt.Errorf("%w: %d measurements, expected some of prompts and some of decoding", profiler.ErrInput, len(list))
	}

	// Fit at every hinge, and keep the best. If attention comes out above its bound, fit again with it fixed there.
	bestTerms, minError := [numTerms]float64{}, math.Inf(1)
	hinge, base := 0.0, minBase(list)
	for _, h := range hinges {
		coefficients, squaredError := nonNegative(list, h, base, -1, allowedTerms)
		if maxAttention := coefficients[contextTerm] / tile; coefficients[attentionTerm] > maxAttention {
			coefficients, squaredError = nonNegative(list, h, base, maxAttention, allowedTerms&^(1<<attentionTerm))
		}
		if squaredError < minError {
			bestTerms, minError, hinge = coefficients, squaredError, h
		}
	}
	if math.IsInf(minError, 1) || bestTerms[baseTerm] <= 0 {
		return nil, nil, fmt.Errorf("%w: %d measurements do not tell what an iteration takes at least", profiler.ErrInput, len(list))
	}
	it := &formats.Iteration{
		BaseNS: digits(bestTerms[baseTerm]), SequenceNS: digits(bestTerms[sequenceTerm]), ContextNS: digits(bestTerms[contextTerm]),
		PromptNS: digits(bestTerms[promptTerm]), HingeTokens: hinge, AttentionNS: digits(bestTerms[attentionTerm]), CPUSequenceNS: digits(bestTerms[cpuSequenceTerm]),
	}
	return it, errorsOf(it, list), nil
}

// digits rounds to six significant digits, more than the precision of any measurement.
func digits(x float64) float64 {
	if x == 0 {
		return 0
	}
	scale := math.Pow(10, 5-math.Floor(math.Log10(math.Abs(x))))
	return math.Round(x*scale) / scale
}

// basePart is the smallest base, as a part of the shortest iteration, since no iteration is free. On a CPU each
// sequence of a small model takes as long as the first, and nothing would be left for the base.
const basePart = 0.01

// minBase returns the smallest base (the time of an iteration before any token counts) that a fit may have, in
// nanoseconds: basePart of the shortest time that any measured iteration took in the mean.
func minBase(list []observation) float64 {
	shortest := math.Inf(1)
	for i := range list {
		var row [numTerms]float64
		list[i].countTerms(0, &row)
		shortest = min(shortest, list[i].elapsed/row[baseTerm])
	}
	return basePart * shortest
}

// nonNegative returns the coefficients of the terms with the least sum of squared relative errors over the
// measurements, and that sum. No coefficient is negative, and the base is at least the given one, in nanoseconds. It
// tries all subsets of the allowed terms; the other coefficients are 0. In subsets without the base, the base has its
// smallest value. If attention is not negative, it is the fixed coefficient of attentionTerm. A negative attention is
// free to be fitted. allowedTerms is a bit set.
func nonNegative(list []observation, hinge, base, attention float64, allowedTerms int) (bestTerms [numTerms]float64, minError float64) {
	// Divide each row by its time, so that errors are relative and every time becomes 1. Attention, if fixed, goes to the
	// other side.
	rows, residuals := make([][numTerms]float64, len(list)), make([]float64, len(list))
	targets := make([]float64, len(list))
	for i := range list {
		list[i].countTerms(hinge, &rows[i])
		for k := range rows[i] {
			rows[i][k] /= list[i].elapsed
		}
		residuals[i] = 1 - rows[i][attentionTerm]*max(0, attention)
	}

	// Solve for every allowed subset of coefficients, and keep the best valid solution.
	minError = math.Inf(1)
	for set := 1; set < 1<<numTerms; set++ {
		if set&^allowedTerms != 0 {
			continue
		}
		constantPart := base // if the set leaves the base out
		if set&(1<<baseTerm) != 0 {
			constantPart = 0
		}
		for i := range rows {
			targets[i] = residuals[i] - rows[i][baseTerm]*constantPart
		}
		var terms []int // those of the subset
		for k := range numTerms {
			if set>>k&1 == 1 {
				terms = append(terms, k)
			}
		}
		if len(list) < len(terms) {
			continue
		}
		x, ok := solve(rows, targets, terms)
		if !ok || constantPart == 0 && x[baseTerm] < base {
			continue
		}
		sum := 0.0
		for i := range rows {
			relativeError := -targets[i]
			for _, k := range terms {
				relativeError += rows[i][k] * x[k]
			}
			sum += relativeError * relativeError
		}
		if sum < minError*(1-1e-12) { // better by more than rounding
			bestTerms, minError = x, sum
			bestTerms[baseTerm] += constantPart
			if attention >= 0 {
				bestTerms[attentionTerm] = attention
			}
		}
	}
	return bestTerms, minError
}

// solve returns the least-squares solution x of rows * x = targets in which only the coefficients of the given terms
// (columns) are not 0. It returns false if the solution is not defined, because columns depend on each other, or if
// it has a negative coefficient.
func solve(rows [][numTerms]float64, targets []float64, terms []int) (x [numTerms]float64, ok bool) {
	scaled := mat.NewDense(len(rows), len(terms), nil)
	scale := make([]float64, len(terms)) // largest entry of each column

	// Scale every column by its largest entry. One without entries has no solution.
	for i := range rows {
		for j, term := range terms {
			scale[j] = max(scale[j], math.Abs(rows[i][term]))
		}
	}
	if slices.Min(scale) == 0 {
		return x, false
	}
	for i := range rows {
		for j, term := range terms {
			scaled.Set(i, j, rows[i][term]/scale[j])
		}
	}

	// Solve by a QR decomposition, and undo the scaling.
	var qr mat.QR
	qr.Factorize(scaled)
	var solution mat.VecDense
	if qr.SolveVecTo(&solution, false, mat.NewVecDense(len(rows), targets)) != nil || qr.Cond() > 1e8 {
		return x, false
	}
	for j, term := range terms {
		if x[term] = solution.AtVec(j) / scale[j]; x[term] < 0 {
			return x, false
		}
	}
	return x, true
}

// predict returns the time in nanoseconds that a fit gives for an observation.
func predict(it *formats.Iteration, o *observation) float64 {
	var row [numTerms]float64
	o.countTerms(it.HingeTokens, &row)
	return row[baseTerm]*it.BaseNS + row[sequenceTerm]*it.SequenceNS + row[contextTerm]*it.ContextNS + row[promptTerm]*it.PromptNS + row[attentionTerm]*it.AttentionNS + row[cpuSequenceTerm]*it.CPUSequenceNS
}

// errorsOf returns how far a fit is off on its measurements: the mean and the largest relative error of prompts
// alone, of decoding, and of prompts beside sequences. Batches from start to end count as decoding, because most of
// their time is.
func errorsOf(it *formats.Iteration, list []observation) *formats.IterationFit {
	f := &formats.IterationFit{Points: len(list)}
	prompts, decodes, besideCount := 0, 0, 0
	for i := range list {
		o := &list[i]
		sum, maxError, n := &f.DecodeMAPE, &f.DecodeMax, &decodes
		switch {
		case o.isPrefill():
			sum, maxError, n = &f.PrefillMAPE, &f.PrefillMax, &prompts
		case o.besidePoint != nil:
			sum, maxError, n = &f.BesideMAPE, &f.BesideMax, &besideCount
		}
		e := math.Abs(predict(it, o)-o.elapsed) / o.elapsed
		*sum += e
		*maxError = max(*maxError, e)
		*n++
	}
	f.PrefillMAPE, f.DecodeMAPE, f.BesideMAPE = roundShare(f.PrefillMAPE, prompts), roundShare(f.DecodeMAPE, decodes), roundShare(f.BesideMAPE, besideCount)
	f.PrefillMax, f.DecodeMax, f.BesideMax = digits(f.PrefillMax), digits(f.DecodeMax), digits(f.BesideMax)
	return f
}

// roundShare returns the mean of n relative errors with this sum, rounded.
func roundShare(sum float64, n int) float64 { return digits(sum / float64(max(1, n))) }

// OneBatch returns the profile that QLM (a planner of others, to compare with) makes of one batch (section 6): its
// prompt phase, a time per token and a throughput, all taken as constant. The batch has that many sequences, with
// mean lengths of prompt and output (the answer) in tokens. The error is that of its time per token at other batches
// and contexts.
func OneBatch(it *formats.Iteration, steps []llmruns.MeasuredStep, sequences int, prompt, output float64) *formats.OneBatch {
	token := it.TokenTime(int32(sequences), prompt+output/2)
	prefill := it.PrefillTime(int32(max(1, prompt)), 0)
	// Each slot of the batch runs a prompt per answer, beside the decoding of the others.
	residence := float64(prefill)*float64(sequences) + output*float64(token)
	b := &formats.OneBatch{
		Sequences: sequences, PrefillUS: document.Micros(prefill), TokenUS: document.Micros(token),
		Inefficiency: digits(residence / (output * float64(token))), TokensPerSecond: digits(float64(sequences) * output / (residence / float64(time.Second))),
	}
	sum, n := 0.0, 0
	for i := range steps {
		if m := &steps[i]; m.Phase == llmruns.Decode && m.Elapsed > 0 {
			sum += math.Abs(float64(token)-float64(m.Elapsed)) / float64(m.Elapsed)
			n++
		}
	}
	b.Error = roundShare(sum, n)
	return b
}
