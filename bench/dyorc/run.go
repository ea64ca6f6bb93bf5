package main

import (
	"context"
	"fmt"
	"hash/fnv"
	"runtime"
	"slices"
	"time"

	"inferplan/formats/arrivals"
	"inferplan/policy"
	"inferplan/policy/flow"
	"inferplan/policy/workflow"
	"inferplan/sim"
	"inferplan/testkit/workflows"
)

// scene is the setting in which policies are compared.
type scene struct {
	Name      string
	Devices   int
	Gigabytes float64
	Rates     rates
	Minutes   int
	Warmup    time.Duration
	Windows   bool // averages of ten minutes
	// Foresight gives each request, as it comes, a feature that names its way: what
	// prediction could do at best.
	Foresight bool
	// Prior has the policy know the ways of the applications by their chances, and their
	// rates, as a plan says. Planned has devices begin with what a plan has them hold.
	Prior, Planned bool
	// Scale is that of the deadlines: arrival and Scale times the application's
	// mean unloaded latency. A call's own deadline is Scale times its time alone.
	// If it is 0, there are none.
	Scale float64
	// Session is the state that the language model keeps of requests.
	Session flow.SessionState
	// Generations has the language models run iteration by iteration, with answers whose
	// lengths deviate by so much of their mean.
	Generations bool
	Spread      float64
	// Oracle is how many minutes a static fleet's contents are taken from; 0 stands for all.
	Oracle int
	// Charged has the policy's own CPU time pass. Group gives every so many devices a
	// policy of their own. If it is 0, all have one.
	Charged bool
	Group   int
}

// outcome holds the results of a run.
type outcome struct {
	Requests int       `json:"n"`
	Mean     float64   `json:"mean"`
	P99      float64   `json:"p99"`
	Bound    float64   `json:"bound"` // mean of the unloaded critical path
	Offered  float64   `json:"u1"`    // device time of batches of one over that of the fleet
	Loads    float64   `json:"loads"` // per minute
	Batch    float64   `json:"batch"`
	Run      float64   `json:"run"` // shares of the device time
	Load     float64   `json:"load"`
	Both     float64   `json:"both"`
	Windows  []float64 `json:"windows,omitempty"`
	Scale99  float64   `json:"scale99"`           // 99th percentile of latency over the request's own unloaded one
	InTime   float64   `json:"in_time,omitempty"` // share of the requests that were answered by their deadlines
	Events   int64     `json:"events"`
	Think    float64   `json:"think,omitempty"` // CPU time of the policy per request, in us
	Anew     float64   `json:"anew,omitempty"`  // of the tasks that go on with a state, those that computed it anew
	Moved    float64   `json:"moved,omitempty"` // states that were moved, by the same number
	// Timely is by how many seconds a request would be quicker, at least, if all loads
	// of its run had been begun in time (timely.go).
	Timely  float64 `json:"timely"`
	Running float64 `json:"running,omitempty"` // sequences of language models at once, mean over the time of iterations
	Rate    float64 `json:"rate,omitempty"`    // tokens per second
	// Resident has the networks that were on each device for longest.
	Resident [][]int32 `json:"resident,omitempty"`
}

// meanAlone is the mean unloaded latency of a request of each application.
var meanAlone = [3]float64{2.408, 3.064, 2.690}

// play runs a scene under a policy.
func (x *runner) play(ctx context.Context, sc *scene, opt workflow.Options, seed uint64, resident [][]int32, instant bool) (*outcome, error) {
	fleet := func(devices int) *policy.Tables {
		return sc.withWays(workflows.Fleet{Devices: devices, Gigabytes: sc.Gigabytes, Resident: resident, Instant: instant, Session: sc.Session, Generations: sc.Generations}.Tables())
	}
	t := fleet(sc.Devices)
	length := time.Duration(sc.Minutes) * time.Minute
	apps := workflows.NewApps(seed)
	if sc.Generations {
		apps.Tokens = workflows.NewTokens(seed, sc.Spread)
	}
	opt.Seed = seed
	opt.Prediction.Seed = seed
	if sc.Charged {
		runtime.LockOSThread() // whose CPU time counts
		defer runtime.UnlockOSThread()
	}
	pol, schedulers := sc.served(t, fleet, opt)
	w := newWatch(pol, t, sc.Warmup, length)
	if sc.Generations {
		w.timely = nil // of batches of one on a device
	}
	r := &outcome{}
	unloaded, work := 0.0, 0.0
	var alone []float64 // of the requests in order of arrival
	apps.Heard = func(_ int32, least, took float64) {
		unloaded, work, alone = unloaded+least, work+took, append(alone, least)
	}
	list := x.trace.requests(sc.Rates, length, seed)
	for i := range list {
		list[i].SLO = time.Duration(sc.Scale * meanAlone[list[i].Model] * 1e9)
	}
	if sc.Foresight {
		foresee(list, seed)
	}
	place := map[time.Duration]int{}
	for i := range list {
		place[list[i].ArrivedAt] = i
	}
	var scales []float64
	var took []float64
	var arrived []time.Duration
	res, err := sim.Run(ctx, sim.Config{
		Tables: t, Policy: w, Source: arrivals.Slice(list), Duration: length, Verify: x.verify,
		Control: &workflows.Control{Draw: apps.Draw}, MoveTime: workflows.Move(t), NoReport: true,
		OnCompleted: func(at, answered time.Duration) {
			if at >= sc.Warmup {
				took, arrived = append(took, (answered-at).Seconds()), append(arrived, at)
				scales = append(scales, (answered-at).Seconds()/alone[place[at]])
				if answered-at <= list[place[at]].SLO {
					r.InTime++
				}
			}
		},
	})
	if err != nil {
		return nil, err
	}
	asked := 0
	for i := range list {
		if list[i].ArrivedAt >= sc.Warmup {
			asked++
		}
	}
	r.InTime /= float64(asked)
	r.Events, r.Think = res.Events, thought(schedulers, len(list))
	if s := res.Sessions; s != nil {
		all := float64(max(1, s.ReusedStates+s.RecomputedStates))
		r.Anew, r.Moved = float64(s.RecomputedStates)/all, float64(s.MovedStates)/all
	}
	r.Bound, r.Offered = unloaded/float64(len(alone)), work/(length.Seconds()*float64(sc.Devices))
	r.answers(sc, took, scales, arrived)
	r.devices(sc, w)
	if w.timely != nil {
		r.Timely = w.timely.saved(sc.Warmup, length).Seconds() / float64(len(took))
	}
	if g := res.Generation; g != nil {
		r.generated(g)
	}
	r.Resident = w.longest(t, length)
	return r, nil
}

// answers takes in how long requests took, in seconds and in multiples of their own
// unloaded latency, in the order in which they were answered.
func (r *outcome) answers(sc *scene, took, scales []float64, arrived []time.Duration) {
	r.Requests = len(took)
	sum, windows, counts := 0.0, make([]float64, (sc.Minutes+9)/10), make([]float64, (sc.Minutes+9)/10)
	for i, s := range took {
		sum += s
		k := int(arrived[i] / (10 * time.Minute))
		windows[k] += s
		counts[k]++
	}
	r.Mean = sum / float64(len(took))
	if sc.Windows {
		for k := range windows {
			r.Windows = append(r.Windows, windows[k]/counts[k])
		}
	}
	slices.Sort(took)
	slices.Sort(scales)
	last := (len(took)*99+99)/100 - 1
	r.P99, r.Scale99 = took[last], scales[last]
}

// generated takes in what language models did.
func (r *outcome) generated(g *sim.GenerationResult) {
	ran, area, tokens := time.Duration(0), time.Duration(0), int64(0)
	for i := range g.Models {
		m := &g.Models[i]
		ran, area, tokens = ran+m.IterationTime, area+m.SequenceTime, tokens+m.AnswerTokens
	}
	r.Running, r.Rate = float64(area)/float64(max(1, ran)), float64(tokens)/g.CountedTime.Seconds()
}

// devices takes in what devices did.
func (r *outcome) devices(sc *scene, w *watch) {
	length := time.Duration(sc.Minutes) * time.Minute
	counted := length - sc.Warmup
	r.Loads = float64(w.loads) / counted.Minutes()
	r.Batch = float64(w.tasks) / float64(w.batches)
	all := float64(counted) * float64(sc.Devices)
	for d := range w.devices {
		k := w.move(int32(d), length)
		r.Run += float64(k.run) / all
		r.Load += float64(k.load) / all
		r.Both += float64(k.two) / all
	}
}

// foresee names the ways of requests, which come in this order, by a hash each.
func foresee(list []arrivals.Request, seed uint64) {
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
