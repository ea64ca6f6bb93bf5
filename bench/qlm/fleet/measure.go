package fleet

import (
	"context"
	"fmt"
	"time"

	"inferplan/bench/qlm/rules"
	"inferplan/cputime"
	"inferplan/formats/arrivals"
	"inferplan/policy"
	"inferplan/policy/vqueue"
	"inferplan/sim"
)

// Policy is a policy that orders the queues of the fleet.
type Policy struct {
	Name    string
	Options vqueue.Options
	Cold    bool // models come from storage
	// Partition gives models instances of their own, Random deals requests at random, and Scale has
	// instances come and go.
	Partition, Random bool
	Scale             rules.Scale
}

// qlm are the options that were chosen on the rows up to 6000. One open group for the
// fleet saves changes of models: with one model alone there are none, and each queue
// has its own open group.
var qlm = vqueue.Options{GroupBatches: 1, OneOpenGroup: true, MemberOrder: vqueue.ByDeadline, FollowInstances: true}

// Policies are QLM and what it is held against.
var Policies = []Policy{
	{Name: "FCFS", Options: vqueue.Options{Rule: vqueue.FCFS}, Cold: true},
	{Name: "EDF", Options: vqueue.Options{Rule: vqueue.EDF}, Cold: true},
	{Name: "SHEPHERD-like", Options: vqueue.Options{NewDispatcher: rules.Shepherd}, Cold: true},
	{Name: "partition", Options: vqueue.Options{Rule: vqueue.EDF}, Partition: true},
	{Name: "gateway-like", Options: vqueue.Options{NewDispatcher: rules.Gateway}, Partition: true},
	{Name: "round robin", Options: without(vqueue.Balancing)},
	{Name: "random", Options: without(vqueue.Balancing), Random: true},
	{Name: "hash", Options: vqueue.Options{NewDispatcher: rules.SessionHash}, Partition: true},
	{Name: "hash, bounded load", Options: vqueue.Options{NewDispatcher: rules.BoundedSessionHash}, Partition: true},
	{Name: "QLM, no sessions", Options: changed(func(o *vqueue.Options) { o.IgnoreSessions = true })},
	{Name: "QLM", Options: qlm},
}

// Ablations are QLM with something left out or done otherwise.
var Ablations = []Policy{
	{Name: "QLM", Options: qlm},
	{Name: "no pulling", Options: without(vqueue.Pulling)},
	{Name: "no eviction", Options: without(vqueue.Eviction)},
	{Name: "no state swap", Options: without(vqueue.StateSwap)},
	{Name: "no pricing", Options: changed(func(o *vqueue.Options) { o.NoPausePricing = true })},
	{Name: "no warm start", Options: qlm, Cold: true},
	{Name: "no balancing", Options: without(vqueue.Balancing)},
	{Name: "no ordering", Options: changed(func(o *vqueue.Options) { o.AppendGroups, o.NoReplan = true, true })},
	{Name: "no following", Options: changed(func(o *vqueue.Options) { o.FollowInstances = false })},
	{Name: "new groups behind", Options: changed(func(o *vqueue.Options) { o.AppendGroups = true })},
	{Name: "re-plan on violation", Options: changed(func(o *vqueue.Options) { o.ReplanOnViolation = true })},
	{Name: "means only", Options: changed(func(o *vqueue.Options) {
		o.Objective = vqueue.Objective{LatenessRule: vqueue.ByMeans, LateWeight: 1, TardyWeight: 1e-3, EndWeight: 1e-3}
	})},
	{Name: "the paper's readings", Options: paper},
}

// paper are the readings of the paper: groups of four batches, members in order of
// arrival, new groups behind, re-plans where a violation is expected.
var paper = vqueue.Options{GroupBatches: 4, AppendGroups: true, ReplanOnViolation: true}

// Published is the policy by the paper's readings, and with one operation left out.
var Published = []Policy{
	{Name: "the paper's readings", Options: paper},
	{Name: "published, no pulling", Options: leaving(paper, vqueue.Pulling)},
	{Name: "published, no eviction", Options: leaving(paper, vqueue.Eviction)},
	{Name: "published, no state swap", Options: leaving(paper, vqueue.StateSwap)},
	{Name: "published, no warm start", Options: paper, Cold: true},
	{Name: "published, no balancing", Options: leaving(paper, vqueue.Balancing)},
}

// leaving is options without an operation.
func leaving(o vqueue.Options, l vqueue.LSO) vqueue.Options {
	o.DisabledLSOs[l] = true
	return o
}

// changed is QLM with other options.
func changed(change func(o *vqueue.Options)) vqueue.Options {
	o := qlm
	change(&o)
	return o
}

func without(l vqueue.LSO) vqueue.Options { return leaving(qlm, l) }

// Named is a policy by name.
func Named(name string) *Policy {
	for _, list := range [][]Policy{Policies, Ablations, Published} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}

// WithDelta is QLM with groups of so many batches.
func WithDelta(delta float64) *Policy {
	o := qlm
	o.GroupBatches = delta
	return &Policy{Name: fmt.Sprintf("QLM, delta %g", delta), Options: o}
}

// Scaled is QLM with instances that come after a delay, from so many on.
func Scaled(from int, delay time.Duration) *Policy {
	return &Policy{Name: fmt.Sprintf("QLM, scaled from %d in %v", from, delay), Options: qlm, Scale: rules.Scale{From: from, Delay: delay, Hold: 2 * time.Minute}}
}

// Case is one run.
type Case struct {
	Workload  *Workload
	Policy    *Policy
	RPS       float64
	From, To  int // rows
	Instances int
	A10, Big  int // of them on an A10, and on four A100s
	Seed      uint64
}

// Key names the case.
func (c *Case) Key() string {
	return fmt.Sprintf("fleet/%+v/%s/%g/%d-%d/%d-%d-%d/%d", *c.Workload, c.Policy.Name, c.RPS, c.From, c.To, c.Instances, c.A10, c.Big, c.Seed)
}

// Outcome holds the results of a run.
type Outcome struct {
	Requests   int64
	InTime     int64
	Class      []float64 // attainment
	Throughput float64   // requests by the time to the last answer
	Swaps      int64
	Evictions  int64
	Used       float64 // instances that were on, in the mean
	Searches   int64   // re-plans
	Searched   int64   // positions that they looked at
	CPU        float64 // seconds that the simulation took
	KV         float64 // share of KV memory in use, in the mean
	Prefix     float64 // share of the tokens of prompts that were found in a prefix cache
}

// Attainment is the share of all requests that was in time.
func (o *Outcome) Attainment() float64 { return float64(o.InTime) / float64(o.Requests) }

// searchWork bounds a re-plan.
const searchWork = 20_000

// perPosition is the time of a search per position that it looks at: twice that of
// the re-plan of 400,000 requests here.
const perPosition = time.Microsecond

// policy is the policy of a case, and how long its instances were on until a time.
func (c *Case) policy(t *policy.Tables) (policy.Policy, func(end time.Duration) time.Duration, error) {
	used := func(end time.Duration) time.Duration { return end * time.Duration(c.Instances) }
	opt := c.Policy.Options
	opt.Seed = c.Seed
	opt.OneOpenGroup = opt.OneOpenGroup && len(c.Workload.Models) > 1
	if c.Policy.Cold {
		opt.DisabledLSOs[vqueue.WarmStart] = true
	}
	if c.Policy.Partition {
		opt.AllowedDevices = rules.Partition(t)
	}
	if c.Policy.Random {
		opt.NewDealer = rules.Random
	}
	if c.Policy.Scale.From > 0 {
		opt.NewScaler = func(s *vqueue.InstanceControl) vqueue.Scaler {
			x := rules.NewScaling(s, c.Policy.Scale)
			used = x.Used
			return x
		}
	}
	p, err := vqueue.New(t, opt)
	return p, used, err
}

// Measure runs a case.
func (d *Data) Measure(ctx context.Context, c *Case) (*Outcome, error) {
	estimators, err := d.calibrate(c.Workload)
	if err != nil {
		return nil, err
	}
	list, err := c.requests(d)
	if err != nil {
		return nil, err
	}
	return c.run(ctx, estimators, list, searchWork, perPosition)
}

// run serves requests. A re-plan looks at so many positions at most, 0 stands for no limit, and takes some time for each.
func (c *Case) run(ctx context.Context, e *calibrated, list []arrivals.Request, searchWork int64, perPosition time.Duration) (*Outcome, error) {
	t, err := c.tables(e)
	if err != nil {
		return nil, err
	}
	pol, used, err := c.policy(t)
	if err != nil {
		return nil, err
	}
	out := &Outcome{}
	var end time.Duration
	cfg := sim.Config{
		Tables: t, Policy: pol, Source: arrivals.Slice(list), SearchWork: searchWork, Seed: c.Seed,
		SearchTime: func(worked int64) time.Duration {
			out.Searches, out.Searched = out.Searches+1, out.Searched+worked
			return time.Duration(worked) * perPosition
		},
		OnCompleted: func(_, answered time.Duration) { end = max(end, answered) },
	}
	if c.Policy.Cold {
		cfg.LoadTime = func(network, device int32) time.Duration {
			return t.Networks[network].LoadTimes[t.Devices[device].Kind][1]
		}
	}
	began := cputime.Used()
	res, err := sim.Run(ctx, cfg)
	if err != nil {
		return nil, err
	}
	out.CPU = (cputime.Used() - began).Seconds()
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
	out.Throughput, out.Used = float64(len(list))/end.Seconds(), used(end).Seconds()/end.Seconds()
	out.KV = res.Tokens.UsedKV()
	out.Prefix = float64(res.Tokens.CachedPrompt) / float64(res.Tokens.CachedPrompt+res.Tokens.ComputedPrompt)
	out.Swaps, out.Evictions = res.Tokens.Swaps, res.Tokens.Evictions
	return out, nil
}
