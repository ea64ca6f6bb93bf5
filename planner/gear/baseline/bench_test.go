package baseline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"inferplan/formats/arrivals"
	"inferplan/formats/seeded"
	"inferplan/planner/gear"
	"inferplan/policy"
)

// The study behind docs/benchmarks.md: `make bench-gear`. Lines come as they are
// found, so that an interrupted run leaves what it has. INFERPLAN_LONG is read
// by long; a part alone runs with RUN=TestBench/bert5/planner.
func long(t *testing.T) {
	if os.Getenv("INFERPLAN_LONG") == "" {
		t.Skip("a study of many minutes; run it with make bench-gear, or set INFERPLAN_LONG=1")
	}
}

func tell(format string, args ...any) { fmt.Printf(format+"\n", args...) }

// seeds of the Poisson arrivals.
var seeds = []uint64{1, 2, 3, 4, 5}

// summary is a system on even arrivals and on five Poisson streams.
type summary struct {
	even                Run
	accuracy, half, p95 float64 // means over the streams; half of the 95 % interval
	worst               time.Duration
}

func measure(t *testing.T, tab *policy.Tables, r Rates) summary {
	ctx := context.Background()
	one, err := Execute(ctx, tab, r.Even(), 0)
	if err != nil {
		t.Fatal(err)
	}
	s := summary{even: *one}
	var list []float64
	for _, seed := range seeds {
		run, err := Execute(ctx, tab, r.Poisson(seeded.New(seed, "bench/gear")), 0)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, run.Accuracy)
		s.accuracy += run.Accuracy / float64(len(seeds))
		s.p95 += run.P95.Seconds() * 1e3 / float64(len(seeds))
		s.worst = max(s.worst, run.P95)
	}
	square := 0.0
	for _, x := range list {
		square += (x - s.accuracy) * (x - s.accuracy)
	}
	s.half = 2.776 * math.Sqrt(square/float64(len(list)-1)/float64(len(list))) // Student, four degrees of freedom
	return s
}

func (s *summary) row(family, method string, devices int) {
	tell("| %s | %s | %d | %.4f | %.0f | %.4f ± %.4f | %.0f (%.0f) |", family, method, devices, s.even.Accuracy, ms(s.even.P95), s.accuracy, s.half, s.p95, ms(s.worst))
}

func ms(d time.Duration) float64 { return d.Seconds() * 1e3 }

const head = "| workload | method | devices | accuracy, even | p95 ms | accuracy, Poisson, 5 seeds | p95 ms, mean (worst) |\n|---|---|---|---|---|---|---|"

// study is a family with the numbers of devices to try.
type study struct {
	make    func(testing.TB) *family
	devices []int
	targets []float64 // accuracies at which GPUs are compared
	most    int       // devices that a baseline may need
}

var studies = map[string]study{
	"bert5":  {bert5, []int{1, 2, 3, 4, 5, 6}, []float64{.92, .93, .934, .935}, 14},
	"llama4": {llama4, []int{1, 2, 4, 5, 6, 8, 10, 12}, []float64{.61, .62, .63, .64, .645}, 16},
	"imdb3":  {imdb3, []int{2, 4, 6, 8}, []float64{.80, .83, .85, .86}, 16},
}

func eachStudy(t *testing.T, run func(t *testing.T, f *family, s study)) {
	long(t)
	for _, name := range []string{"bert5", "llama4", "imdb3"} {
		t.Run(name, func(t *testing.T) { run(t, studies[name].make(t), studies[name]) })
	}
}

// plan is our plan; nil where there is none.
func plan(t *testing.T, p *gear.Problem) *gear.Outcome {
	out, err := gear.Solve(context.Background(), p, nil, gear.Options{Seed: 7})
	if _, ok := errors.AsType[*gear.Infeasible](err); ok {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// The table of the cross-check's section 6.
func TestBench(t *testing.T) {
	eachStudy(t, func(t *testing.T, f *family, s study) {
		tell("%s", head)
		t.Run("planner", func(t *testing.T) {
			for _, d := range s.devices {
				p := f.problem(t, d, f.slo)
				if out := plan(t, p); out != nil {
					sum := measure(t, out.Tables(p), f.rates)
					sum.row(f.name, "planner", d)
				}
			}
		})
		t.Run("no cascade", func(t *testing.T) {
			for _, d := range s.devices {
				p := Singles(f.problem(t, d, f.slo))
				if out := plan(t, p); out != nil {
					sum := measure(t, out.Tables(p), f.rates)
					sum.row(f.name, "no cascade", d)
				}
			}
		})
		t.Run("no switching", func(t *testing.T) {
			for _, d := range s.devices {
				tab, _, err := NoSwitching(context.Background(), f.problem(t, d, f.slo), even(f.rates), f.slo)
				if err != nil {
					t.Fatal(err)
				}
				if tab != nil {
					sum := measure(t, tab, f.rates)
					sum.row(f.name, "no switching", d)
				}
			}
		})
		t.Run("MS+", func(t *testing.T) {
			for _, d := range s.devices {
				tab, _, err := BestModelSwitching(context.Background(), f.problem(t, d, f.slo), even(f.rates), f.slo)
				if err != nil {
					t.Fatal(err)
				}
				if tab != nil {
					sum := measure(t, tab, f.rates)
					sum.row(f.name, "MS+", d)
				}
			}
		})
	})
}

// least is the smallest number of devices in [1, most] that passes, by
// bisection; 0 where not even most does.
func least(most int, passes func(int) bool) int {
	if !passes(most) {
		return 0
	}
	lo, hi := 0, most
	for hi-lo > 1 {
		if mid := (lo + hi) / 2; passes(mid) {
			hi = mid
		} else {
			lo = mid
		}
	}
	return hi
}

// gpus is how many devices each method needs for an accuracy within the SLO.
type gpus struct{ planner, switching, dynba int }

// needs finds the devices for several accuracies, with every run made once.
func needs(t *testing.T, f *family, targets []float64, most int, slo time.Duration) []gpus {
	ctx := context.Background()
	type shown struct {
		accuracy float64
		ok       bool
	}
	memo := func(run func(d int) (shown, error)) func(int) shown {
		seen := map[int]shown{}
		return func(d int) shown {
			if s, ok := seen[d]; ok {
				return s
			}
			s, err := run(d)
			if err != nil {
				t.Fatal(err)
			}
			seen[d] = s
			return s
		}
	}
	ours := memo(func(d int) (shown, error) {
		p := f.problem(t, d, slo)
		out := plan(t, p)
		if out == nil {
			return shown{}, nil
		}
		r, err := Execute(ctx, out.Tables(p), f.rates.Even(), 0)
		if err != nil {
			return shown{}, err
		}
		return shown{r.Accuracy, r.P95 <= slo}, nil
	})
	switching := memo(func(d int) (shown, error) {
		_, r, err := BestModelSwitching(ctx, f.problem(t, d, slo), even(f.rates), slo)
		if r == nil || err != nil {
			return shown{}, err
		}
		return shown{r.Accuracy, true}, nil
	})
	// One model: the devices that it needs, whatever the accuracy asked for.
	p := f.problem(t, 1, slo)
	alone := make([]int, len(f.models))
	accuracy := make([]float64, len(f.models))
	for m := range f.models {
		c := single(p, m)
		if accuracy[m] = Accuracy(p, &c); accuracy[m] < targets[0]-1e-9 || p.Models[m].Times[0] > slo {
			continue
		}
		alone[m] = least(most, func(d int) bool {
			r, err := Execute(ctx, DynBa(f.problem(t, d, slo), m), f.rates.Even(), 0)
			if err != nil {
				t.Fatal(err)
			}
			return r.P95 <= slo
		})
	}
	var out []gpus
	for _, a := range targets {
		enough := func(at func(int) shown) func(int) bool {
			return func(d int) bool { s := at(d); return s.ok && s.accuracy >= a-5e-5 } // to the four digits that are compared
		}
		g := gpus{planner: least(most, enough(ours)), switching: least(most, enough(switching))}
		for m := range alone {
			if n := alone[m]; n > 0 && accuracy[m] >= a-5e-5 && (g.dynba == 0 || n < g.dynba) {
				g.dynba = n
			}
		}
		out = append(out, g)
	}
	return out
}

func (g gpus) ratio() string {
	best := 0
	for _, n := range []int{g.switching, g.dynba} {
		if n > 0 && (best == 0 || n < best) {
			best = n
		}
	}
	if best == 0 || g.planner == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", float64(best)/float64(g.planner))
}

func count(n, most int) string {
	if n == 0 {
		return fmt.Sprintf(">%d", most)
	}
	return fmt.Sprint(n)
}

// GPUs at equal accuracy, within the SLO on even arrivals.
func TestBenchGPUs(t *testing.T) {
	eachStudy(t, func(t *testing.T, f *family, s study) {
		tell("| workload | accuracy | planner | MS+ | DynBa | fewer than the best of both |\n|---|---|---|---|---|---|")
		for i, g := range needs(t, f, s.targets, s.most, f.slo) {
			tell("| %s | %.4g | %s | %s | %s | %s |", f.name, s.targets[i], count(g.planner, s.most), count(g.switching, s.most), count(g.dynba, s.most), g.ratio())
		}
	})
}

// GPUs over accuracy and p95 target (figure 7).
func TestBenchMap(t *testing.T) {
	eachStudy(t, func(t *testing.T, f *family, s study) {
		tell("| workload | p95 target | accuracy | planner | MS+ | DynBa |\n|---|---|---|---|---|---|")
		for _, share := range []float64{.25, .5, 1, 2} {
			slo := time.Duration(share * float64(f.slo))
			for i, g := range needs(t, f, s.targets, s.most, slo) {
				tell("| %s | %v | %.4g | %s | %s | %s |", f.name, slo, s.targets[i], count(g.planner, s.most), count(g.switching, s.most), count(g.dynba, s.most))
			}
		}
	})
}

// Cocktail+ with oracle rates: mean devices at equal accuracy.
func TestBenchCocktail(t *testing.T) {
	eachStudy(t, func(t *testing.T, f *family, s study) {
		load := 5 * time.Second
		if f.slo >= time.Second {
			load = 20 * time.Second
		}
		var scalers []Autoscaler
		for _, period := range []int{30, 60, 120, 300} {
			for _, eta := range []float64{.6, .8, .95} {
				scalers = append(scalers, Autoscaler{Period: time.Duration(period) * time.Second, Load: load, Eta: eta})
			}
		}
		tell("| workload | accuracy | least members | models | mean devices | period, eta | p95 ms |\n|---|---|---|---|---|---|---|")
		for _, a := range s.targets {
			for _, members := range []int{2, 1} {
				e, err := Cocktail(context.Background(), f.problem(t, 1, f.slo), f.rates, even(f.rates), scalers, a-5e-5, members, f.slo)
				if err != nil {
					t.Fatal(err)
				}
				if e == nil {
					tell("| %s | %.4g | %d | none | - | - | - |", f.name, a, members)
					continue
				}
				var names []string
				for _, m := range e.Models {
					names = append(names, f.models[m].Name)
				}
				tell("| %s | %.4g | %d | %s | %.2f | %v, %.2g | %.0f |", f.name, a, members, strings.Join(names, ", "), e.Mean, e.Scaler.Period, e.Scaler.Eta, ms(e.P95))
			}
		}
	})
}

// A spike under a latency SLO, in windows (figure 8): the highest one and its
// neighbours.
func TestBenchSpike(t *testing.T) {
	eachStudy(t, func(t *testing.T, f *family, s study) {
		const devices = 3
		window := 10 * time.Second
		if f.slo >= time.Second {
			window = time.Minute
		}
		p := f.problem(t, devices, f.slo)
		out := plan(t, p)
		if out == nil {
			t.Skip("no plan on three devices")
		}
		show := func(name string, tab *policy.Tables) {
			r, err := Execute(context.Background(), tab, f.rates.Even(), window)
			if err != nil {
				t.Fatal(err)
			}
			top := 0
			for i := range r.Windows {
				if r.Windows[i].Requests > r.Windows[top].Requests {
					top = i
				}
			}
			for i := max(0, top-5); i < min(len(r.Windows), top+8); i++ {
				w := &r.Windows[i]
				tell("| %s | %s | %v | %.0f | %.4f | %.0f |", f.name, name, time.Duration(i)*window, float64(w.Requests)/window.Seconds(),
					float64(w.Correct)/float64(w.Requests), ms(w.P95))
			}
			worst := slices.MaxFunc(r.Windows, func(a, b Window) int { return cmp.Compare(a.P95, b.P95) })
			tell("%s, %s: accuracy %.4f, p95 %.0f ms, highest p95 of a window %.0f ms, %d switches", f.name, name, r.Accuracy, ms(r.P95), ms(worst.P95), r.Switches)
		}
		tell("| workload | method | from | rps | accuracy | p95 ms |\n|---|---|---|---|---|---|")
		show("planner", out.Tables(p))
		if tab, _, err := BestModelSwitching(context.Background(), p, even(f.rates), f.slo); err != nil {
			t.Fatal(err)
		} else if tab != nil {
			show("MS+", tab)
		}
	})
}

// CPU time of a plan by its number of ranges (figure 11).
func TestBenchPlanningTime(t *testing.T) {
	eachStudy(t, func(t *testing.T, f *family, s study) {
		tell("| workload | ranges | CPU s | simulations | accuracy |\n|---|---|---|---|---|")
		for _, n := range []int{5, 10, 20, 40, 80} {
			p := f.problem(t, 4, f.slo)
			peak := f.rates.Peak()
			p.Edges, p.Weights = gear.Ranges(peak, n), gear.Measured(f.rates, peak, n)
			before := cpu(t)
			out := plan(t, p)
			if out == nil {
				t.Fatal("no plan on four devices")
			}
			tell("| %s | %d | %.2f | %d | %.4f |", f.name, n, cpu(t)-before, out.Runs, out.Accuracy)
		}
	})
}

func cpu(t *testing.T) float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

// Ablations (figure 12): what each part is worth, on even arrivals.
func TestBenchAblations(t *testing.T) {
	eachStudy(t, func(t *testing.T, f *family, s study) {
		ctx := context.Background()
		tell("| workload | devices | without | accuracy | p95 ms |\n|---|---|---|---|---|")
		for _, d := range []int{2, 4} {
			p := f.problem(t, d, f.slo)
			show := func(name string, tab *policy.Tables, src arrivals.Source) {
				r, err := Execute(ctx, tab, src, 0)
				if err != nil {
					t.Fatal(err)
				}
				tell("| %s | %d | %s | %.4f | %.0f |", f.name, d, name, r.Accuracy, ms(r.P95))
			}
			out := plan(t, p)
			if out == nil {
				continue
			}
			show("nothing", out.Tables(p), f.rates.Even())
			one, err := gear.Solve(ctx, p, nil, gear.Options{Seed: 7, MinQueues: []int{1}})
			if err == nil {
				show("minimum queue lengths", one.Tables(p), f.rates.Even())
			}
			uniform := out.Tables(p)
			for g := range uniform.Gears.Gears {
				for k := range uniform.Gears.Gears[g].Stages {
					split := slices.Clone(uniform.Gears.Gears[g].Stages[k].Split)
					for i := range split {
						split[i] = 1 / float64(len(split))
					}
					uniform.Gears.Gears[g].Stages[k].Split = split
				}
			}
			show("min-max load split", uniform, f.rates.Even())
			coarse := f.problem(t, d, f.slo)
			coarse.Edges, coarse.Weights = gear.Ranges(f.rates.Peak(), 1), []float64{1}
			if fixed := plan(t, coarse); fixed != nil {
				show("gears (one, planned for the peak)", fixed.Tables(coarse), f.rates.Even())
			}
			singles := Singles(p)
			if alone := plan(t, singles); alone != nil {
				show("cascades", alone.Tables(singles), f.rates.Even())
			}
		}
	})
}
