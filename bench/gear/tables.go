package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"inferplan/bench/figures"
	"inferplan/bench/gear/baseline"
	"inferplan/bench/gear/published"
	"inferplan/bench/table"
	"inferplan/formats/arrivals"
)

// study is what is asked of a family.
type study struct {
	devices []int     // of the table of methods
	targets []float64 // accuracies at which GPUs are compared
	most    int       // devices that a system may need
}

var studies = map[string]study{
	"bert5":  {[]int{1, 2, 3, 4, 5, 6, 8, 9, 11}, []float64{.92, .93, .934, .935}, 14},
	"llama4": {[]int{1, 2, 4, 5, 6, 8, 9, 10, 12}, []float64{.61, .62, .63, .64, .645}, 16},
	"imdb3":  {[]int{2, 4, 6, 8, 10}, []float64{.80, .83, .85, .86}, 16},
}

// reaches tells whether an accuracy is what is asked for, to the four digits
// that are compared.
func reaches(accuracy, target float64) bool { return accuracy >= target-5e-5 }

// methods is the table of accuracy and p95 by devices.
func (b *bench) methods(f *published.Family, t *table.Table) error {
	for _, d := range studies[f.Name].devices {
		p := place{f, d, f.SLO}
		row := func(method string, s *system, planned string, bound string) error {
			runs, err := b.all(s, append([]stream{even}, b.poisson()...))
			if err != nil {
				return err
			}
			sum := summarise(runs[1:])
			t.Add(f.Name, method, d, digits(runs[0].Accuracy), whole(ms(runs[0].P95)), plusMinus(sum.accuracy, sum.half),
				fmt.Sprintf("%.0f (%.0f)", sum.p95, ms(sum.worst)), planned, bound)
			return nil
		}
		for _, one := range []struct {
			name string
			plan func(place) (*plan, error)
		}{{"planner", b.ours}, {"planner, all requests", b.overall}, {"no cascade", b.singles}} {
			v, err := one.plan(p)
			if err != nil {
				return err
			}
			if v.OK {
				if err := row(one.name, v.system, digits(v.Accuracy), digits(v.Bound)); err != nil {
					return err
				}
			}
		}
		for _, one := range tunedSystems {
			v, err := b.tuned(p, []stream{even}, one.tune)
			if err != nil {
				return err
			}
			if v != nil {
				name := one.name
				if one.name == "DynBa" {
					name = v.Name
				}
				if err := row(name, fixed(p, v.Name, v.Tables), "", ""); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// tunedSystems are the baselines whose best variant is chosen.
var tunedSystems = []struct {
	name string
	tune tuner
}{
	{"no switching", baseline.NoSwitching},
	{"MS+", baseline.BestModelSwitching},
	{"DynBa", anySingle},
}

// reached is the accuracy that a method shows in time on some devices; ok is
// false where it does not.
type reached func(devices int) (accuracy float64, ok bool, err error)

func (b *runs) reachedPlan(f *published.Family, slo time.Duration, on []stream, make func(place) (*plan, error)) reached {
	return func(d int) (float64, bool, error) {
		v, err := make(place{f, d, slo})
		if err != nil || !v.OK {
			return 0, false, err
		}
		var runs []*baseline.Run
		for _, one := range on {
			r, err := b.inTime(v.system, one)
			if errors.Is(err, baseline.ErrLate) || err == nil && r.P95 > slo {
				return 0, false, nil
			}
			if err != nil {
				return 0, false, err
			}
			runs = append(runs, r)
		}
		return summarise(runs).accuracy, true, nil
	}
}

func (b *runs) reachedTuned(f *published.Family, slo time.Duration, on []stream, tune tuner) reached {
	return func(d int) (float64, bool, error) {
		v, err := b.tuned(place{f, d, slo}, on, tune)
		if err != nil || v == nil {
			return 0, false, err
		}
		return v.Run.Accuracy, true, nil
	}
}

// leastSingle are the devices that the cheapest model in reach of a target
// needs, by bisection: one model alone needs no more of them for being given more.
func (b *runs) leastSingle(f *published.Family, slo time.Duration, on []stream, targets []float64, most int) ([]int, error) {
	out := make([]int, len(targets))
	prob, err := b.problem(place{f, 1, slo})
	if err != nil {
		return nil, err
	}
	for m := range prob.Models {
		if !reaches(baseline.Single(prob, m), targets[0]) || prob.Models[m].Times[0] > slo || prob.Memory > 0 && prob.Models[m].Memory > prob.Memory {
			continue
		}
		accuracy := make([]float64, most+1)
		lo, hi := 0, most+1 // in time on hi, not on lo
		for hi-lo > 1 {
			p := place{f, (lo + hi) / 2, slo}
			if prob, err = b.problem(p); err != nil {
				return nil, err
			}
			r, err := b.runner(p, on)("DynBa "+prob.Models[m].Name, baseline.DynBa(prob, m))
			switch {
			case errors.Is(err, baseline.ErrLate):
				lo = p.devices
			case err != nil:
				return nil, err
			default:
				hi, accuracy[p.devices] = p.devices, r.Accuracy
			}
		}
		for i, target := range targets {
			if hi <= most && reaches(accuracy[hi], target) && (out[i] == 0 || hi < out[i]) {
				out[i] = hi
			}
		}
	}
	return out, nil
}

// scan finds the least devices for every target, trying them one by one; 0: more
// than most.
func scan(targets []float64, most int, at reached) ([]int, error) {
	out, left := make([]int, len(targets)), len(targets)
	for d := 1; d <= most && left > 0; d++ {
		accuracy, ok, err := at(d)
		if err != nil {
			return nil, err
		}
		for i, target := range targets {
			if out[i] == 0 && ok && reaches(accuracy, target) {
				out[i] = d
				left--
			}
		}
	}
	return out, nil
}

// gpus are the devices that each method needs, with even arrivals and with every
// Poisson stream in time.
func (b *bench) gpus(f *published.Family, t *table.Table) error {
	s := studies[f.Name]
	for _, on := range [][]stream{{even}, b.poisson()} {
		name := "even"
		methods := []reached{
			b.reachedPlan(f, f.SLO, on, b.ours),
			b.reachedPlan(f, f.SLO, on, b.overall),
			b.reachedTuned(f, f.SLO, on, baseline.NoSwitching),
			b.reachedPlan(f, f.SLO, on, b.singles),
			b.reachedTuned(f, f.SLO, on, baseline.BestModelSwitching),
		}
		if on[0] != even {
			name = fmt.Sprintf("Poisson, %d", len(on))
			methods[2], methods[3] = nil, nil
		}
		need := make([][]int, len(methods)+1)
		for i, at := range methods {
			if at == nil {
				continue
			}
			var err error
			if need[i], err = scan(s.targets, s.most, at); err != nil {
				return err
			}
		}
		var err error
		if need[len(methods)], err = b.leastSingle(f, f.SLO, on, s.targets, s.most); err != nil {
			return err
		}
		for k, target := range s.targets {
			row := []any{f.Name, name, target}
			for i := range need {
				if need[i] == nil {
					row = append(row, "")
				} else {
					row = append(row, count(need[i][k], s.most))
				}
			}
			t.Add(append(row, times(need[0][k], need[4][k], need[5][k]), times(need[1][k], need[4][k], need[5][k]))...)
			if fewer := fewerThan(need[0][k], need[4][k], need[5][k]); b.counting == nil && fewer > 0 {
				b.figure(fewerDevices(fmt.Sprintf("devices of %s at accuracy %g, %s arrivals", f.Name, target, name), fewer,
					fmt.Sprintf("planner %s, MS+ %s, DynBa %s", count(need[0][k], s.most), count(need[4][k], s.most), count(need[5][k], s.most))), "gpus", f)
			}
		}
	}
	return nil
}

// fewerDevices is how many times fewer devices a plan takes than the better of MS+ and
// DynBa: the paper has 2 to 3.
func fewerDevices(of string, fewer float64, note string) figures.Figure {
	holds := figures.If(fewer >= 2)
	if fewer > 1 && fewer < 2 {
		holds = figures.Partly
	}
	return figures.Figure{Claim: of + ": times fewer than the better of MS+ and DynBa", Source: "CascadeServe (arXiv:2406.14424), figure 7",
		Asked: "2 to 3", Measured: fewer, Holds: holds, Note: note}
}

// gpuMap is figure 7.
func (b *bench) gpuMap(f *published.Family, t *table.Table) error {
	s := studies[f.Name]
	on := []stream{even}
	for _, share := range []float64{.25, .5, 1, 2} {
		slo := time.Duration(share * float64(f.SLO))
		need := make([][]int, 3)
		for i, at := range []reached{b.reachedPlan(f, slo, on, b.ours), b.reachedTuned(f, slo, on, baseline.BestModelSwitching)} {
			var err error
			if need[i], err = scan(s.targets, s.most, at); err != nil {
				return err
			}
		}
		var err error
		if need[2], err = b.leastSingle(f, slo, on, s.targets, s.most); err != nil {
			return err
		}
		for k, target := range s.targets {
			t.Add(f.Name, slo, target, count(need[0][k], s.most), count(need[1][k], s.most), count(need[2][k], s.most), times(need[0][k], need[1][k], need[2][k]))
		}
	}
	return nil
}

// scalers are the autoscalers that Cocktail+ is tried with.
func scalers(load time.Duration) []baseline.Autoscaler {
	var out []baseline.Autoscaler
	for _, period := range []int{30, 60, 120, 300} {
		for _, eta := range []float64{.6, .8, .95} {
			out = append(out, baseline.Autoscaler{Period: time.Duration(period) * time.Second, Load: load, Eta: eta})
		}
	}
	return out
}

// ensemble is what Cocktail+ came to; empty models: none in time.
type ensemble struct {
	Models      []string
	Mean        float64
	Accuracy    float64
	Period      time.Duration
	Utilisation float64
	P95         time.Duration
	Windows     []baseline.Window `json:",omitempty"`
}

func (b *runs) ensemble(f *published.Family, target float64, members int, windows baseline.Sliding) (*ensemble, error) {
	p := place{f, 1, f.SLO}
	key := fmt.Sprintf("%s/Cocktail+ %g %d", p, target, members)
	if windows.Step > 0 {
		key += "/" + windows.Width.String()
	}
	return memo(b, key, 3*perRequest*f.Rates.Total(), func() *ensemble { return &ensemble{} }, func(ctx context.Context) (*ensemble, error) {
		prob, err := b.problem(p)
		if err != nil {
			return nil, err
		}
		source := func() arrivals.Source { return f.Rates.Even() }
		e, err := baseline.Cocktail(ctx, prob, f.Rates, source, scalers(f.Load), target-5e-5, members, f.SLO)
		if err != nil || e == nil {
			return &ensemble{}, err
		}
		out := &ensemble{Mean: e.Mean, Accuracy: e.Accuracy, Period: e.Scaler.Period, Utilisation: e.Scaler.Eta, P95: e.P95}
		for _, m := range e.Models {
			out.Models = append(out.Models, f.Models[m].Name)
		}
		if windows.Step > 0 {
			out.Windows = e.Windows(windows)
		}
		return out, nil
	}, func(e *ensemble) string { return fmt.Sprintf("%.2f devices", e.Mean) })
}

// cocktail compares with an autoscaler that knows the rates to come.
func (b *bench) cocktail(f *published.Family, t *table.Table) error {
	s := studies[f.Name]
	ours, err := scan(s.targets, s.most, b.reachedPlan(f, f.SLO, []stream{even}, b.ours))
	if err != nil {
		return err
	}
	for k, target := range s.targets {
		for _, members := range []int{2, 1} {
			e, err := b.ensemble(f, target, members, baseline.Sliding{})
			if err != nil {
				return err
			}
			if len(e.Models) == 0 {
				t.Add(f.Name, target, members, "none in time", "", count(ours[k], s.most), "", "", "")
				continue
			}
			t.Add(f.Name, target, members, strings.Join(e.Models, ", "), fmt.Sprintf("%.2f", e.Mean), count(ours[k], s.most), e.Period, e.Utilisation, whole(ms(e.P95)))
		}
	}
	return nil
}

func digits(v float64) string { return fmt.Sprintf("%.4f", v) }

func whole(v float64) string { return fmt.Sprintf("%.0f", v) }

func plusMinus(mean, half float64) string { return fmt.Sprintf("%.4f ± %.4f", mean, half) }

func count(n, most int) string {
	if n == 0 {
		return fmt.Sprintf(">%d", most)
	}
	return fmt.Sprint(n)
}

// fewerThan is how many times fewer devices than the better of two; 0: not known.
func fewerThan(ours, a, b int) float64 {
	best := a
	if best == 0 || b > 0 && b < best {
		best = b
	}
	if best == 0 || ours == 0 {
		return 0
	}
	return float64(best) / float64(ours)
}

func times(ours, a, b int) string {
	if fewer := fewerThan(ours, a, b); fewer > 0 {
		return fmt.Sprintf("%.2f", fewer)
	}
	return "-"
}
