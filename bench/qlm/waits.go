package main

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"

	"inferplan/bench/figures"
	"inferplan/bench/instrument"
	"inferplan/bench/qlm/instance"
	"inferplan/policy/vqueue"
	"inferplan/sim/llm"
	"inferplan/testkit/queuetest"
)

// shuffles says how often the rows of a queue are shuffled, and manyShuffles how often to count groups: there are few in a queue,
// and those of one stray together.
const (
	shuffles     = 12
	manyShuffles = 48
)

// predicted says how well waiting and completion times of a queue are known ahead.
type predicted struct {
	Wait, Completion float64 // R2
	Covered          int     // requests that end before the 90 % quantile
	Requests         int
	Groups, Ended    int // groups of a batch each, and those that end before theirs
}

// shuffled are the predictions of some shuffles.
type shuffled []predicted

// covered returns the share of requests that end before their quantiles.
func (list shuffled) covered() float64 {
	covered, requests := 0, 0
	for _, p := range list {
		covered, requests = covered+p.Covered, requests+p.Requests
	}
	return float64(covered) / float64(requests)
}

// ended returns the share of groups that end before theirs.
func (list shuffled) ended() float64 {
	ended, groups := 0, 0
	for _, p := range list {
		ended, groups = ended+p.Ended, groups+p.Groups
	}
	return float64(ended) / float64(groups)
}

// ranked returns a figure of the shuffles, ascending, and its median.
func (list shuffled) ranked(figure func(p predicted) float64) (values []float64, median float64) {
	for _, p := range list {
		values = append(values, figure(p))
	}
	slices.Sort(values)
	return values, (values[(len(values)-1)/2] + values[len(values)/2]) / 2
}

// predict calibrates on a queue and predicts another one, which is drained in the order of the list.
func predict(q *instance.Queue, fit, test []llm.Request) (predicted, error) {
	r, err := q.Calibrate(fit)
	if err != nil {
		return predicted{}, err
	}
	out, _, err := q.Drain(test)
	if err != nil {
		return predicted{}, err
	}
	served := instance.Timed(test, out)
	p := predicted{Requests: len(served)}
	var starts, waits, ends, completions []float64
	work := 0.0
	for _, s := range served {
		c := queuetest.AnswerTime(r, work)
		starts, waits = append(starts, s.Start), append(waits, r.MeanWait(work))
		ends, completions = append(ends, s.End), append(completions, c.Mean())
		if s.End <= c.Quantile(0.9) {
			p.Covered++
		}
		// Prompts are known, answers are not.
		work += r.Alpha*s.Prompt + r.Beta*r.OutputMean
	}
	p.countGroups(r, served)
	p.Wait, p.Completion = stat.RSquaredFrom(waits, starts, nil), stat.RSquaredFrom(completions, ends, nil)
	return p, nil
}

// countGroups parts a queue into groups of a batch each, and counts those whose last answer comes before the 90 % quantile of
// that.
func (p *predicted) countGroups(r *vqueue.RCT, served []vqueue.CalibrationRequest) {
	size, ahead := int(math.Ceil(r.Batch)), 0.0
	for group := range slices.Chunk(served, size) {
		work, last := float64(len(group))*r.Beta*r.OutputMean, 0.0
		for _, s := range group {
			work, last = work+r.Alpha*s.Prompt, max(last, s.End)
		}
		p.Groups++
		if last <= r.AllAnsweredBy(0.9, r.Intercept+ahead, work, math.Sqrt(r.WaitVariance(ahead+work)), len(group)) {
			p.Ended++
		}
		ahead += work
	}
}

// drawings are the ways to take the rows to fit on and those to test on.
var drawings = [...]struct {
	key   string // of results
	what  string // behind what is claimed
	split func(q *instance.Queue) [2]*instance.Queue
}{
	{"waits/", "", nil},
	{"waits apart/", ", fitted on the first half of the rows and tested on the second", (*instance.Queue).Halves},
	{"waits interleaved/", ", fitted on every other 500 rows and tested on those between", func(q *instance.Queue) [2]*instance.Queue { return q.Interleaved(500) }},
}

// shuffle predicts queues of shuffled rows: 800 requests to calibrate on and 1000 others to predict, or fewer where a part of
// the rows has not so many.
func shuffle(r *instrument.Run, q *instance.Queue, drawing, times int) (list shuffled, err error) {
	d := &drawings[drawing]
	for seed := range uint64(times) {
		p, err := instrument.Measured(r, fmt.Sprint(d.key, q.Name, "/", seed), func() (predicted, error) {
			if d.split == nil {
				lists, err := q.Draw(seed+1, 800, 1000)
				if err != nil {
					return predicted{}, err
				}
				return predict(q, lists[0], lists[1])
			}
			parts := d.split(q)
			fit, err := parts[0].Draw(seed+1, min(800, len(parts[0].Lengths)))
			if err != nil {
				return predicted{}, err
			}
			test, err := parts[1].Draw(seed+1, min(1000, len(parts[1].Lengths)))
			if err != nil {
				return predicted{}, err
			}
			return predict(q, fit[0], test[0])
		})
		if err != nil {
			return nil, err
		}
		list = append(list, p)
	}
	return list, nil
}

// waits holds the estimator against drained queues that it was not fitted to.
func (b *bench) waits(r *instrument.Run, t *instrument.Table) error {
	queues, err := instance.Queues(r.Data)
	if err != nil {
		return err
	}
	t.Columns = []string{"queue", "R2 of waiting, median", "worst", "R2 of completion, median", "worst", "covered by the 90 % quantile", "groups covered by theirs", "fitted on the first half, tested on the second", "fitted on every other 500 rows, tested on those between"}
	const source, groups = "QLM, section 6 and figure 17; 12 shuffles, 800 requests to fit, 1000 others to test", "groups that end by the 90 % quantile of a plan"
	var pooled [len(drawings) + 1]shuffled // the last of many shuffles, to count groups
	for i := range queues {
		q := &queues[i]
		claim := "estimator, " + q.Name + ": "
		var by [len(pooled)]shuffled
		for n := range by {
			times := shuffles
			if n == len(drawings) && !b.small {
				times = manyShuffles
			}
			if by[n], err = shuffle(r, q, n%len(drawings), times); err != nil {
				return err
			}
			pooled[n] = append(pooled[n], by[n]...)
			if n > 0 && n < len(drawings) {
				r.Figure(covers(claim+"covered"+drawings[n].what, source, by[n].covered()))
			}
		}
		waits, wait := by[0].ranked(func(p predicted) float64 { return p.Wait })
		ends, end := by[0].ranked(func(p predicted) float64 { return p.Completion })
		t.Add(q.Name, fmt.Sprintf("%.4f", wait), fmt.Sprintf("%.4f", waits[0]), fmt.Sprintf("%.4f", end), fmt.Sprintf("%.4f", ends[0]), percent(by[0].covered()), percent(by[3].ended()), percent(by[1].covered()), percent(by[2].covered()))
		r.AtLeast(claim+"R2 of waiting, median", source, .99, "", wait)
		r.AtLeast(claim+"R2 of waiting, worst", source, .96, "", waits[0])
		r.Figure(covers(claim+"covered by the 90 % quantile of completion", source, by[0].covered()))
		r.Figure(covers(claim+groups, source, by[3].ended()))
	}
	const all = "estimator, all queues together: "
	for n, d := range drawings {
		r.Figure(covers(all+"covered by the 90 % quantile of completion"+d.what, source, pooled[n].covered()))
	}
	r.Figure(covers(all+groups, source, pooled[3].ended()))
	t.Add("all", "", "", "", "", percent(pooled[0].covered()), percent(pooled[3].ended()), percent(pooled[1].covered()), percent(pooled[2].covered()))
	t.Note("A queue of 800 requests is drained to fit, one of 1000 others is predicted. Prompts are known, answers are not. %d shuffles of each file, %d for groups.", shuffles, manyShuffles)
	return nil
}

// covers returns the figure of a share of times before their 90 % quantiles.
func covers(claim, source string, share float64) figures.Figure {
	return figures.Figure{Claim: claim, Source: source, Asked: ".85 to .95", Measured: share, Holds: figures.If(near(share))}
}

// near returns whether a 90 % quantile covers what it should.
func near(share float64) bool { return math.Abs(share-0.9) <= 0.05 }
