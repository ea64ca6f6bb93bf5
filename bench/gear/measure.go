package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"

	"inferplan/bench/gear/baseline"
	"inferplan/bench/gear/published"
	"inferplan/formats/arrivals"
	"inferplan/formats/seeded"
	"inferplan/planner/gear/cascades"
	"inferplan/planner/gear/search"
	"inferplan/planner/gear/trials"
	"inferplan/policy"
	policygear "inferplan/policy/gear"
	"inferplan/solver/highs"
)

// planSeed is the seed of all plans.
const planSeed = 7

// stream names arrivals: even, or Poisson with a seed.
type stream uint64

const even stream = 0

func (s stream) String() string {
	if s == even {
		return "even"
	}
	return fmt.Sprintf("poisson-%d", uint64(s))
}

func (s stream) source(f *published.Family) arrivals.Source {
	if s == even {
		return f.Rates.Even()
	}
	return f.Rates.Poisson(seeded.New(uint64(s), "bench/gear"))
}

// runs makes each run once: results are kept by key.
type runs struct {
	ctx      context.Context
	seeds    int
	jobs     int
	store    *store
	progress *progress
	counting map[string]bool // keys, while only the cost is counted; nil while measuring
}

// poisson are the seeds' streams.
func (b *runs) poisson() []stream { return randomly(b.seeds) }

// randomly are streams of requests at random instants.
func randomly(n int) []stream {
	var out []stream
	for i := range n {
		out = append(out, stream(i+1))
	}
	return out
}

// place is where a system runs: a family's models on some devices under an SLO.
type place struct {
	f       *published.Family
	devices int
	slo     time.Duration
}

func (p place) String() string { return fmt.Sprintf("%s/%d/%v", p.f.Name, p.devices, p.slo) }

func (b *runs) problem(p place) (*cascades.Problem, error) {
	return baseline.Problem(p.f, p.devices, ranges, p.slo)
}

// ranges of all plans but those of the planning-time table.
const ranges = 10

// system is a system under measurement; its tables are made where a run is not kept yet.
type system struct {
	place
	name   string
	tables func() (*policy.Tables, error)
}

// fixed is a system whose tables are there.
func fixed(p place, name string, t *policy.Tables) *system {
	return &system{p, name, func() (*policy.Tables, error) { return t, nil }}
}

// show runs a system on a stream, or takes what is kept.
func (b *runs) show(s *system, on stream, windows baseline.Sliding) (*baseline.Run, error) {
	key := fmt.Sprintf("%s/%v/%v", s.place, s.name, on)
	if windows.Step > 0 {
		key += "/" + windows.Width.String()
	}
	return b.execute(s, on, key, baseline.Watch{Windows: windows})
}

// inTime is show for systems that only count where their p95 is within the SLO:
// it ends with baseline.ErrLate as soon as that is out of reach.
func (b *runs) inTime(s *system, on stream) (*baseline.Run, error) {
	key := fmt.Sprintf("%s/%v/%v", s.place, s.name, on)
	var late bool
	if ok, err := b.store.get(key+"/late", &late); err != nil {
		return nil, err
	} else if ok && late {
		return nil, baseline.ErrLate
	}
	// A twentieth, and four sigma of what a Poisson stream may bring more.
	total := s.f.Rates.Total()
	r, err := b.execute(s, on, key, baseline.Watch{GiveUp: int(.05*(total+4*math.Sqrt(total))) + 1})
	if errors.Is(err, baseline.ErrLate) {
		b.progress.end(key, "too late", perRequest*total)
		return nil, errors.Join(b.store.put(key+"/late", true), baseline.ErrLate)
	}
	return r, err
}

func (b *runs) execute(s *system, on stream, key string, w baseline.Watch) (*baseline.Run, error) {
	return memo(b, key, perRequest*s.f.Rates.Total(), func() *baseline.Run { return guess(s.devices) }, func(ctx context.Context) (*baseline.Run, error) {
		t, err := s.tables()
		if err != nil {
			return nil, err
		}
		return baseline.Execute(ctx, t, on.source(s.f), w)
	}, func(r *baseline.Run) string {
		return fmt.Sprintf("accuracy %.4f, p95 %.0f ms", r.Accuracy, ms(r.P95))
	})
}

// guess stands for a run while only the cost is counted: whatever is asked for,
// eight devices do it.
func guess(devices int) *baseline.Run {
	r := &baseline.Run{Requests: 1, P95: 1}
	if devices >= 8 {
		r.Accuracy, r.Expected = .99, .99
	}
	return r
}

// memo is the kept result of a key, or makes and keeps it.
func memo[T any](b *runs, key string, cost float64, guess func() T, do func(context.Context) (T, error), say func(T) string) (T, error) {
	var v T
	if ok, err := b.store.get(key, &v); ok || err != nil {
		return v, err
	}
	if b.counting != nil {
		if !b.counting[key] {
			b.counting[key] = true
			b.progress.expect(cost)
		}
		return guess(), nil
	}
	if err := b.ctx.Err(); err != nil {
		return v, err
	}
	v, err := do(b.ctx)
	if err = cmp.Or(err, b.ctx.Err()); err != nil { // what was cut short is no result
		return v, fmt.Errorf("%s: %w", key, err)
	}
	if err := b.store.put(key, v); err != nil {
		return v, err
	}
	b.progress.end(key, say(v), cost)
	return v, nil
}

// all runs a system on several streams at once, as many as there are jobs.
func (b *runs) all(s *system, on []stream) ([]*baseline.Run, error) {
	runs, errs := make([]*baseline.Run, len(on)), make([]error, len(on))
	var wg sync.WaitGroup
	room := make(chan struct{}, b.jobs)
	for i := range on {
		if b.counting != nil {
			runs[i], errs[i] = b.show(s, on[i], baseline.Sliding{})
			continue
		}
		wg.Go(func() {
			room <- struct{}{}
			runs[i], errs[i] = b.show(s, on[i], baseline.Sliding{})
			<-room
		})
	}
	wg.Wait()
	return runs, errors.Join(errs...)
}

// summary is a system over several streams.
type summary struct {
	accuracy, half float64 // mean, half of its 95 % interval
	expected       float64 // mean
	p95            float64 // mean, ms
	worst          time.Duration
}

func summarise(runs []*baseline.Run) summary {
	var accuracy, p95 []float64
	var s summary
	for _, r := range runs {
		accuracy, p95, s.worst = append(accuracy, r.Accuracy), append(p95, ms(r.P95)), max(s.worst, r.P95)
		s.expected += r.Expected / float64(len(runs))
	}
	s.accuracy, s.half = interval(accuracy)
	s.p95 = stat.Mean(p95, nil)
	return s
}

// interval is the mean of a list and half of its 95 % interval (Student).
func interval(list []float64) (mean, half float64) {
	mean = stat.Mean(list, nil)
	n := float64(len(list))
	if len(list) < 2 {
		return mean, math.NaN()
	}
	t := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: n - 1}.Quantile(.975)
	return mean, t * stat.StdDev(list, nil) / math.Sqrt(n)
}

// runner shows variants on streams: mean accuracy, worst percentile. The first
// stream on which a variant is late ends it.
func (b *runs) runner(p place, on []stream) baseline.Runner {
	return func(name string, t *policy.Tables) (*baseline.Run, error) {
		sys := fixed(p, name, t)
		var runs []*baseline.Run
		for _, one := range on {
			r, err := b.inTime(sys, one)
			if err == nil && r.P95 > p.slo {
				err = baseline.ErrLate
			}
			if err != nil {
				return nil, err
			}
			runs = append(runs, r)
		}
		s := summarise(runs)
		return &baseline.Run{Accuracy: s.accuracy, Expected: s.expected, P95: s.worst}, nil
	}
}

// plan says what the planner found; its system is nil where there is no plan.
type plan struct {
	OK              bool
	Accuracy, Bound float64
	Simulations     int
	Tables          string // what runs, in short: equal plans are run once
	*system         `json:"-"`
}

// fingerprint is a short hash of what a system does.
func fingerprint(t *policy.Tables) (string, error) {
	text, err := json.Marshal([]any{t.Models, t.Pipelines, t.Stages, t.StageDevices, policygear.TablesOf(t).Gears})
	if err != nil {
		return "", fmt.Errorf("telling plans apart: %w", err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8]), nil
}

// planned plans a problem by our planner, once; the name distinguishes it from
// other plans at the place.
func (b *runs) planned(p place, name string, problem func() (*cascades.Problem, error)) (*plan, error) {
	return b.plannedBy(p, name, problem, func(ctx context.Context, p *cascades.Problem) (*trials.Plan, error) {
		out, err := search.Solve(ctx, p, highs.Solver{}, search.Options{Seed: planSeed})
		if _, none := errors.AsType[*cascades.InfeasibleError](err); none {
			return nil, nil
		}
		return out, err
	})
}

// plannedBy plans by any planner, which gives nil where it finds no plan.
func (b *runs) plannedBy(p place, name string, problem func() (*cascades.Problem, error), by func(context.Context, *cascades.Problem) (*trials.Plan, error)) (*plan, error) {
	var made *policy.Tables
	solve := func(ctx context.Context) (*plan, error) {
		prob, err := problem()
		if err != nil {
			return nil, err
		}
		out, err := by(ctx, prob)
		if err != nil {
			return nil, err
		}
		if out == nil {
			return &plan{}, nil
		}
		if made = out.Tables(); out.Goal == cascades.LeastLatency {
			made.Models[0].SLO = out.Problem.SLO
		}
		short, err := fingerprint(made)
		return &plan{OK: true, Accuracy: out.Accuracy, Bound: out.Bound, Simulations: out.RunCount, Tables: short}, err
	}
	v, err := memo(b, fmt.Sprintf("%s/%v/plan", p, name), perPlan, func() *plan { return &plan{OK: true} }, solve,
		func(v *plan) string { return fmt.Sprintf("planned accuracy %.4f, bound %.4f", v.Accuracy, v.Bound) })
	if err != nil || !v.OK {
		return v, err
	}
	var once sync.Once
	v.system = &system{p, name, func() (*policy.Tables, error) {
		var err error
		once.Do(func() {
			if made == nil {
				_, err = solve(b.ctx)
			}
		})
		if err == nil && made == nil {
			err = fmt.Errorf("%s/%v: a plan that was kept cannot be made again (-fresh measures all again)", p, name)
		}
		return made, err
	}}
	return v, nil
}

// measured is the problem of somebody who measured the rates and does not say what the
// SLO is over.
func (b *runs) measured(p place) (*cascades.Problem, error) {
	prob, err := b.problem(p)
	if err != nil {
		return nil, err
	}
	prob.ScopeUnspecified, prob.MeasuredRates = true, p.f.Rates
	return prob, nil
}

func (b *runs) ours(p place) (*plan, error) {
	return b.planned(p, "planner", func() (*cascades.Problem, error) { return b.measured(p) })
}

// overall is our plan where the SLO is for all requests together and the plan is
// made for the measured rates, as no switching is tuned. Where it comes to the
// plan for every range, that one is shown.
func (b *runs) overall(p place) (*plan, error) {
	v, err := b.planned(p, "planner, all requests", func() (*cascades.Problem, error) {
		prob, err := b.problem(p)
		if err != nil {
			return nil, err
		}
		prob.OverRequests, prob.MeasuredRates = true, p.f.Rates
		return prob, nil
	})
	if err != nil || !v.OK {
		return v, err
	}
	same, err := b.ours(p)
	if err == nil && same.OK && same.Tables == v.Tables && v.Tables != "" {
		v.system = same.system
	}
	return v, err
}

// singles is the ablation without cascades.
func (b *runs) singles(p place) (*plan, error) {
	return b.planned(p, "no cascade", func() (*cascades.Problem, error) {
		prob, err := b.problem(p)
		if err != nil {
			return nil, err
		}
		return baseline.Singles(prob), nil
	})
}

// tuner chooses the variant of a baseline at a place.
type tuner func(*runs, place, *cascades.Problem, baseline.Runner) (*baseline.Tuned, error)

// alone is the tuner of a baseline that needs nothing but the problem.
func alone(tune func(*cascades.Problem, time.Duration, baseline.Runner) (*baseline.Tuned, error)) tuner {
	return func(_ *runs, at place, p *cascades.Problem, run baseline.Runner) (*baseline.Tuned, error) {
		return tune(p, at.slo, run)
	}
}

// tuned is a baseline with its variant chosen on streams; nil where none is in
// time.
func (b *runs) tuned(p place, on []stream, tune tuner) (*baseline.Tuned, error) {
	prob, err := b.problem(p)
	if err != nil {
		return nil, err
	}
	t, err := tune(b, p, prob, b.runner(p, on))
	if _, inf := errors.AsType[*cascades.InfeasibleError](err); inf {
		return nil, nil
	}
	return t, err
}

// anySingle is dynamic batching with whatever model is best.
func anySingle(p *cascades.Problem, target time.Duration, run baseline.Runner) (*baseline.Tuned, error) {
	return baseline.BestSingle(p, target, 0, run)
}

func ms(d time.Duration) float64 { return d.Seconds() * 1e3 }
