package main

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"gonum.org/v1/gonum/stat"

	"inferplan/bench/dyorc/baselines"
	"inferplan/bench/instrument"
	"inferplan/formats/arrivals"
	"inferplan/policy/flow"
	"inferplan/policy/workflow"
	"inferplan/sim"
	"inferplan/testkit/workflows"
)

// outcome has the results of a run.
type outcome struct {
	Mean     float64   `json:"mean"` // latency in seconds
	P99      float64   `json:"p99"`
	Bound    float64   `json:"bound"`   // mean of the unloaded critical path
	Offered  float64   `json:"offered"` // device time of batches of one over that of the fleet
	Windows  []float64 `json:"windows"` // mean latency of every ten minutes
	Scale99  float64   `json:"scale99"` // 99th percentile of latency over the request's own unloaded one
	InTime   float64   `json:"in_time"` // share of the requests that were answered by their deadlines
	Running  float64   `json:"running"` // sequences of language models at once, mean over the time of iterations
	Rate     float64   `json:"rate"`    // tokens per second
	Resident [][]int32 `json:"resident,omitempty"`
}

// run returns the outcome of a scene under a policy, measured now or before. instant has loads take no time. A static fleet holds the networks that DyOrc as
// published held for longest on the same arrivals.
func (b *bench) run(ctx context.Context, r *instrument.Run, sc *scene, name string, seed uint64, instant bool) (outcome, error) {
	return instrument.Measured(r, fmt.Sprintf("%+v %s %d %v", *sc, name, seed, instant), func() (outcome, error) {
		opt, err := baselines.Named(name, sc.Scale)
		if err != nil {
			return outcome{}, err
		}
		var resident [][]int32
		switch {
		case opt.StaticNetworks:
			early, err := b.run(ctx, r, sc.placing(), "dyorc-early", seed, false)
			if err != nil {
				return outcome{}, err
			}
			resident = early.Resident
		case sc.Planned:
			if resident, err = sc.planned(ctx); err != nil {
				return outcome{}, err
			}
		}
		out, err := b.play(ctx, sc, opt, seed, resident, instant)
		if name != "dyorc-early" {
			out.Resident = nil
		}
		return out, err
	})
}

// placing returns the scene on which the contents of a static fleet are found.
func (sc *scene) placing() *scene {
	early := *sc
	early.Scale, early.Oracle = 0, 0 // its policy knows no deadlines
	if sc.Oracle > 0 {
		early.Minutes, early.Warmup = sc.Oracle, 0
	}
	if early.Rates.shift { // it does not know what comes
		early.Rates.shift, early.Minutes = false, minutes/2
	}
	return &early
}

// meanAlone is the mean unloaded latency of a request of each application, in seconds.
var meanAlone = [3]float64{2.408, 3.064, 2.690}

// play runs a scene under a policy.
func (b *bench) play(ctx context.Context, sc *scene, opt workflow.Options, seed uint64, resident [][]int32, instant bool) (outcome, error) {
	length := time.Duration(sc.Minutes) * time.Minute
	t := workflows.Fleet{Devices: sc.Devices, Gigabytes: sc.Gigabytes, Resident: resident, Instant: instant, Generations: sc.Generations}.Tables()
	if sc.Prior {
		flow.WorkflowTablesOf(t).Paths = workflows.Ways(flow.DrawnRequests, chances)
		for m := range t.Models {
			t.Models[m].RPS = sc.Rates.rps[m]
		}
	}
	apps := workflows.NewApps(seed)
	if sc.Generations {
		apps.Tokens = workflows.NewTokens(seed, answerSpread)
	}
	unloaded, work := 0.0, 0.0
	var alone []float64 // of the requests in order of arrival
	apps.Heard = func(_ int32, least, took float64) {
		unloaded, work, alone = unloaded+least, work+took, append(alone, least)
	}
	list := b.trace.requests(sc.Rates, length, seed)
	place, counted := map[time.Duration]int{}, 0
	for i := range list {
		list[i].SLO = time.Duration(sc.Scale * meanAlone[list[i].Model] * 1e9)
		place[list[i].ArrivedAt] = i
		if list[i].ArrivedAt >= sc.Warmup {
			counted++
		}
	}
	if sc.Foresight {
		nameWays(list, seed)
	}
	opt.Seed, opt.Prediction.Seed = seed, seed
	w := newWatch(workflow.New(t, opt), t)
	out := outcome{}
	var latencies, scales []float64
	var arrived []time.Duration
	res, err := sim.Run(ctx, sim.Config{
		Tables: t, Policy: w, Source: arrivals.Slice(list), Duration: length, Control: &workflows.Control{Draw: apps.Draw}, MoveTime: workflows.Move(t), NoReport: true,
		OnCompleted: func(at, answered time.Duration) {
			if at < sc.Warmup {
				return
			}
			latencies, arrived = append(latencies, (answered-at).Seconds()), append(arrived, at)
			scales = append(scales, (answered-at).Seconds()/alone[place[at]])
			if answered-at <= list[place[at]].SLO {
				out.InTime++
			}
		},
	})
	if err != nil {
		return out, fmt.Errorf("%s, seed %d: %w", sc.Name, seed, err)
	}
	out.InTime /= float64(counted)
	out.Bound, out.Offered = unloaded/float64(len(alone)), work/(length.Seconds()*float64(sc.Devices))
	out.answer(latencies, scales, arrived)
	if res.Generation != nil {
		out.report(res.Generation)
	}
	out.Resident = w.longest(t, length)
	return out, nil
}

// answer takes in how long requests took, in seconds and in multiples of their own unloaded latency, in the order in which they were answered.
func (out *outcome) answer(latencies, scales []float64, arrived []time.Duration) {
	windows := map[int][]float64{}
	for i, latency := range latencies {
		k := int(arrived[i] / (10 * time.Minute))
		windows[k] = append(windows[k], latency)
	}
	for k := range len(windows) {
		out.Windows = append(out.Windows, stat.Mean(windows[k], nil))
	}
	out.Mean = stat.Mean(latencies, nil)
	slices.Sort(latencies)
	slices.Sort(scales)
	last := (len(latencies)*99+99)/100 - 1
	out.P99, out.Scale99 = latencies[last], scales[last]
}

// report takes in what language models did.
func (out *outcome) report(g *sim.GenerationResult) {
	iterations, sequences, tokens := time.Duration(0), time.Duration(0), int64(0)
	for i := range g.Models {
		m := &g.Models[i]
		iterations, sequences, tokens = iterations+m.IterationTime, sequences+m.SequenceTime, tokens+m.AnswerTokens
	}
	out.Running, out.Rate = float64(sequences)/float64(max(1, iterations)), float64(tokens)/g.CountedTime.Seconds()
}

// nameWays names the ways of requests, which come in this order, by a hash each.
func nameWays(list []arrivals.Request, seed uint64) {
	apps, w := workflows.NewApps(seed), &workflows.Way{}
	for i := range list {
		w.Reset()
		apps.Draw(list[i].Model, w)
		h := fnv.New32a()
		for k := range w.Len() {
			fmt.Fprint(h, w.Tasks[k].Service, " ")
		}
		list[i].Session = int64(h.Sum32()>>2) + 1
	}
}

// grid has the outcomes of scenes under policies, by scene, policy and seed.
type grid [][][]outcome

// measureGrid runs scenes under policies with all seeds, several at a time.
func (b *bench) measureGrid(r *instrument.Run, scenes []*scene, policies []string, instant bool) (grid, error) {
	g := make(grid, len(scenes))
	for s := range scenes {
		g[s] = make([][]outcome, len(policies))
		for p := range policies {
			g[s][p] = make([]outcome, len(b.seeds))
		}
	}
	seeds := len(b.seeds)
	return g, r.ForEach(len(scenes)*len(policies)*seeds, func(ctx context.Context, i int) (err error) {
		s, p, k := i/seeds/len(policies), i/seeds%len(policies), i%seeds
		g[s][p][k], err = b.run(ctx, r, scenes[s], policies[p], b.seeds[k], instant)
		return err
	})
}

// meanOf returns the mean of a value over the seeds.
func meanOf(runs []outcome, value func(o *outcome) float64) float64 {
	sum := 0.0
	for i := range runs {
		sum += value(&runs[i])
	}
	return sum / float64(len(runs))
}

func meanLatency(o *outcome) float64 { return o.Mean }
func p99(o *outcome) float64         { return o.P99 }

// latency writes mean and 99th percentile of latency.
func latency(runs []outcome) string {
	return fmt.Sprintf("%.2f / %.2f", meanOf(runs, meanLatency), meanOf(runs, p99))
}
