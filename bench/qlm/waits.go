package main

import (
	"fmt"
	"math"
	"slices"

	"inferplan/bench/figures"
	"inferplan/bench/qlm/instance"
	"inferplan/bench/table"
	"inferplan/policy/vqueue"
	"inferplan/sim/llm"
)

// shuffles is how often the rows of a queue are shuffled, and manyShuffles how often to
// count groups: there are few in a queue, and those of one stray together.
const (
	shuffles     = 12
	manyShuffles = 48
)

// known is how well waiting and completion times of a queue are known ahead.
type known struct {
	Wait, Completion float64 // R2
	Covered          int     // requests that end before the 90 % quantile
	Requests         int
	Groups, Ended    int // groups of a batch each, and those that end before theirs
}

// drawing is two queues of a file: one to calibrate on, and one to predict.
type drawing func(q *instance.Queue, seed uint64) ([][]llm.Request, error)

// shuffled is 800 requests of a shuffle to calibrate on, and 1000 others to predict.
func shuffled(q *instance.Queue, seed uint64) ([][]llm.Request, error) {
	return q.Draw(seed, 800, 1000)
}

// apart is 800 requests of the first half of the rows to calibrate on, and 1000 of the
// second to predict, or fewer where there are not so many.
func apart(q *instance.Queue, seed uint64) ([][]llm.Request, error) {
	halves := q.Halves()
	fit, err := halves[0].Draw(seed, min(800, len(halves[0].Lengths)))
	if err != nil {
		return nil, err
	}
	test, err := halves[1].Draw(seed, min(1000, len(halves[1].Lengths)))
	return append(fit, test...), err
}

// block is how many rows follow each other in a slice of interleaved.
const block = 500

// interleaved is 800 requests of every other slice of the rows to calibrate on, and 1000
// of the slices between them to predict.
func interleaved(q *instance.Queue, seed uint64) ([][]llm.Request, error) {
	fit, test := *q, *q
	fit.Lengths, test.Lengths = nil, nil
	for i := 0; i < len(q.Lengths); i += block {
		of := &fit
		if i/block%2 == 1 {
			of = &test
		}
		of.Lengths = append(of.Lengths, q.Lengths[i:min(i+block, len(q.Lengths))]...)
	}
	first, err := fit.Draw(seed, min(800, len(fit.Lengths)))
	if err != nil {
		return nil, err
	}
	second, err := test.Draw(seed, min(1000, len(test.Lengths)))
	return append(first, second...), err
}

// foretold calibrates on one queue of a draw and predicts the other.
func foretold(q *instance.Queue, draw drawing, seed uint64) (known, error) {
	lists, err := draw(q, seed)
	if err != nil {
		return known{}, err
	}
	first, _, err := q.Drain(lists[0])
	if err != nil {
		return known{}, err
	}
	r, err := vqueue.Calibrate(instance.Timed(lists[0], first), instance.Batch(first))
	if err != nil {
		return known{}, err
	}
	out, _, err := q.Drain(lists[1])
	if err != nil {
		return known{}, err
	}
	k := known{Requests: len(out)}
	var starts, waits, ends, completions []float64
	work := 0.0
	for _, s := range instance.Timed(lists[1], out) {
		c := r.AnswerTime(work)
		starts, waits = append(starts, s.Start), append(waits, r.MeanWait(work))
		ends, completions = append(ends, s.End), append(completions, c.Mean())
		if s.End <= c.Quantile(0.9) {
			k.Covered++
		}
		// Prompts are known, answers are not.
		work += r.Alpha*s.Prompt + r.Beta*r.OutputMean
	}
	k.grouped(r, instance.Timed(lists[1], out))
	k.Wait, k.Completion = determination(starts, waits), determination(ends, completions)
	return k, nil
}

// grouped parts a queue into groups of a batch each, and counts those whose last
// answer comes before the 90 % quantile of that.
func (k *known) grouped(r *vqueue.RCT, served []vqueue.CalibrationRequest) {
	size, ahead := int(math.Ceil(r.Batch)), 0.0
	for group := range slices.Chunk(served, size) {
		work, last := float64(len(group))*r.Beta*r.OutputMean, 0.0
		for _, s := range group {
			work, last = work+r.Alpha*s.Prompt, max(last, s.End)
		}
		k.Groups++
		if last <= r.AllAnsweredBy(0.9, r.Intercept+ahead, work, math.Sqrt(r.WaitVariance(ahead+work)), len(group)) {
			k.Ended++
		}
		ahead += work
	}
}

// determination is R2 of predictions.
func determination(real, predicted []float64) float64 {
	mean, off, all := 0.0, 0.0, 0.0
	for _, x := range real {
		mean += x / float64(len(real))
	}
	for i, x := range real {
		off += (x - predicted[i]) * (x - predicted[i])
		all += (x - mean) * (x - mean)
	}
	return 1 - off/all
}

// drawings are the ways to take the rows to fit on and those to test on.
var drawings = [...]struct {
	key  string // of results
	what string // if empty, it is the claim that is asked
	draw drawing
}{
	{"waits/", "", shuffled},
	{"waits apart/", ", fitted on the first half of the rows and tested on the second", apart},
	{"waits interleaved/", ", fitted on every other 500 rows and tested on those between", interleaved},
}

// foreseen holds the results of the shuffles of a queue in one drawing.
type foreseen struct {
	waits, ends                      []float64 // R2 by shuffle, ascending
	covered, requests, ended, groups int
}

// add takes one shuffle, or the sums of others.
func (f *foreseen) add(k known) {
	f.covered, f.requests, f.ended, f.groups = f.covered+k.Covered, f.requests+k.Requests, f.ended+k.Ended, f.groups+k.Groups
}

// share is the part of requests before their quantiles, whole that of groups.
func (f *foreseen) share() float64 { return float64(f.covered) / float64(f.requests) }
func (f *foreseen) whole() float64 { return float64(f.ended) / float64(f.groups) }

// foresee draws a queue's shuffles.
func foresee(k *keep, q *instance.Queue, key string, draw drawing, times int) (*foreseen, error) {
	f := &foreseen{}
	for seed := range times {
		x, err := measured(k, fmt.Sprint(key, q.Name, "/", seed), func() (known, error) { return foretold(q, draw, uint64(seed+1)) })
		if err != nil {
			return nil, err
		}
		f.waits, f.ends = append(f.waits, x.Wait), append(f.ends, x.Completion)
		f.add(x)
	}
	slices.Sort(f.waits)
	slices.Sort(f.ends)
	return f, nil
}

// waits holds the estimator against drained queues that it was not fitted to.
func (b *bench) waits(t *table.Table) error {
	queues, err := instance.Queues(b.data)
	if err != nil {
		return err
	}
	t.Columns = []string{"queue", "R2 of waiting, median", "worst", "R2 of completion, median", "worst", "covered by the 90 % quantile", "groups covered by theirs", "fitted on the first half, tested on the second", "fitted on every other 500 rows, tested on those between"}
	var pooled [len(drawings)]foreseen
	var groups foreseen
	for i := range queues {
		q := &queues[i]
		add := func(what, asked string, x float64, holds bool) {
			b.figures = append(b.figures, figures.Figure{Claim: "estimator, " + q.Name + ": " + what, Source: waitsSource, Asked: asked, Measured: x, Holds: figures.If(holds)})
		}
		var by [len(drawings)]*foreseen
		for n := range drawings {
			x, err := foresee(b.keep, q, drawings[n].key, drawings[n].draw, shuffles)
			if err != nil {
				return err
			}
			by[n] = x
			pooled[n].add(known{Covered: x.covered, Requests: x.requests, Ended: x.ended, Groups: x.groups})
			if n > 0 {
				add("covered"+drawings[n].what, ".85 to .95", x.share(), near(x.share()))
			}
		}
		x, many := by[0], by[0]
		if !b.small {
			if many, err = foresee(b.keep, q, drawings[0].key, drawings[0].draw, manyShuffles); err != nil {
				return err
			}
		}
		groups.add(known{Ended: many.ended, Groups: many.groups})
		median := func(list []float64) float64 { return (list[shuffles/2-1] + list[shuffles/2]) / 2 }
		t.Add(q.Name, fmt.Sprintf("%.4f", median(x.waits)), fmt.Sprintf("%.4f", x.waits[0]), fmt.Sprintf("%.4f", median(x.ends)), fmt.Sprintf("%.4f", x.ends[0]), percent(x.share()), percent(many.whole()), percent(by[1].share()), percent(by[2].share()))
		add("R2 of waiting, median", "at least .99", median(x.waits), median(x.waits) >= 0.99)
		add("R2 of waiting, worst", "at least .96", x.waits[0], x.waits[0] >= 0.96)
		add("covered by the 90 % quantile of completion", ".85 to .95", x.share(), near(x.share()))
		add("groups that end by the 90 % quantile of a plan", ".85 to .95", many.whole(), near(many.whole()))
	}
	pooledQueues(b, t, pooled[:], groups.whole())
	t.Note("A queue of 800 requests is drained to fit, one of 1000 others is predicted. Prompts are known, answers are not. %d shuffles of each file, %d for groups.", shuffles, manyShuffles)
	return nil
}

const waitsSource = "QLM, section 6 and figure 17; 12 shuffles, 800 requests to fit, 1000 others to test"

// near returns whether a 90 % quantile covers what it should.
func near(share float64) bool { return math.Abs(share-0.9) <= 0.05 }

// pooledQueues adds what all queues come to together.
func pooledQueues(b *bench, t *table.Table, by []foreseen, groups float64) {
	t.Add("all", "", "", "", "", percent(by[0].share()), percent(groups), percent(by[1].share()), percent(by[2].share()))
	add := func(what string, x float64) {
		b.figures = append(b.figures, figures.Figure{Claim: "estimator, all queues together: " + what, Source: waitsSource, Asked: ".85 to .95", Measured: x, Holds: figures.If(near(x))})
	}
	for n := range by {
		add("covered by the 90 % quantile of completion"+drawings[n].what, by[n].share())
	}
	add("groups that end by the 90 % quantile of a plan", groups)
}
