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
	"inferplan/formats/arrivals"
	"inferplan/policy/policies"
	"inferplan/sim"
)

// outcome has what is kept of a run, of several runs of a plan, or of a plan alone.
type outcome struct {
	Requests int64   `json:"requests"`
	Good     int64   `json:"good"`
	Late     int64   `json:"late"`
	Bound    int64   `json:"bound"`   // requests that a policy can answer in time
	Invalid  float64 `json:"invalid"` // share of the device time on requests
	// Of the windows of ten seconds with more arrivals than the workers carry:
	OverGood  int64       `json:"over_good"`
	OverBound int64       `json:"over_bound"`
	Drops     []int64     `json:"drops"` // by module
	Devices   float64     `json:"device_s"`
	Events    int64       `json:"events"` // module arrivals and ends of batches
	CPU       float64     `json:"cpu_s"`
	Objective float64     `json:"objective,omitempty"` // of a plan
	Stages    [][]float64 `json:"stages,omitempty"`    // of rag: seconds, p50, p90 and p99
}

func (o *outcome) dropRate() float64 { return 1 - float64(o.Good)/float64(o.Requests) }

// job is a run before it is measured.
type job struct {
	pipe     *pipeline
	trace    string
	rates    []float64 // of requests, by second
	rule     *scaling
	start    []int       // workers without a rule
	noise    float64     // log-normal, of execution times; the profiles are their means
	slowdown float64     // by which everything takes longer than the profiles say; 0 stands for 1
	faults   []sim.Fault // of workers
	largest  float64     // rate of the table over what 64 workers carry; 0 stands for 1.5
}

// tracedJob returns the run of a pipeline with 64 workers on a trace.
func tracedJob(p *pipeline, t *trace, late bool) *job {
	return &job{pipe: p, trace: t.name, rates: t.rates(p), rule: p.fixedScaling(late)}
}

// slowService takes a multiple of the times of the tables.
type slowService struct {
	sim.Service
	factor float64
}

// RunTime implements sim.Service.
func (s slowService) RunTime(stage, batch int32) time.Duration {
	return time.Duration(s.factor * float64(s.Service.RunTime(stage, batch)))
}

// policySpec returns a policy by its name, with parameters behind pluses (feas+token+lambda=.3). The entry of oc looks at 20 ms of queueing
// on wiki, at 25 on the others (PARD §5.3).
func policySpec(name, trace string) formats.PolicySpec {
	spec := formats.PolicySpec{Name: name, Params: map[string]float64{}}
	if base, params, ok := strings.Cut(name, "+"); ok && base != "clipper" {
		spec.Name = base
		for param := range strings.SplitSeq(params, "+") {
			key, text, _ := strings.Cut(param, "=")
			value, err := strconv.ParseFloat(text, 64)
			if err != nil {
				value = 1
			}
			spec.Params[key] = value
		}
	}
	if name == "oc" && trace == "wiki" {
		spec.Params["oc_limit_us"] = 20000
	}
	return spec
}

// measure runs a job.
func (j *job) measure(ctx context.Context, policy formats.PolicySpec, seed uint64) (outcome, error) {
	before, start := cputime.Used(), j.start
	if j.rule != nil {
		start = j.pipe.want(float64(firstSecond(j.rates, seed)), j.rule)
	}
	plan := j.pipe.deploy(policy, j.rule, start, cmp.Or(j.largest, 1.5)*j.pipe.capacity(64))
	if err := plan.Validate(); err != nil {
		return outcome{}, fmt.Errorf("the plan of %s: %w", j.pipe.name, err)
	}
	flow, err := simulate(ctx, plan, newPoisson(j.rates, seed), func(cfg *sim.Config) error {
		cfg.Faults, cfg.Duration = j.faults, time.Duration(len(j.rates))*time.Second
		if j.noise > 0 {
			cfg.Service = sim.JitterService(cfg.Tables, sim.Lognormal, j.noise, seed)
		}
		if j.slowdown > 0 {
			cfg.Service = slowService{sim.ExactService(cfg.Tables), j.slowdown}
		}
		return nil
	})
	if err != nil {
		return outcome{}, err
	}
	out := summary(flow)
	out.CPU = (cputime.Used() - before).Seconds()
	return out, nil
}

// simulate runs a plan under its policy. complete completes the configuration.
func simulate(ctx context.Context, plan *formats.Plan, source arrivals.Source, complete func(cfg *sim.Config) error) (*sim.FlowResult, error) {
	t, err := policies.Compile(plan)
	if err != nil {
		return nil, err
	}
	policy, err := policies.New(plan.Policy, t)
	if err != nil {
		return nil, err
	}
	cfg := sim.Config{Tables: t, Policy: policy, Source: source, Control: policies.NewControl(t), NoReport: true}
	if err := complete(&cfg); err != nil {
		return nil, err
	}
	res, err := sim.Run(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("simulating: %w", err)
	}
	return res.Flow, nil
}

// summary takes from a run what is kept.
func summary(f *sim.FlowResult) outcome {
	out := outcome{Requests: f.Requests, Good: f.Good, Late: f.Late, Bound: f.Bound, Devices: f.DeviceTime.Seconds()}
	run, invalid := time.Duration(0), time.Duration(0)
	for i := range f.Modules {
		m := &f.Modules[i]
		run, invalid = run+m.RunTime, invalid+m.InvalidTime
		out.Drops = append(out.Drops, m.Dropped)
		out.Events += m.Requests
		for _, n := range m.BatchesBySize {
			out.Events += n
		}
	}
	out.Invalid = invalid.Seconds() / run.Seconds()
	over, _ := f.OverloadedWindows()
	out.OverGood, out.OverBound = int64(over.Good), int64(over.Bound)
	return out
}
