package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"regexp"
	"slices"
	"time"

	"inferplan/bench/instrument"
	"inferplan/cputime"
	"inferplan/planner"
	"inferplan/solver/highs"
)

// bench holds the reference data and flags.
type bench struct {
	*instrument.Run
	records
	cases    string // regular expression; empty: those of the part
	runs     int
	duration time.Duration
	evenNIC  bool
}

func main() {
	i, _ := newInstrument()
	instrument.Main(i)
}

// newInstrument returns the instrument with its parts, and the bench that they measure.
func newInstrument() (*instrument.Instrument, *bench) {
	b := &bench{}
	loads := []string{"cases", "arrivals", "policy, network", "plan", "DNNs", "load factor", "PPipe's gain (mean of ratios)", "(ratio of means)", "high class", "low class"}
	return &instrument.Instrument{
		Name: "ppipe", Keeps: true,
		Parts: []instrument.Part{
			{Name: "objective", Title: "Objective against the recorded PPipe plans", Measure: b.objective,
				Columns: []string{"case", "ours", "recorded", "difference", "bound", "gap", "CPU ms to the recorded value", "CPU s in all"}},
			{Name: "load", Title: "Highest load factor at 99 % (0.05 grid up to 1, mean over DNNs; figure 6), and use of high and low class there (figure 8)", Measure: b.load,
				Columns: append(slices.Clone(loads), clusters...)},
			{Name: "small", Title: "Highest load factor of the 18 DNNs one at a time on 16 devices, simulated (figure 9)", Columns: loads, Measure: b.small},
			{Name: "transfer", Title: "Reservation against reaction: highest load, and transfer times at 0.9 of the recorded rate", Measure: b.transfer,
				Columns: []string{"case", "policy", "highest load", "transfers", "mean ms", "p99 ms (mean over runs)"}},
			{Name: "baselines", Title: "Our NP and DART-r plans of recorded cases against the recorded ones: highest load factor at 99 %", Columns: loads, Measure: b.baselines},
			{Name: "headline", Title: "Certified rps at 99 %: our plan and policy against what the artifact's plan sustains in its simulator", Measure: b.headline,
				Columns: []string{"case", "artifact rps/weight", "in steps of .01", "ours, its margin", "ratio", "ours, --margin auto", "ratio", "to steps of .01", "auto / its margin", "headroom", "CPU s", "share of the bound without margin"}},
			{Name: "gaps", Title: "Default plans and their bounds: what keeps them apart, of the bound", Measure: b.gaps,
				Columns: []string{"case", "gap", "devices", "links", "filling", "queueing", "not stated", "CPU s"}},
			{Name: "links", Title: "Shared NICs: highest load of every model beside the others, at the same plans", Measure: b.links,
				Columns: []string{"case", "model", "links of its own", "shared NICs"}},
			{Name: "latency", Title: "Latency over load under reserve: what waits goes at once, or waits for a fuller batch", Measure: b.latency,
				Columns: []string{"cases", "arrivals", "load", "manner", "p50 / idle path", "most", "p99 / idle path", "p99 / SLO", "attainment"}},
		},
		Flags: func(f *flag.FlagSet) {
			f.StringVar(&b.cases, "cases", "", "regular expression of the cases, such as ^maf19/G4/HC2 or ^ours21/; empty: each part's own")
			f.IntVar(&b.runs, "runs", 5, "replications of every simulated point")
			f.DurationVar(&b.duration, "duration", 30*time.Second, "virtual time of a replication")
			f.BoolVar(&b.evenNIC, "even-nic", false, "our PPipe plans give the devices of a node like parts of its NIC, as the artifact's do")
		},
		Begin: b.begin,
	}, b
}

// begin checks the flags and reads the reference data.
func (b *bench) begin(r *instrument.Run) error {
	b.Run = r
	if _, err := regexp.Compile(b.cases); err != nil {
		return instrument.Usagef("-cases: %w", err)
	}
	if b.runs < 1 || b.duration < time.Second {
		return instrument.Usagef("-runs %d and -duration %v: expected at least 1, and at least 1s", b.runs, b.duration)
	}
	return b.open(r.Data)
}

// asked is the share of requests in time that is asked.
const asked = 0.99

var errNoCase = errors.New("no case of the part matches -cases")

// scenes returns the cases of a part: those that -cases names, else those of the part's own expression.
func (b *bench) scenes(expression string, from ...[]scene) ([]scene, error) {
	re, err := regexp.Compile(cmp.Or(b.cases, expression))
	if err != nil {
		return nil, fmt.Errorf("choosing cases: %w", err)
	}
	out := slices.DeleteFunc(slices.Concat(from...), func(s scene) bool { return !re.MatchString(s.name) })
	if len(out) == 0 {
		return nil, errNoCase
	}
	return out, nil
}

// solution holds the results of a solve.
type solution struct {
	Plan       instrument.Plan
	Incumbents []planner.Incumbent // plans that were better than all before
	CPU        float64             // seconds of the whole process
}

// solve plans documents and keeps the plan.
func (b *bench) solve(ctx context.Context, name string, in planner.Inputs, opt planner.Options) (*solution, error) {
	key := fmt.Sprintf("plan %s %s", name, keyOf(b.digest, in.Cluster, in.Workload, fmt.Sprintf("%+v", opt))) // documents leave options out
	return instrument.Measured(b.Run, key, func() (*solution, error) {
		began := cputime.Used()
		res, err := planner.Solve(ctx, in, opt, highs.Solver{}, nil)
		if err != nil {
			return nil, err
		}
		out := &solution{Plan: instrument.Plan{Plan: res.Plan}, Incumbents: res.Incumbents, CPU: (cputime.Used() - began).Seconds()}
		return out, ctx.Err()
	})
}

// mean returns the mean of values, which are summed in their order; NaN of none.
func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}
