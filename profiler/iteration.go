package profiler

import (
	"fmt"
	"math"
	"slices"
	"time"

	"gonum.org/v1/gonum/mat"

	"inferplan/formats"
	"inferplan/formats/importer/llmruns"
)

// coefficients of an iteration, in the order of a row.
const (
	ofBase = iota
	ofSequence
	ofContext
	ofPrompt
	ofAttention
	numCoefficients
)

// hinges are the values of formats.Iteration.HingeTokens that a fit tries: a
// prompt's tokens cost nothing more up to there.
var hinges = []float64{0, 32, 64, 96, 128, 160, 192, 224, 256, 320, 384, 448, 512}

// observation is how often each coefficient counts in what was measured.
type observation struct {
	m    *llmruns.Measured
	took float64 // ns
}

// row is what an observation counts of each coefficient, for a hinge.
func (o *observation) row(hinge float64, row *[numCoefficients]float64) {
	*row = [numCoefficients]float64{}
	m := o.m
	batch := float64(m.Batch)
	prompt := func() {
		tokens := float64(m.Tokens)
		row[ofPrompt] += max(0, batch*tokens-hinge)
		row[ofAttention] += batch * tokens * (m.Context + tokens/2)
		row[ofBase]++
	}
	switch m.Phase {
	case llmruns.Prefill:
		prompt()
	case llmruns.Decode:
		row[ofBase], row[ofSequence], row[ofContext] = 1, batch, batch*m.Context
	case llmruns.Whole:
		prompt()
		steps := float64(m.Output - 1)
		row[ofBase] += steps
		row[ofSequence] += steps * batch
		row[ofContext] += batch * (steps*float64(m.Tokens) + steps*(steps-1)/2)
	}
}

// tile is how many tokens of a chunk attend to a block of context at once, at
// least: kernels of the FlashAttention kind read it once per tile. A pair of tokens
// of a prompt therefore costs at most a tile's part of what reading a token of
// context costs.
const tile = 32

// FitIteration fits the coefficients of an iteration to measurements of one model
// on one kind of devices: least squares of the relative error, with no coefficient
// below 0, for the best hinge. Partial measurements are left out. Prompts that were
// measured alone hardly tell attention from the rest; it is bounded by the cost of
// reading context.
func FitIteration(measured []llmruns.Measured) (*formats.Iteration, *formats.IterationFit, error) {
	var list []observation
	for i := range measured {
		if m := &measured[i]; m.Phase != llmruns.Partial && m.Took > 0 {
			list = append(list, observation{m, float64(m.Took)})
		}
	}
	prompts := slices.ContainsFunc(list, func(o observation) bool { return o.m.Phase != llmruns.Decode })
	decodes := slices.ContainsFunc(list, func(o observation) bool { return o.m.Phase != llmruns.Prefill })
	if !prompts || !decodes {
		return nil, nil, fmt.Errorf("%w: %d measurements, expected some of prompts and some of decoding", ErrInput, len(list))
	}
	best, least := [numCoefficients]float64{}, math.Inf(1)
	hinge := 0.0
	for _, h := range hinges {
		x, err := nonNegative(list, h, -1)
		if most := x[ofContext] / tile; x[ofAttention] > most {
			x, err = nonNegative(list, h, most)
		}
		if err < least {
			best, least, hinge = x, err, h
		}
	}
	if math.IsInf(least, 1) || best[ofBase] <= 0 {
		return nil, nil, fmt.Errorf("%w: %d measurements do not tell what an iteration takes at least", ErrInput, len(list))
	}
	it := &formats.Iteration{
		BaseNS: digits(best[ofBase]), SequenceNS: digits(best[ofSequence]), ContextNS: digits(best[ofContext]),
		PromptNS: digits(best[ofPrompt]), HingeTokens: hinge, AttentionNS: digits(best[ofAttention]),
	}
	return it, errorsOf(it, list), nil
}

// digits rounds to six: more were never measured.
func digits(x float64) float64 {
	if x == 0 {
		return 0
	}
	scale := math.Pow(10, 5-math.Floor(math.Log10(math.Abs(x))))
	return math.Round(x*scale) / scale
}

// nonNegative is the least-squares solution without negative coefficients: of all
// subsets of them, that with the least error whose own solution has none. It gives
// the sum of squared relative errors. attention is that coefficient where it is
// given, below 0 where it is not.
func nonNegative(list []observation, hinge, attention float64) (best [numCoefficients]float64, least float64) {
	rows, want := make([][numCoefficients]float64, len(list)), make([]float64, len(list))
	free := numCoefficients
	if attention >= 0 {
		free = ofAttention
	}
	for i := range list {
		list[i].row(hinge, &rows[i])
		for k := range rows[i] {
			rows[i][k] /= list[i].took
		}
		want[i] = 1 - rows[i][ofAttention]*max(0, attention)
	}
	least = math.Inf(1)
	for set := 1; set < 1<<free; set += 2 { // the first is in all: no iteration is for nothing
		var in []int
		for k := range free {
			if set>>k&1 == 1 {
				in = append(in, k)
			}
		}
		if len(list) < len(in) {
			continue
		}
		x, ok := solve(rows, want, in)
		if !ok {
			continue
		}
		sum := 0.0
		for i := range rows {
			e := -want[i]
			for k := range free {
				e += rows[i][k] * x[k]
			}
			sum += e * e
		}
		if sum < least*(1-1e-12) {
			best, least = x, sum
			if attention >= 0 {
				best[ofAttention] = attention
			}
		}
	}
	return best, least
}

// solve is the least-squares solution of rows * x = want over some columns; false
// where it is not defined, or one of them is negative.
func solve(rows [][numCoefficients]float64, want []float64, in []int) (x [numCoefficients]float64, ok bool) {
	a := mat.NewDense(len(rows), len(in), nil)
	scale := make([]float64, len(in)) // so that columns are of one size
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
	var out mat.VecDense
	if qr.SolveVecTo(&out, false, mat.NewVecDense(len(rows), want)) != nil || qr.Cond() > 1e8 {
		return x, false
	}
	for j, k := range in {
		if x[k] = out.AtVec(j) / scale[j]; x[k] < 0 {
			return x, false
		}
	}
	return x, true
}

// predict is what an iteration, or the iterations of a batch, take by a fit.
func predict(it *formats.Iteration, o *observation) float64 {
	var row [numCoefficients]float64
	o.row(it.HingeTokens, &row)
	return row[ofBase]*it.BaseNS + row[ofSequence]*it.SequenceNS + row[ofContext]*it.ContextNS + row[ofPrompt]*it.PromptNS + row[ofAttention]*it.AttentionNS
}

// errorsOf compares a fit with what it was made from. Batches from start to end
// count as decoding, which most of them is.
func errorsOf(it *formats.Iteration, list []observation) *formats.IterationFit {
	f := &formats.IterationFit{Points: len(list)}
	prompts, decodes := 0, 0
	for i := range list {
		o := &list[i]
		e := math.Abs(predict(it, o)-o.took) / o.took
		if o.m.Phase == llmruns.Prefill {
			prompts++
			f.PrefillMAPE += e
			f.PrefillMax = max(f.PrefillMax, e)
		} else {
			decodes++
			f.DecodeMAPE += e
			f.DecodeMax = max(f.DecodeMax, e)
		}
	}
	f.PrefillMAPE, f.DecodeMAPE = share(f.PrefillMAPE, prompts), share(f.DecodeMAPE, decodes)
	f.PrefillMax, f.DecodeMax = digits(f.PrefillMax), digits(f.DecodeMax)
	return f
}

func share(sum float64, n int) float64 { return digits(sum / float64(max(1, n))) }

// OneBatch is the profile that QLM takes of one batch (section 6): its prompt
// phase, a time per token and a throughput, all taken as constant. The error is of
// its time per token against what was measured at other batches and contexts.
func OneBatch(it *formats.Iteration, measured []llmruns.Measured, sequences int, prompt, output float64) *formats.OneBatch {
	token := it.PerToken(int32(sequences), prompt+output/2)
	prefill := it.Prefill(int32(max(1, prompt)), 0)
	// A slot of the batch runs a prompt per answer, beside the others' decoding.
	residence := float64(prefill)*float64(sequences) + output*float64(token)
	b := &formats.OneBatch{
		Sequences: sequences, PrefillUS: formats.Micros(prefill), TokenUS: formats.Micros(token),
		Inefficiency: digits(residence / (output * float64(token))), TokensPerSecond: digits(float64(sequences) * output / (residence / float64(time.Second))),
	}
	sum, n := 0.0, 0
	for i := range measured {
		if m := &measured[i]; m.Phase == llmruns.Decode && m.Took > 0 {
			sum += math.Abs(float64(token)-float64(m.Took)) / float64(m.Took)
			n++
		}
	}
	b.Error = share(sum, n)
	return b
}
