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

// coefficients of an iteration, in the order of a row.
const (
	ofBase = iota
	ofSequence
	ofContext
	ofPrompt
	ofAttention
	ofCPUSequence // can only be distinguished if prompts ran beside sequences
	numCoefficients
)

// hinges are the values of formats.Iteration.HingeTokens that a fit tries. Up to the hinge, a prompt's tokens cost
// nothing more.
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

// observation is a measurement (of m or b) with the number of times that each coefficient counts in it.
type observation struct {
	m       *llmruns.MeasuredStep
	b       *BesidePoint
	elapsed float64 // nanoseconds
}

// prefill reports whether it is of prompts alone.
func (o *observation) prefill() bool {
	if o.b != nil {
		return o.b.Sequences == 0
	}
	return o.m.Phase == llmruns.Prefill
}

// row fills row with the factor of each coefficient, for a hinge.
func (o *observation) row(hinge float64, row *[numCoefficients]float64) {
	*row = [numCoefficients]float64{}
	if o.b != nil {
		o.b.row(hinge, row)
		return
	}
	m := o.m
	batch := float64(m.Batch)
	prompt := func() {
		tokens := float64(m.Tokens)
		row[ofPrompt] += max(0, batch*tokens-hinge)
		row[ofAttention] += batch * tokens * (m.Context + tokens/2)
		row[ofCPUSequence] += batch
		row[ofBase]++
	}
	switch m.Phase {
	case llmruns.Prefill:
		prompt()
	case llmruns.Decode:
		row[ofBase], row[ofSequence], row[ofContext], row[ofCPUSequence] = 1, batch, batch*m.Context, batch
	case llmruns.WholeStep:
		prompt()
		steps := float64(m.Output - 1)
		row[ofBase] += steps
		row[ofSequence] += steps * batch
		row[ofCPUSequence] += steps * batch
		row[ofContext] += batch * (steps*float64(m.Tokens) + steps*(steps-1)/2)
	}
}

func (b *BesidePoint) row(hinge float64, row *[numCoefficients]float64) {
	n, chunks, decode := float64(b.Prompt), float64(b.Chunks), float64(b.Sequences*b.Iterations)
	row[ofBase], row[ofSequence], row[ofContext] = float64(b.Iterations), decode, decode*b.Context
	row[ofPrompt], row[ofAttention] = max(0, chunks*(float64(b.Sequences)-hinge)+n), n*n/2
	row[ofCPUSequence] = decode + chunks
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
	return fitIteration(observationsOf(steps), tile, 1<<ofCPUSequence-1)
}

// FitServed fits an iteration to measurements at a server: sequences that decode alone, and prompts beside them.
// The CPU time of the server per iteration is part of the base. Its CPU time per sequence can be separated from
// decoding by the prompts. A pair of tokens costs at most as much as in decoding, because not every server
// computes in tiles.
func FitServed(decode []llmruns.MeasuredStep, besidePoints []BesidePoint) (*formats.Iteration, *formats.IterationFit, error) {
	list := observationsOf(decode)
	for i := range besidePoints {
		if b := &besidePoints[i]; b.Elapsed > 0 {
			list = append(list, observation{b: b, elapsed: float64(b.Elapsed)})
		}
	}
	return fitIteration(list, 1, 1<<numCoefficients-1)
}

func observationsOf(steps []llmruns.MeasuredStep) []observation {
	var list []observation
	for i := range steps {
		if m := &steps[i]; m.Phase != llmruns.Partial && m.Elapsed > 0 {
			list = append(list, observation{m: m, elapsed: float64(m.Elapsed)})
		}
	}
	return list
}

// fitIteration finds the coefficients whose bits are set in allowedTerms. The others are 0.
func fitIteration(list []observation, tile float64, allowedTerms int) (*formats.Iteration, *formats.IterationFit, error) {
	prompts := slices.ContainsFunc(list, func(o observation) bool { return o.b != nil || o.m.Phase != llmruns.Decode })
	decodes := slices.ContainsFunc(list, func(o observation) bool { return !o.prefill() })
	if !prompts || !decodes {
		return nil, nil, fmt.Errorf("%w: %d measurements, expected some of prompts and some of decoding", profiler.ErrInput, len(list))
	}
	bestTerms, minError := [numCoefficients]float64{}, math.Inf(1)
	hinge, base := 0.0, minBase(list)
	for _, h := range hinges {
		x, err := nonNegative(list, h, base, -1, allowedTerms)
		if maxTokens := x[ofContext] / tile; x[ofAttention] > maxTokens {
			x, err = nonNegative(list, h, base, maxTokens, allowedTerms&^(1<<ofAttention))
		}
		if err < minError {
			bestTerms, minError, hinge = x, err, h
		}
	}
	if math.IsInf(minError, 1) || bestTerms[ofBase] <= 0 {
		return nil, nil, fmt.Errorf("%w: %d measurements do not tell what an iteration takes at least", profiler.ErrInput, len(list))
	}
	it := &formats.Iteration{
		BaseNS: digits(bestTerms[ofBase]), SequenceNS: digits(bestTerms[ofSequence]), ContextNS: digits(bestTerms[ofContext]),
		PromptNS: digits(bestTerms[ofPrompt]), HingeTokens: hinge, AttentionNS: digits(bestTerms[ofAttention]), CPUSequenceNS: digits(bestTerms[ofCPUSequence]),
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

// minBase returns the smallest base that a fit may have, in nanoseconds.
func minBase(list []observation) float64 {
	shortest := math.Inf(1)
	for i := range list {
		var row [numCoefficients]float64
		list[i].row(0, &row)
		shortest = min(shortest, list[i].elapsed/row[ofBase])
	}
	return basePart * shortest
}

// nonNegative returns the least-squares solution whose base is at least the one given and whose other coefficients
// are not negative, and its sum of squared relative errors. It tries all subsets of the allowed coefficients. In
// subsets without the base, the base has its smallest value. If attention is not negative, that coefficient has
// this fixed value.
func nonNegative(list []observation, hinge, base, attention float64, allowedTerms int) (bestTerms [numCoefficients]float64, minError float64) {
	// Divide each row by its time, so that errors are relative. Attention, if fixed, goes to the other side.
	rows, residuals := make([][numCoefficients]float64, len(list)), make([]float64, len(list))
	targets := make([]float64, len(list))
	for i := range list {
		list[i].row(hinge, &rows[i])
		for k := range rows[i] {
			rows[i][k] /= list[i].elapsed
		}
		residuals[i] = 1 - rows[i][ofAttention]*max(0, attention)
	}

	// Solve for every allowed subset of coefficients, and keep the best valid solution.
	minError = math.Inf(1)
	for set := 1; set < 1<<numCoefficients; set++ {
		if set&^allowedTerms != 0 {
			continue
		}
		constantPart := base // if the set leaves the base out
		if set&(1<<ofBase) != 0 {
			constantPart = 0
		}
		for i := range rows {
			targets[i] = residuals[i] - rows[i][ofBase]*constantPart
		}
		var in []int
		for k := range numCoefficients {
			if set>>k&1 == 1 {
				in = append(in, k)
			}
		}
		if len(list) < len(in) {
			continue
		}
		x, ok := solve(rows, targets, in)
		if !ok || constantPart == 0 && x[ofBase] < base {
			continue
		}
		sum := 0.0
		for i := range rows {
			e := -targets[i]
			for _, k := range in {
				e += rows[i][k] * x[k]
			}
			sum += e * e
		}
		if sum < minError*(1-1e-12) {
			bestTerms, minError = x, sum
			bestTerms[ofBase] += constantPart
			if attention >= 0 {
				bestTerms[ofAttention] = attention
			}
		}
	}
	return bestTerms, minError
}

// solve returns the least-squares solution of rows * x = targets over some columns. It returns false if the
// solution is not defined, or has a negative coefficient.
func solve(rows [][numCoefficients]float64, targets []float64, in []int) (x [numCoefficients]float64, ok bool) {
	a := mat.NewDense(len(rows), len(in), nil)
	scale := make([]float64, len(in)) // makes the columns similar in size
	for i := range rows {
		for j, k := range in {
			scale[j] = max(scale[j], math.Abs(rows[i][k]))
		}
	}
	if slices.Min(scale) == 0 {
		return x, false
	}
	for i := range rows {
		for j, k := range in {
			a.Set(i, j, rows[i][k]/scale[j])
		}
	}
	var qr mat.QR
	qr.Factorize(a)
	var solution mat.VecDense
	if qr.SolveVecTo(&solution, false, mat.NewVecDense(len(rows), targets)) != nil || qr.Cond() > 1e8 {
		return x, false
	}
	for j, k := range in {
		if x[k] = solution.AtVec(j) / scale[j]; x[k] < 0 {
			return x, false
		}
	}
	return x, true
}

// predict returns the time of an iteration, or of the iterations of a batch, by a fit.
func predict(it *formats.Iteration, o *observation) float64 {
	var row [numCoefficients]float64
	o.row(it.HingeTokens, &row)
	return row[ofBase]*it.BaseNS + row[ofSequence]*it.SequenceNS + row[ofContext]*it.ContextNS + row[ofPrompt]*it.PromptNS + row[ofAttention]*it.AttentionNS + row[ofCPUSequence]*it.CPUSequenceNS
}

// errorsOf returns the errors of a fit on its measurements. Batches from start to end count as decoding, because
// most of their time is.
func errorsOf(it *formats.Iteration, list []observation) *formats.IterationFit {
	f := &formats.IterationFit{Points: len(list)}
	prompts, decodes, besideCount := 0, 0, 0
	for i := range list {
		o := &list[i]
		sum, maxError, n := &f.DecodeMAPE, &f.DecodeMax, &decodes
		switch {
		case o.prefill():
			sum, maxError, n = &f.PrefillMAPE, &f.PrefillMax, &prompts
		case o.b != nil:
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

func roundShare(sum float64, n int) float64 { return digits(sum / float64(max(1, n))) }

// OneBatch returns the profile that QLM makes of one batch (section 6): its prompt phase, a time per token and a
// throughput, all taken as constant. The error is that of its time per token at other batches and contexts.
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
