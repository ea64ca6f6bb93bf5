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

// shuffles is how often the rows of a queue are shuffled.
const shuffles = 12

// known is how well waiting and completion times of a queue are known ahead.
type known struct {
	Wait, Completion float64 // R2
	Covered          int     // requests that end before the 90 % quantile
	Requests         int
	Groups, Ended    int // groups of a batch each, and those that end before theirs
}

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

// foretold calibrates on one queue of a draw and predicts the other.
func foretold(q *instance.Queue, draw func(*instance.Queue, uint64) ([][]llm.Request, error), seed uint64) (known, error) {
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
		c := r.Answered(work)
		starts, waits = append(starts, s.Start), append(waits, r.Wait(work))
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
func (k *known) grouped(r *vqueue.RCT, served []vqueue.Served) {
	size, ahead := int(math.Ceil(r.Batch)), 0.0
	for group := range slices.Chunk(served, size) {
		work, last := float64(len(group))*r.Beta*r.OutputMean, 0.0
		for _, s := range group {
			work, last = work+r.Alpha*s.Prompt, max(last, s.End)
		}
		k.Groups++
		if last <= r.Ended(0.9, r.Intercept+ahead, work, math.Sqrt(r.Strays(ahead+work)), len(group)) {
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

// waits holds the estimator against drained queues that it was not fitted to.
func (b *bench) waits(t *table.Table) error {
	queues, err := instance.Queues(b.data)
	if err != nil {
		return err
	}
	t.Columns = []string{"queue", "R2 of waiting, median", "worst", "R2 of completion, median", "worst", "covered by the 90 % quantile", "groups covered by theirs", "fitted on the first half of the rows, tested on the second"}
	for i := range queues {
		q := &queues[i]
		var waits, ends []float64
		covered, all, other, rest, ended, groups := 0, 0, 0, 0, 0, 0
		for seed := range shuffles {
			k, err := measured(b.keep, fmt.Sprint("waits/", q.Name, "/", seed), func() (known, error) { return foretold(q, shuffled, uint64(seed+1)) })
			if err != nil {
				return err
			}
			waits, ends = append(waits, k.Wait), append(ends, k.Completion)
			covered, all, ended, groups = covered+k.Covered, all+k.Requests, ended+k.Ended, groups+k.Groups
			if k, err = measured(b.keep, fmt.Sprint("waits apart/", q.Name, "/", seed), func() (known, error) { return foretold(q, apart, uint64(seed+1)) }); err != nil {
				return err
			}
			other, rest = other+k.Covered, rest+k.Requests
		}
		slices.Sort(waits)
		slices.Sort(ends)
		median := func(list []float64) float64 { return (list[shuffles/2-1] + list[shuffles/2]) / 2 }
		share := float64(covered) / float64(all)
		t.Add(q.Name, fmt.Sprintf("%.4f", median(waits)), fmt.Sprintf("%.4f", waits[0]), fmt.Sprintf("%.4f", median(ends)), fmt.Sprintf("%.4f", ends[0]), percent(share), percent(float64(ended)/float64(groups)), percent(float64(other)/float64(rest)))
		add := func(what, asked string, x float64, holds bool) {
			b.figures = append(b.figures, figures.Figure{Claim: "estimator, " + q.Name + ": " + what, Source: "QLM, section 6 and figure 17; 12 shuffles, 800 requests to fit, 1000 others to test", Asked: asked, Measured: x, Holds: figures.If(holds), Command: b.command})
		}
		add("R2 of waiting, median", "at least .99", median(waits), median(waits) >= 0.99)
		add("R2 of waiting, worst", "at least .96", waits[0], waits[0] >= 0.96)
		add("covered by the 90 % quantile of completion", ".85 to .95", share, math.Abs(share-0.9) <= 0.05)
		whole := float64(ended) / float64(groups)
		add("groups that end by the 90 % quantile of a plan", ".85 to .95", whole, math.Abs(whole-0.9) <= 0.05)
		late := float64(other) / float64(rest)
		add("covered, fitted on the first half of the rows and tested on the second", ".85 to .95", late, math.Abs(late-0.9) <= 0.05)
	}
	t.Note("A queue of 800 requests is drained to fit, one of 1000 others is predicted. Prompts are known, answers are not. %d shuffles of each file.", shuffles)
	return nil
}
