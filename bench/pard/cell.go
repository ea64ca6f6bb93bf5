package main

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"inferplan/cputime"
	"inferplan/formats"
	"inferplan/policy/policies"
	"inferplan/sim"
)

// cell is one run: a case under a policy with a seed.
type cell struct {
	Case   string `json:"case"` // S0/lv-tweet, stress/lv-1.20
	Policy string `json:"policy"`
	Seed   uint64 `json:"seed"`
	outcome
}

// outcome holds the figures that are kept of a run.
type outcome struct {
	Requests int64   `json:"requests"`
	Good     int64   `json:"good"`
	Late     int64   `json:"late"`
	Bound    int64   `json:"bound"`
	Invalid  float64 `json:"invalid"` // share of the device time on requests
	Min10    float64 `json:"min10"`   // least goodput of ten seconds, over arrivals
	// Of the windows of ten seconds with more arrivals than the workers carry:
	Over      int64       `json:"over"` // arrivals
	OverGood  int64       `json:"over_good"`
	OverBound int64       `json:"over_bound"`
	Drops     []int64     `json:"drops"` // by module
	Devices   float64     `json:"device_s"`
	Workers   []int64     `json:"worker_s"` // by module
	Tasks     int64       `json:"tasks"`
	Batches   int64       `json:"batches"`
	CPU       float64     `json:"cpu_s"`
	Value     float64     `json:"value,omitempty"`  // of a part that is no run of a policy
	Stages    [][]float64 `json:"stages,omitempty"` // of rag: seconds, p50, p90 and p99
}

func (o *outcome) drop() float64  { return 1 - float64(o.Good)/float64(o.Requests) }
func (o *outcome) share() float64 { return float64(o.Good) / float64(o.Bound) }
func (o *outcome) overShare() float64 {
	return float64(o.OverGood) / float64(max(1, o.OverBound))
}
func (o *outcome) overGoodput() float64 { return float64(o.OverGood) / float64(max(1, o.Over)) }

// events are module arrivals, ends of batches and ticks.
func (o *outcome) events() float64 { return float64(o.Tasks + o.Batches) }

// job is a run before it is measured.
type job struct {
	pipe  *pipeline
	rates []float64
	rule  *scaling
	start []int   // without a rule
	noise float64 // log-normal, of execution times; the profiles are their means
	wrong float64 // factor by which everything takes longer than the profiles say; 0 stands for none
	fault []sim.Fault
	top   float64 // largest rate of the table over what 64 workers carry; 0 stands for 1.5
	spans *spans  // nil if nobody asks
}

// slow takes a factor of the times of the tables.
type slow struct {
	sim.Service
	factor float64
}

// RunTime implements sim.Service.
func (s slow) RunTime(stage, batch int32) time.Duration {
	return time.Duration(s.factor * float64(s.Service.RunTime(stage, batch)))
}

// spec is a policy of a table by its name: a policy of the plan, with parameters
// behind pluses (feas+token+lambda=.3). The entry of oc looks at 20 ms of queueing
// on wiki, at 25 on the others (PARD §5.3).
func spec(name, trace string) formats.PolicySpec {
	name = strings.TrimSuffix(name, knownWays)
	out := formats.PolicySpec{Name: name, Params: map[string]float64{}}
	if base, with, ok := strings.Cut(name, "+"); ok && base != "clipper" {
		out.Name = base
		for one := range strings.SplitSeq(with, "+") {
			key, text, _ := strings.Cut(one, "=")
			x, err := strconv.ParseFloat(text, 64)
			if err != nil {
				x = 1
			}
			out.Params[key] = x
		}
	}
	if _, ok := out.Params["samples"]; ok {
		out.Name = "pard-sampled"
	}
	if name == "oc" && trace == "wiki" {
		out.Params["oc_limit_us"] = 20000
	}
	return out
}

// measure runs a job, and takes from it what the tables need.
func (j *job) measure(ctx context.Context, policy formats.PolicySpec, seed uint64) (outcome, error) {
	before := cputime.Used()
	f, err := j.run(ctx, policy, seed)
	if err != nil {
		return outcome{}, err
	}
	out := j.kept(f)
	out.CPU = (cputime.Used() - before).Seconds()
	return out, nil
}

// run runs a job.
func (j *job) run(ctx context.Context, policy formats.PolicySpec, seed uint64) (*sim.FlowResult, error) {
	start := j.start
	if j.rule != nil {
		start = j.pipe.want(float64(firstSecond(j.rates, seed)), j.rule)
	}
	plan := j.pipe.deploy(policy.Name, policy.Params, j.rule, start, cmp.Or(j.top, 1.5)*j.pipe.capacity(64))
	if err := plan.Validate(); err != nil {
		return nil, fmt.Errorf("the plan of %s: %w", j.pipe.name, err)
	}
	t, err := policies.Compile(plan)
	if err != nil {
		return nil, err
	}
	pol, err := policies.New(plan.Policy, t)
	if err != nil {
		return nil, err
	}
	cfg := sim.Config{Tables: t, Policy: pol, Source: newPoisson(j.rates, seed), Control: policies.NewControl(t), NoReport: true, Faults: j.fault,
		Duration: time.Duration(len(j.rates)) * time.Second}
	if j.spans != nil {
		j.spans.Policy = pol
		cfg.Policy, cfg.OnCompleted = j.spans, j.spans.completed
	}
	if j.pipe.stages[0].ways != nil {
		f := newForks(cfg.Source, j.pipe, seed)
		cfg.Source = f
		if !f.known {
			cfg.Truth = f
		}
	}
	if j.noise > 0 {
		cfg.Service = sim.JitterService(t, sim.Lognormal, j.noise, seed)
	}
	if j.wrong > 0 {
		cfg.Service = slow{sim.ExactService(t), j.wrong}
	}
	res, err := sim.Run(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return res.Flow, nil
}

// kept takes from a run what the tables need.
func (j *job) kept(f *sim.FlowResult) outcome {
	out := outcome{Requests: f.Requests, Good: f.Good, Late: f.Late, Bound: f.Bound, Devices: f.DeviceTime.Seconds()}
	run, invalid := time.Duration(0), time.Duration(0)
	for i := range f.Modules {
		m := &f.Modules[i]
		run, invalid = run+m.RunTime, invalid+m.InvalidTime
		out.Drops = append(out.Drops, m.Dropped)
		out.Tasks += m.Requests
		for _, n := range m.BatchesBySize {
			out.Batches += n
		}
		sum := int64(0)
		for s := range len(j.rates) {
			sum += int64(m.Workers[min(s, len(m.Workers)-1)])
		}
		out.Workers = append(out.Workers, sum)
	}
	out.Invalid = invalid.Seconds() / run.Seconds()
	out.Min10 = 1
	const width = 10
	for s := 0; s+width <= len(f.Seconds); s += width {
		arrived, good := int32(0), int32(0)
		for _, x := range f.Seconds[s : s+width] {
			arrived, good = arrived+x.Arrived, good+x.Good
		}
		if arrived >= 50 {
			out.Min10 = min(out.Min10, float64(good)/float64(arrived))
		}
	}
	over, _ := f.OverloadedWindows()
	out.Over, out.OverGood, out.OverBound = int64(over.Arrived), int64(over.Good), int64(over.Bound)
	return out
}
