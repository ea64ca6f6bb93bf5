package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"inferplan/bench/gear/baseline"
	"inferplan/bench/gear/published"
	"inferplan/bench/table"
	"inferplan/formats/arrivals"
)

// study holds the questions to a family.
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

// reaches returns whether an accuracy is at least the one asked for, to the four
// digits that are compared.
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
	{"no switching", alone(baseline.NoSwitching)},
	{"Cascadia-like", cascadia(false)},
	{"Cascadia-like, re-deployed", cascadia(true)},
	{"MS+", alone(baseline.BestModelSwitching)},
	{"DynBa", alone(anySingle)},
}

// reached is the accuracy that a method shows in time on some devices, without the luck of
// the samples that a stream brings; ok is false where it does not.
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
		return summarise(runs).expected, true, nil
	}
}

func (b *runs) reachedTuned(f *published.Family, slo time.Duration, on []stream, tune tuner) reached {
	return func(d int) (float64, bool, error) {
		v, err := b.tuned(place{f, d, slo}, on, tune)
		if err != nil || v == nil {
			return 0, false, err
		}
		return v.Run.Expected, true, nil
	}
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

// ensemble holds the results of Cocktail+. Without models, none is in time.
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

// fewerThan returns how many times fewer devices than the better of two. If that is not known, it returns 0.
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
