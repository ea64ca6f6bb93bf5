package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"inferplan/bench/instrument"
	"inferplan/bench/qlm/instance"
	"inferplan/policy/vqueue"
	"inferplan/sim/llm"
	"inferplan/solver/stoch"
	"inferplan/testkit/queuetest"
)

// foretellEvery is the time between the moments at which waits are predicted.
const foretellEvery = 10 * time.Second

// driftFits says how many estimators are fitted for each queue, to other requests each.
const driftFits = 4

// furtherBack are the places of the queue for which waits are predicted, by the work in front of them in seconds.
var furtherBack = [...]float64{15, 30, 60, 120, 240}

// drifted counts predictions, and what came before their 90 % quantiles: by the estimator as calibrated, and by what the policy
// makes of it.
type drifted struct {
	Asked                      int
	CalibratedStarts, Starts   int
	CalibratedAnswers, Answers int
}

func (d *drifted) add(o drifted) {
	d.Asked += o.Asked
	d.CalibratedStarts, d.Starts = d.CalibratedStarts+o.CalibratedStarts, d.Starts+o.Starts
	d.CalibratedAnswers, d.Answers = d.CalibratedAnswers+o.CalibratedAnswers, d.Answers+o.Answers
}

// share returns a part of the predictions.
func (d *drifted) share(n int) float64 { return float64(n) / float64(d.Asked) }

// watched is an instance that serves a queue, and what a policy that follows it has seen so far.
type watched struct {
	drifted
	base, bare, now      vqueue.RCT // as calibrated; as followed; and with the pace of starts
	works, lengths, pace vqueue.Follower
	starts               vqueue.Forecast
	cover                vqueue.WaitQuantile
	list                 []llm.Request
	out                  []llm.Outcome
	byStart, byEnd       []int // requests in these orders
	started, ended       int
	running              []int
	made                 []float64     // tokens, by request
	full                 time.Duration // from then on the batch is full until the last start
}

// newWatched knows how a queue was served that was there at 0.
func newWatched(r *vqueue.RCT, list []llm.Request, out []llm.Outcome) *watched {
	w := &watched{base: *r, bare: *r, now: *r, list: list, out: out, made: make([]float64, len(list))}
	w.starts = vqueue.NewForecast(1, &w.cover, &w.pace)
	for i := range list {
		w.byStart, w.byEnd = append(w.byStart, i), append(w.byEnd, i)
	}
	slices.SortStableFunc(w.byStart, func(a, b int) int { return cmp.Compare(out[a].FirstIteration, out[b].FirstIteration) })
	slices.SortStableFunc(w.byEnd, func(a, b int) int { return cmp.Compare(out[a].LastToken, out[b].LastToken) })
	w.full = out[w.byEnd[0]].LastToken
	return w
}

// serve goes through the time in which requests wait.
func (w *watched) serve() {
	last := w.out[w.byStart[len(w.byStart)-1]].FirstIteration
	for at := time.Second; at < last; at += time.Second {
		w.hear(at)
		if at >= w.full && at%foretellEvery == 0 {
			for _, depth := range furtherBack {
				w.foretell(at, depth)
			}
		}
	}
}

// hear takes in what happened in the second up to a time, as the policy does: answers, starts, tokens.
func (w *watched) hear(at time.Duration) {
	for ; w.ended < len(w.byEnd) && w.out[w.byEnd[w.ended]].LastToken <= at; w.ended++ {
		r := &w.list[w.byEnd[w.ended]]
		w.lengths.AddAnswer(float64(r.Prompt), float64(r.Output))
	}
	prices := []vqueue.RequestWork{w.now.RequestWork()}
	for ; w.started < len(w.byStart) && w.out[w.byStart[w.started]].FirstIteration <= at; w.started++ {
		i := w.byStart[w.started]
		if start := w.out[i].FirstIteration; start >= w.full {
			w.starts.ObserveStart(start.Seconds(), len(w.running), 0, float64(w.list[i].Prompt), w.bare.RequestWork(), prices, vqueue.RecommendedObjective.CommonSD)
		}
		w.running = append(w.running, i)
	}
	work := 0.0
	w.running = slices.DeleteFunc(w.running, func(i int) bool {
		if made := w.tokens(i, at); made > w.made[i] {
			work += w.base.Beta * (made - w.made[i])
			if w.made[i] == 0 {
				work += w.base.Alpha * float64(w.list[i].Prompt)
			}
			w.made[i] = made
		}
		return w.out[i].LastToken <= at
	})
	if at-time.Second >= w.full {
		w.works.AddWork(1, work)
	}
	w.bare = w.lengths.Adjust(w.works.Adjust(w.base))
	w.now = w.pace.WithPace(w.bare)
}

// tokens says how many a request has made by a time.
func (w *watched) tokens(i int, at time.Duration) float64 {
	switch o, most := w.out[i], float64(w.list[i].Output); {
	case at < o.FirstToken:
		return 0
	case at >= o.LastToken:
		return most
	default:
		return math.Floor(1 + (most-1)*(at-o.FirstToken).Seconds()/(o.LastToken-o.FirstToken).Seconds())
	}
}

// foretell predicts when a request starts that has so many seconds of work in front of it, and when it is answered.
func (w *watched) foretell(at time.Duration, depth float64) {
	fixed, moved, variance, k := 0.0, 0.0, 0.0, w.started
	before, now := w.base.RequestWork(), w.now.RequestWork()
	for ; k < len(w.byStart) && fixed < depth; k++ {
		prompt := float64(w.list[w.byStart[k]].Prompt)
		fixed += before.PerPromptToken*prompt + before.PerRequest
		moved += now.PerPromptToken*prompt + now.PerRequest
		variance += now.Variance
	}
	if k == len(w.byStart) {
		return
	}
	began, o := at.Seconds(), w.out[w.byStart[k]]
	sigma := math.Hypot(math.Sqrt(variance), vqueue.RecommendedObjective.CommonSD*moved)
	calibrated := stoch.Normal{Mu: began + fixed, Sigma: math.Sqrt(w.base.WaitVariance(fixed))}
	adapted := stoch.Normal{Mu: began + moved, Sigma: sigma * w.cover.Scale()}
	w.Asked++
	for _, x := range []struct {
		count    *int
		forecast interface {
			Quantile(probability float64) float64
		}
		came time.Duration
	}{
		{&w.CalibratedStarts, calibrated, o.FirstIteration}, {&w.Starts, adapted, o.FirstIteration},
		{&w.CalibratedAnswers, &queuetest.NormalPlusValue{Normal: calibrated, Values: w.base.Residences}, o.LastToken}, {&w.Answers, &queuetest.NormalPlusValue{Normal: adapted, Values: w.base.Residences}, o.LastToken},
	} {
		if x.came.Seconds() <= x.forecast.Quantile(0.9) {
			*x.count++
		}
	}
}

// drift fits an estimator to requests that are drawn from the first half of the rows, and has the second half served in its order
// by an instance that is watched.
func drift(q *instance.Queue, seed uint64, most int) (drifted, error) {
	halves := q.Halves()
	lists, err := halves[0].Draw(seed, min(800, len(halves[0].Lengths)))
	if err != nil {
		return drifted{}, err
	}
	r, err := q.Calibrate(lists[0])
	if err != nil {
		return drifted{}, err
	}
	list := halves[1].Lengths[:min(most, len(halves[1].Lengths))]
	out, _, err := q.Drain(list)
	if err != nil {
		return drifted{}, err
	}
	w := newWatched(r, list, out)
	w.serve()
	return w.drifted, nil
}

// drifts holds waits that are predicted while a queue is served against what they came to.
func (b *bench) drifts(r *instrument.Run, t *instrument.Table) error {
	queues, err := instance.Queues(r.Data)
	if err != nil {
		return err
	}
	fits, most := driftFits, 1<<30
	if b.small {
		fits, most = 1, 1500
	}
	pooled := func(q *instance.Queue, key string) (out drifted, err error) {
		for seed := range fits {
			x, err := instrument.Measured(r, fmt.Sprint(key, q.Name, "/", seed, "/", most), func() (drifted, error) { return drift(q, uint64(seed+1), most) })
			if err != nil {
				return out, err
			}
			out.add(x)
		}
		return out, nil
	}
	const source = "fitted on the first half of the rows, the second served in its order; starts behind 15 to 240 s of work"
	t.Columns = []string{"queue", "predictions", "starts, as calibrated", "starts, as the policy does", "answers, as calibrated", "answers, as the policy does", "starts of the first half by its quarters backwards"}
	starts, answers, turned := 0, 0, 0
	for i := range queues {
		q := &queues[i]
		x, err := pooled(q, "drift/")
		if err != nil {
			return err
		}
		backwards, err := pooled(q.Halves()[0].Backwards(), "drift backwards/")
		if err != nil {
			return err
		}
		if near(backwards.share(backwards.Starts)) {
			turned++
		}
		t.Add(q.Name, x.Asked, percent(x.share(x.CalibratedStarts)), percent(x.share(x.Starts)), percent(x.share(x.CalibratedAnswers)), percent(x.share(x.Answers)), percent(backwards.share(backwards.Starts)))
		for _, c := range []struct {
			what              string
			calibrated, moved int
			covered           *int
		}{{"starts", x.CalibratedStarts, x.Starts, &starts}, {"answers", x.CalibratedAnswers, x.Answers, &answers}} {
			f := covers(fmt.Sprintf("estimator, %s: %s before the 90 %% quantile, predicted while the second half is served", q.Name, c.what), source, x.share(c.moved))
			f.Note = fmt.Sprintf("%.3f as calibrated", x.share(c.calibrated))
			r.Figure(f)
			if near(f.Measured) {
				*c.covered++
			}
		}
	}
	all := float64(len(queues))
	unit := fmt.Sprintf("of %d", len(queues))
	r.Exactly("estimator: queues whose starts are covered, predicted while the second half is served", source, all, unit, float64(starts))
	r.Exactly("estimator: queues whose answers are covered, predicted while the second half is served", source, all, unit, float64(answers))
	r.Exactly("estimator: queues whose starts are covered, predicted while the first half backwards is served", "by quarters of the rows, from the last to the first; constants were chosen on these quarters", all, unit, float64(turned))
	t.Note("Fitted on 800 requests of the first half, %d draws. The second half waits at 0 and is served in its order. Every 10 s the starts behind 15, 30, 60, 120 and 240 s of work are predicted, with what was seen so far.", fits)
	return nil
}
