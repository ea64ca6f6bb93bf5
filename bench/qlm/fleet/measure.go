package fleet

import (
	"context"
	"fmt"
	"time"

	"inferplan/formats/arrivals"
	"inferplan/policy"
	"inferplan/policy/vqueue"
	"inferplan/sim"
)

// Policy is what orders the queues of the fleet.
type Policy struct {
	Name    string
	Options vqueue.Options
	Cold    bool // models come from storage
	// Partition gives every model instances of its own, with the others shared.
	Partition bool
}

// Policies are QLM and what it is held against. QLM's options were chosen on the
// rows up to 6000. One open group for the fleet saves changes of models: with one
// model alone there are none, and each queue has its own open group.
var Policies = []Policy{
	{Name: "FCFS", Options: vqueue.Options{Rule: vqueue.FCFS}, Cold: true},
	{Name: "EDF", Options: vqueue.Options{Rule: vqueue.EDF}, Cold: true},
	{Name: "SHEPHERD-like", Options: vqueue.Options{Rule: vqueue.Shepherd}, Cold: true},
	{Name: "partition", Options: vqueue.Options{Rule: vqueue.EDF}, Partition: true},
	{Name: "QLM", Options: vqueue.Options{Delta: 1, OneOpen: true, Members: vqueue.ByDeadline}},
}

// Case is one run.
type Case struct {
	Workload  *Workload
	Policy    *Policy
	RPS       float64
	From, To  int // rows
	Instances int
	Seed      uint64
}

// Key names the case.
func (c *Case) Key() string {
	return fmt.Sprintf("fleet/%s/%s/%g/%d-%d/%d/%d", c.Workload.Name, c.Policy.Name, c.RPS, c.From, c.To, c.Instances, c.Seed)
}

// Outcome is what a run came to.
type Outcome struct {
	Load       float64 // work offered per second over what the instances do
	Requests   int64
	InTime     int64
	Class      []float64 // attainment
	Throughput float64   // requests by the time to the last answer
	Swaps      int64
	Evictions  int64
	Preempted  int64
}

// Attainment is the share of all requests that was in time.
func (o *Outcome) Attainment() float64 { return float64(o.InTime) / float64(o.Requests) }

// searchWork bounds a re-plan.
const searchWork = 20_000

// perPosition is what a search takes per position that it looks at: twice what the
// re-plan of 400,000 requests takes here.
const perPosition = time.Microsecond

// Measure runs a case.
func (d *Data) Measure(ctx context.Context, c *Case) (*Outcome, error) {
	estimators, err := d.calibrate()
	if err != nil {
		return nil, err
	}
	list, err := c.Workload.requests(d, c.From, c.To, c.Seed)
	if err != nil {
		return nil, err
	}
	out := &Outcome{Load: c.RPS / float64(len(list)) * c.Workload.work(estimators, list) / float64(c.Instances)}
	compress(list, c.RPS)
	t := c.Workload.tables(estimators, c.Instances)
	if c.Policy.Partition {
		c.Workload.partition(t, estimators, c.Instances)
	}
	opt := c.Policy.Options
	opt.Seed = c.Seed
	opt.OneOpen = opt.OneOpen && len(c.Workload.Models) > 1
	if c.Policy.Cold {
		opt.Without[vqueue.WarmStart] = true
	}
	pol, err := vqueue.New(t, opt)
	if err != nil {
		return nil, err
	}
	var end time.Duration
	cfg := sim.Config{
		Tables: t, Policy: pol, Source: arrivals.Slice(list), SearchWork: searchWork, Seed: c.Seed,
		SearchTime: func(worked int64) time.Duration { return time.Duration(worked) * perPosition },
		Completed:  func(_, answered time.Duration) { end = max(end, answered) },
	}
	if c.Policy.Cold {
		cfg.LoadTime = func(network, device int32) time.Duration { return t.Networks[network].Load[t.Devices[device].Kind][1] }
	}
	res, err := sim.Run(ctx, cfg)
	if err != nil {
		return nil, err
	}
	for i := range res.Report.Models {
		m := &res.Report.Models[i]
		out.Requests += m.Requests
		out.InTime += m.Completed - m.Late
	}
	for i := range res.Report.Classes {
		out.Class = append(out.Class, res.Report.Classes[i].Attainment)
	}
	if out.Requests != int64(len(list)) {
		return nil, fmt.Errorf("%s: %d requests are reported, %d came", c.Key(), out.Requests, len(list))
	}
	out.Throughput = float64(len(list)) / end.Seconds()
	out.Swaps, out.Evictions, out.Preempted = res.Tokens.Swaps, res.Tokens.Evictions, res.Tokens.Preempted
	return out, nil
}

// partition gives instances to models by their work, the most first: each takes as
// many whole instances as its share is of them, and the rest share what is left.
func (w *Workload) partition(t *policy.Tables, c *calibrated, instances int) {
	own := vqueue.Of(t)
	own.Only = make([][]int32, len(t.Networks))
	if len(w.Models) == 1 {
		own.Only[0] = t.StageDevices
		return
	}
	need, total := make([]float64, len(w.Models)), 0.0
	for n, of := range w.Models {
		each, _ := c.plain[of%2].Work(1)
		need[n] = popularity[of] * each
		total += need[n]
	}
	next := int32(0)
	for n := range w.Models {
		for k := 0.75; k < need[n]/total*float64(instances) && int(next) < instances-1; k++ {
			own.Only[n] = append(own.Only[n], next)
			t.Resident[next] = []int32{int32(n)}
			next++
		}
	}
	for n := range w.Models {
		if own.Only[n] == nil {
			for d := next; int(d) < instances; d++ {
				own.Only[n] = append(own.Only[n], d)
				t.Resident[d] = []int32{int32(n)}
			}
		}
	}
}
