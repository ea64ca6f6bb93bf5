package sizing

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	_ "inferplan/bench/qlm/rules" // gateway
	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/formats/report"
	"inferplan/planner/queue/deploy"
	"inferplan/policy/balance"
	"inferplan/sim"
)

// BatchCompetitor orders interactive requests and those of a batch.
type BatchCompetitor struct {
	Name    string
	Policy  formats.PolicySpec
	Planned bool // what runs at once is the planner's choice
}

// BatchCompetitors are what the planner is held against, and the planner.
var BatchCompetitors = []BatchCompetitor{
	{Name: "balanced servers, first come first served", Policy: formats.PolicySpec{Name: balance.Name}},
	{Name: "balanced servers, by priority", Policy: formats.PolicySpec{Name: balance.PriorityName}},
	{Name: "FCFS", Policy: formats.PolicySpec{Name: "fcfs"}},
	{Name: "EDF", Policy: formats.PolicySpec{Name: "edf"}},
	{Name: "gateway-like", Policy: formats.PolicySpec{Name: "gateway"}},
	{Name: "virtual queues, no caps", Policy: virtual},
	{Name: "planned", Policy: virtual, Planned: true},
}

var virtual = formats.PolicySpec{Name: "vqueue", Params: map[string]float64{"by_deadline": 1, "group_scale": 1, "follow": 1}}

// Outcome is a competitor's runs of a case, each with what it was alone.
type Outcome struct {
	Fleet string
	Runs  []Run
}

// Run is one of them. P99 is of whole interactive answers that came while the batch
// was worked off, FirstToken of first tokens over all of the window.
type Run struct {
	Alone, P99             time.Duration
	FirstAlone, FirstToken time.Duration
	Done                   int // lines within the window
	Last                   time.Duration
}

// Ratio says how many times as long answers take beside the batch.
func (r *Run) Ratio() float64 { return r.P99.Seconds() / r.Alone.Seconds() }

// Ratios returns those of all runs.
func (o *Outcome) Ratios() (list []float64) {
	for i := range o.Runs {
		list = append(list, o.Runs[i].Ratio())
	}
	return list
}

// Sum returns the sums of the times and lines of all runs.
func (o *Outcome) Sum() (sum Run) {
	for _, r := range o.Runs {
		sum.Alone, sum.P99 = sum.Alone+r.Alone, sum.P99+r.P99
		sum.FirstAlone, sum.FirstToken = sum.FirstAlone+r.FirstAlone, sum.FirstToken+r.FirstToken
		sum.Done, sum.Last = sum.Done+r.Done, sum.Last+r.Last
	}
	return sum
}

// Slower is the most that interactive answers may take beside the batch against alone.
const Slower = 1.5

// reserve is the part of it that the planner is asked to keep: other stretches of the
// trace are other than the one that it chooses on.
const reserve = 0.9

// Measure has the runs of a competitor. What is alone is served by first come, first
// served, with all that fits running at once.
func (d *Trace) Measure(ctx context.Context, c *BatchCase, k *BatchCompetitor) (*Outcome, error) {
	alone, err := c.reference(ctx, d)
	if err != nil {
		return nil, err
	}
	p, err := c.problem(d, time.Duration(reserve*Slower*float64(p99(alone[0].answers, window))))
	if err != nil {
		return nil, err
	}
	p.Policy = k.Policy
	l, out := whole(c.GPUs), &Outcome{Fleet: "one pool"}
	if k.Planned {
		f, err := deploy.NewSearch(p).HighestGoodput(ctx, deploy.SearchOptions{SeparateClasses: true}, nil)
		if err != nil {
			return nil, fmt.Errorf("%s, %s: %w", c.Name, k.Name, err)
		}
		l, out.Fleet = f.Layout, words(p, f.Layout)
	}
	for stretch := 1; stretch <= Runs; stretch++ {
		list, err := c.requests(d, stretch, c.Lines)
		if err != nil {
			return nil, err
		}
		got, err := run(ctx, p, l, list)
		if err != nil {
			return nil, fmt.Errorf("%s, %s: %w", c.Name, k.Name, err)
		}
		if got.lines != c.Lines {
			return nil, fmt.Errorf("%s, %s: %d of %d lines were answered", c.Name, k.Name, got.lines, c.Lines)
		}
		out.Runs = append(out.Runs, Run{
			Alone: p99(alone[stretch].answers, got.last), P99: p99(got.answers, got.last),
			FirstAlone: alone[stretch].first, FirstToken: got.first, Done: got.done, Last: got.last,
		})
	}
	return out, nil
}

// reference are the runs without a batch, the planner's first.
func (c *BatchCase) reference(ctx context.Context, d *Trace) ([]*served, error) {
	p, err := c.problem(d, window)
	if err != nil {
		return nil, err
	}
	p.Policy = formats.PolicySpec{Name: balance.Name}
	var out []*served
	for stretch := range Runs + 1 {
		list, err := c.requests(d, stretch, 0)
		if err != nil {
			return nil, err
		}
		got, err := run(ctx, p, whole(c.GPUs), list)
		if err != nil {
			return nil, fmt.Errorf("%s, alone: %w", c.Name, err)
		}
		out = append(out, got)
	}
	return out, nil
}

// whole is a fleet of one pool where as much runs at once as fits.
func whole(gpus int) *deploy.Layout {
	return &deploy.Layout{Pools: []deploy.Pool{{Items: []int{interactive, batch}, Counts: []int{gpus}, Caps: [][]int{{mostSequences}}, ClassCaps: []int{0, 0}}}}
}

// answer is an interactive one.
type answer struct{ came, took time.Duration }

// served holds the results of a run.
type served struct {
	answers     []answer
	first       time.Duration // 99th percentile of the first tokens of interactive requests
	lines, done int           // of the batch, and those within the window
	last        time.Duration // when its last line was answered
}

// run serves requests on a fleet.
func run(ctx context.Context, p *deploy.Problem, l *deploy.Layout, list []arrivals.Request) (*served, error) {
	plan, err := deploy.NewSearch(p).Plans.Plan(l, []int{interactive, batch})
	if err != nil {
		return nil, err
	}
	if p.Policy.Name == balance.PriorityName { // of which the servers know
		q := formats.QueueOf(plan)
		q.Classes[batch].Priority = 1 // behind the others
		for i := range q.Instances {
			q.Instances[i].Scheduling = formats.SchedulePriority
		}
	}
	sc, err := sim.NewScenario(plan)
	if err != nil {
		return nil, err
	}
	cfg, err := sc.Replay(arrivals.Slice(list))
	if err != nil {
		return nil, err
	}
	out := &served{}
	cfg.SearchWork, cfg.SearchTime = p.SearchWork, p.SearchTime
	cfg.OnCompleted = func(came, answered time.Duration) {
		if came > 0 { // the batch comes at the beginning
			out.answers = append(out.answers, answer{came, answered - came})
			return
		}
		out.lines++
		if out.last = max(out.last, answered); answered <= window {
			out.done++
		}
	}
	res, err := sim.Run(ctx, cfg)
	if err != nil {
		return nil, err
	}
	n := slices.IndexFunc(res.Report.Classes, func(c formats.ClassReport) bool { return c.Class == p.Classes[interactive].Name })
	if n < 0 {
		return nil, errors.New("the report has no interactive class")
	}
	out.first = res.Report.Classes[n].TTFTP99US.D()
	return out, nil
}

// p99 is the 99th percentile of the answers to what came until a time.
func p99(list []answer, until time.Duration) time.Duration {
	var took []time.Duration
	for _, a := range list {
		if a.came <= until {
			took = append(took, a.took)
		}
	}
	slices.Sort(took)
	return report.Percentile(took, 0.99)
}
