package main

import (
	"context"
	"fmt"
	"math"
	"slices"

	"inferplan/bench/instrument"
	"inferplan/formats"
	"inferplan/policy"
	"inferplan/policy/artifact"
	"inferplan/policy/reserve"
	"inferplan/sim"
)

// manner is a policy on a network.
type manner struct {
	policy  string
	network policy.Topology
}

var (
	asArtifact = manner{artifact.Name, policy.TopologyStages}
	asOurs     = manner{reserve.Name, policy.TopologyNodes}
)

// subject is a plan under a policy, a network and arrivals, at the rates of its
// case.
type subject struct {
	b  *bench
	sc *sim.Scenario
	// alone: models share no device and no link, so that each is simulated by
	// itself and the others have no arrivals.
	alone   bool
	planned []float64 // what the plan promises each model, as a load
	key     string    // of its runs
}

func (b *bench) subject(ctx context.Context, s *scene, algorithm string, m manner, p process) (*subject, error) {
	plan, err := s.plan(ctx, algorithm)
	if err != nil {
		return nil, fmt.Errorf("%s, %s: %w", s.name, algorithm, err)
	}
	rates, err := s.rates(ctx)
	if err != nil {
		return nil, err
	}
	sc, err := sim.NewScenarioOn(plan, m.network)
	if err != nil {
		return nil, err
	}
	sc.Policy, sc.Arrivals, sc.Duration, sc.Seed = formats.PolicySpec{Name: m.policy}, p.spec, b.duration, 1
	out := &subject{b: b, sc: sc, alone: m.network == policy.TopologyStages}
	for i := range sc.Tables.Models {
		model := &sc.Tables.Models[i]
		if !(rates[model.Name] > 0) {
			return nil, fmt.Errorf("%s: the PPipe plan has no rate for %s", s.name, model.Name)
		}
		sc.Rates = append(sc.Rates, rates[model.Name])
		out.planned = append(out.planned, model.RPS/rates[model.Name])
	}
	out.key = fmt.Sprintf("run %s %s %v %s %v", s.name, algorithm, m, p.name, keyOf(plan, sc.Rates, b.duration))
	return out, nil
}

const (
	gridSteps = 20 // of a load of 1: the artifact's search ends there
	everyone  = -1 // all models at once
)

// point holds the results of all runs at a step of the grid.
type point struct {
	Models    []requests         // by model
	Use       map[string]float64 // by device kind
	Transfers [3]float64         // their number, and the sums of means and of 99th percentiles in ms, each times its number
}

// requests counts a model's requests: all, and those dropped or late.
type requests struct{ All, Lost int64 }

// attained returns the share of requests in time.
func (q *requests) attained() float64 {
	if q.All == 0 {
		return 1
	}
	return 1 - float64(q.Lost)/float64(q.All)
}

// simulate simulates a step of the grid, for one model or for everyone. Models that share nothing are simulated alone.
func (s *subject) simulate(ctx context.Context, model, step int) (*point, error) {
	sc := *s.sc
	sc.Load = float64(step) / gridSteps
	if s.alone && model != everyone {
		sc.Rates = make([]float64, len(s.sc.Rates))
		sc.Rates[model] = s.sc.Rates[model]
	} else {
		model = everyone
	}
	return instrument.Measured(s.b.Run, fmt.Sprintf("%s m%d l%d", s.key, model, step), func() (*point, error) {
		out := &point{Models: make([]requests, len(sc.Rates)), Use: map[string]float64{}}
		for run := range s.b.runs {
			cfg, err := sc.Config(run)
			if err != nil {
				return nil, err
			}
			res, err := sim.Run(ctx, cfg)
			if err != nil {
				return nil, err
			}
			for i := range out.Models {
				m := &res.Report.Models[i]
				out.Models[i].All += m.Requests
				out.Models[i].Lost += m.Dropped + m.Late
			}
			for _, d := range res.Report.Devices {
				out.Use[d.Device] += d.Utilisation / float64(s.b.runs)
			}
			n := float64(res.Transfers.Count)
			out.Transfers[0] += n
			out.Transfers[1] += n * res.Transfers.Mean.Seconds() * 1e3
			out.Transfers[2] += n * res.Transfers.P99.Seconds() * 1e3
		}
		return out, nil
	})
}

// highest returns the highest step of the grid at which a model attains what is asked; 0 stands for none. It starts where the plan's
// own rate is, goes away from there in growing steps and halves what is left: attainment is taken to fall with load.
func (s *subject) highest(ctx context.Context, model int) (int, error) {
	good, bad := 0, gridSteps+1
	at := max(1, min(int(math.Floor(s.planned[model]*gridSteps+1e-9)), gridSteps))
	for width := 1; bad-good > 1; width *= 2 {
		p, err := s.simulate(ctx, model, at)
		if err != nil {
			return 0, err
		}
		next := at - width
		if p.Models[model].attained() >= asked {
			good, next = at, at+width
		} else {
			bad = at
		}
		if at = next; at <= good || at >= bad {
			at = (good + bad) / 2
		}
	}
	return good, nil
}

// highestLoads is the highest load of every model of a case, and the use of device
// kinds there: each model at its own highest load where models are simulated
// alone, else all at the least of them.
type highestLoads struct {
	models []string
	loads  map[string]float64 // by model
	use    map[string]float64 // by device kind
}

// find searches the highest loads.
func (s *subject) find(ctx context.Context) (*highestLoads, error) {
	out := &highestLoads{loads: map[string]float64{}, use: map[string]float64{}}
	steps := make([]int, len(s.sc.Tables.Models))
	for m := range steps {
		var err error
		if steps[m], err = s.highest(ctx, m); err != nil {
			return nil, err
		}
		name := s.sc.Tables.Models[m].Name
		out.models, out.loads[name] = append(out.models, name), float64(steps[m])/gridSteps
	}
	if !s.alone {
		steps = []int{slices.Min(steps)}
	}
	for m, step := range steps {
		if step == 0 {
			continue
		}
		p, err := s.simulate(ctx, m, step)
		if err != nil {
			return nil, err
		}
		for kind, share := range p.Use {
			out.use[kind] += share
		}
	}
	return out, nil
}

// modelLoads returns the highest load of every model beside the others, up to 1.5.
func (s *subject) modelLoads(ctx context.Context, step float64) ([]float64, error) {
	return instrument.Measured(s.b.Run, fmt.Sprintf("loads %s %v %g", s.key, s.sc.Policy.Params, step), func() ([]float64, error) {
		shares := slices.Repeat([]float64{asked}, len(s.sc.Tables.Models))
		res, err := sim.FindModelLoads(ctx, s.sc, sim.ModelLoadSearch{Shares: shares, Runs: s.b.runs, Step: step, MaxLoad: 1.5})
		if err != nil {
			return nil, err
		}
		return res.Loads, nil
	})
}
