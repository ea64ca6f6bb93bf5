package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"

	"inferplan/formats"
	"inferplan/policy"
	"inferplan/sim"
)

// subject is a plan under a policy, a network and arrivals, at the rates of its
// case.
type subject struct {
	b        *bench
	sc       *sim.Scenario
	arrivals process
	// alone: models share no device and no link, so that each is simulated by
	// itself and the others have no arrivals.
	alone   bool
	planned []float64 // what the plan promises each model, as a load
	near    []int     // where each model's highest point may be; 0 if it is not known
	seen    []int     // points that were simulated
	print   string    // fingerprint
}

func (b *bench) subject(ctx context.Context, s *scene, algorithm, policyName string, network policy.Topology, p process) (*subject, error) {
	plan, err := s.plan(ctx, algorithm)
	if err != nil {
		return nil, err
	}
	rates, err := s.rates(ctx)
	if err != nil {
		return nil, err
	}
	sc, err := sim.NewScenarioOn(plan, network)
	if err != nil {
		return nil, err
	}
	sc.Policy, sc.Duration, sc.Seed = formats.PolicySpec{Name: policyName}, b.duration, 1
	out := &subject{b: b, sc: sc, arrivals: p, alone: network == policy.TopologyStages}
	for i := range sc.Tables.Models {
		m := &sc.Tables.Models[i]
		if !(rates[m.Name] > 0) {
			return nil, fmt.Errorf("%s: the PPipe plan has no rate for %s", s.name, m.Name)
		}
		sc.Rates = append(sc.Rates, rates[m.Name])
		out.planned = append(out.planned, m.RPS/rates[m.Name])
	}
	// A second of a run shows plan, policy, simulator and arrivals.
	probe := *sc
	probe.Duration = time.Second
	cfg, err := p.config(&probe, 0)
	if err != nil {
		return nil, err
	}
	res, err := sim.Run(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("%s, %s: %w", s.name, algorithm, err)
	}
	out.near = make([]int, len(out.planned))
	out.print = keyOf(res.Report, p.name, fmt.Sprint(sc.Rates, res.Events, res.Transfers))
	return out, nil
}

const (
	gridSteps = 20 // of a load of 1: the artifact's search ends there
	everyone  = -1 // all models at once
)

// key returns the key under which a run is kept.
func (s *subject) key(model, point, run int) string {
	return fmt.Sprintf("%s m%d l%d r%d %v", s.print, model, point, run, s.sc.Duration)
}

// run simulates one run at a point of the grid, of one model or of everyone.
func (s *subject) run(ctx context.Context, model, point, run int) (runResult, error) {
	return s.b.store.run(s.key(model, point, run), func() (runResult, error) {
		sc := *s.sc
		sc.Load = float64(point) / gridSteps
		if model != everyone {
			sc.Rates = make([]float64, len(s.sc.Rates))
			sc.Rates[model] = s.sc.Rates[model]
		}
		cfg, err := s.arrivals.config(&sc, run)
		if err != nil {
			return runResult{}, err
		}
		res, err := sim.Run(ctx, cfg)
		if err != nil {
			return runResult{}, fmt.Errorf("load %.2f, run %d: %w", sc.Load, run, err)
		}
		out := runResult{
			Use: map[string]float64{}, Events: res.Events,
			Transfers: [3]float64{float64(res.Transfers.Count), res.Transfers.Mean.Seconds() * 1e3, res.Transfers.P99.Seconds() * 1e3},
		}
		for i := range res.Report.Models {
			m := &res.Report.Models[i]
			out.Models = append(out.Models, modelResult{m.Requests, m.Dropped + m.Late})
		}
		for _, d := range res.Report.Devices {
			out.Use[d.Device] = d.Utilisation
		}
		return out, nil
	})
}

// runs simulates all runs of a point.
func (s *subject) runs(ctx context.Context, model, point int) ([]runResult, error) {
	var out []runResult
	for run := range s.b.runs {
		r, err := s.run(ctx, model, point, run)
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

// attains returns whether a model attains what is asked at a point, over all runs
// together. It gives up as soon as the runs that are left could not make good
// what is lost already, with 2 % to spare for their number of requests.
func (s *subject) attains(ctx context.Context, model, point int) (bool, error) {
	in := model
	if !s.alone {
		in = everyone
	}
	var all modelResult
	for run := range s.b.runs {
		r, err := s.run(ctx, in, point, run)
		if err != nil {
			return false, err
		}
		all.Requests += r.Models[model].Requests
		all.Lost += r.Models[model].Lost
		expected := float64(all.Requests) * float64(s.b.runs) / float64(run+1)
		if run+1 < s.b.runs && float64(all.Lost) > 1.02*(1-asked)*expected {
			return false, nil
		}
	}
	return all.attained() >= asked, nil
}

func (m *modelResult) attained() float64 {
	if m.Requests == 0 {
		return 1
	}
	return 1 - float64(m.Lost)/float64(m.Requests)
}

// highest is the highest point of the grid at which a model attains what is
// asked; 0 stands for none. It starts near where it was under other arrivals or another
// policy, else where the plan's own rate is, between the points that are known
// already. It goes away from there in growing steps and halves what is left:
// attainment is taken to fall with load.
func (s *subject) highest(ctx context.Context, model int) (int, error) {
	good, bad := s.known(model)
	at := s.near[model]
	if at == 0 {
		at = int(math.Floor(s.planned[model]*gridSteps + 1e-9))
	}
	at = max(good+1, min(at, bad-1))
	for step := 1; bad-good > 1; step *= 2 {
		pass, err := s.attains(ctx, model, at)
		if err != nil {
			return 0, err
		}
		s.seen = append(s.seen, at)
		next := at - step
		if pass {
			good, next = at, at+step
		} else {
			bad = at
		}
		if at = next; at <= good || at >= bad {
			at = (good + bad) / 2
		}
	}
	return good, nil
}

// known returns the bracket of a model by the points simulated for other models: the
// highest at which it attains what is asked, 0 for none, and the lowest above
// at which it does not, one past the grid for none.
func (s *subject) known(model int) (good, bad int) {
	bad = gridSteps + 1
	if s.alone {
		return 0, bad
	}
	for _, at := range s.seen {
		var all modelResult
		runs := 0
		for run := range s.b.runs {
			r, ok := s.b.store.has(s.key(everyone, at, run))
			if !ok {
				break
			}
			runs++
			all.Requests += r.Models[model].Requests
			all.Lost += r.Models[model].Lost
		}
		switch {
		case runs < s.b.runs: // it was enough for another model
		case all.attained() >= asked:
			good = max(good, at)
		default:
			bad = min(bad, at)
		}
	}
	if good >= bad { // attainment rose with load; the search decides
		return 0, bad
	}
	return good, bad
}

// found is the highest load of every model of a case, and the use of device
// kinds there: each model at its own highest load where models are simulated
// alone, else all at the least of them.
type found struct {
	models []string
	loads  []float64
	use    map[string]float64
}

func (s *subject) find(ctx context.Context) (*found, error) {
	out := &found{use: map[string]float64{}}
	least := gridSteps
	for m := range s.sc.Tables.Models {
		at, err := s.highest(ctx, m)
		if err != nil {
			return nil, err
		}
		least = min(least, at)
		out.models = append(out.models, s.sc.Tables.Models[m].Name)
		out.loads = append(out.loads, float64(at)/gridSteps)
		if s.alone && at > 0 {
			if err := s.addUse(ctx, out.use, m, at); err != nil {
				return nil, err
			}
		}
	}
	if !s.alone && least > 0 {
		if err := s.addUse(ctx, out.use, everyone, least); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (s *subject) addUse(ctx context.Context, use map[string]float64, model, point int) error {
	runs, err := s.runs(ctx, model, point)
	for i := range runs {
		for kind, u := range runs[i].Use {
			use[kind] += u / float64(len(runs))
		}
	}
	return err
}

// each does a job for 0 to n-1, as many at once as there are cores, and stops
// at the first error.
func each(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, n)
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(n, runtime.GOMAXPROCS(0)) {
		wg.Go(func() {
			for i := range next {
				if errs[i] = ctx.Err(); errs[i] == nil {
					errs[i] = do(ctx, i)
				}
				if errs[i] != nil {
					cancel()
				}
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
	if i := slices.IndexFunc(errs, func(err error) bool { return err != nil && !errors.Is(err, context.Canceled) }); i >= 0 {
		return errs[i]
	}
	return errors.Join(errs...)
}
