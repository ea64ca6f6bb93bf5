package queue_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/seeded"
	"inferplan/planner"
	"inferplan/planner/kind"
	"inferplan/planner/queue"
	"inferplan/sim"
)

// problems is how many are drawn; a tenth without INFERPLAN_LONG.
const problems = 50

// drawInputs is a problem of one or two models in one to three classes, whose SLOs are of
// any figure, at .5 to 3 times what the cluster does at most.
func drawInputs(rng *rand.Rand) planner.Inputs {
	in := documents()
	pick := func(n int) int { return rng.IntN(n) }
	lognormal := func(mean float64, most int) *formats.Lengths {
		return &formats.Lengths{Distribution: formats.LengthsLognormal, Mean: mean, SD: mean * (0.3 + 0.5*rng.Float64()), Max: most}
	}
	l := formats.LLMOf(in.Workload)
	l.Models, l.Classes = l.Models[:1+pick(2)], nil
	in.Cluster.Pools = in.Cluster.Pools[:1+pick(2)]
	seconds := func(s float64) document.SLO { return document.SLO{Duration: time.Duration(s * float64(time.Second))} }
	for i := range 1 + pick(3) {
		c := formats.LLMClass{Class: fmt.Sprint("c", i), Prompt: lognormal(200+600*rng.Float64(), 3000), Output: lognormal(40+160*rng.Float64(), 800), RPS: 0.5 + rng.Float64()}
		switch pick(5) {
		case 0:
			c.SLO = seconds(15 + 60*rng.Float64())
		case 1:
			c.SLO, c.WaitingSLO = seconds(30+60*rng.Float64()), seconds(5+10*rng.Float64())
		case 2:
			c.SLO, c.Figure = seconds(2+6*rng.Float64()), formats.FigureTTFT
		case 3:
			c.SLO, c.Figure = seconds(0.04+0.04*rng.Float64()), formats.FigureTPOT
		case 4:
			c.SLO, c.Figure, c.WaitingSLO = seconds(0.04+0.04*rng.Float64()), formats.FigureTPOT, seconds(5+10*rng.Float64())
		}
		if pick(2) == 0 {
			c.Percentile = "p90"
		}
		l.Classes = append(l.Classes, c)
	}
	load, offered := 0.5+2.5*rng.Float64(), 0.0
	for i := range l.Classes {
		offered += l.Classes[i].RPS
	}
	for i := range l.Classes { // an A100 does about 4 requests per second, an A10 half as many
		l.Classes[i].RPS *= load * 6 / offered
	}
	return in
}

// TestPlanSaysWhatSimulationSays: whatever its SLOs are of, and at any load, the
// attainment that a plan states for a model and class is what simulation gives on the
// same streams. A plan that must hold does, and passes its own check. One of the fewest
// devices or the least cost has none too many: with one less there is no plan, or one that
// fails in its test. Where there is no plan, simulation of the whole cluster says so.
func TestPlanSaysWhatSimulationSays(t *testing.T) {
	n := problems / 10
	if os.Getenv("INFERPLAN_LONG") != "" {
		n = problems
	}
	objectives := []string{"gpus", "goodput", "throughput", "cost"}
	plans, refusals := 0, 0
	for k := range n {
		in, objective := drawInputs(seeded.New(uint64(k), "promise")), objectives[k%len(objectives)]
		p, err := solveAndReread(t, in, objective)
		if err != nil {
			refusals++
			t.Logf("problem %d, %s: %v: %s", k, objective, err, goodputShortfall(t, in))
			continue
		}
		plans++
		for _, c := range brokenPromises(t, p) {
			t.Errorf("problem %d, %s: %s", k, objective, c)
		}
		today := &kind.CheckInput{Plan: p, Promised: p, Profile: in.Profile, Cluster: in.Cluster, Workload: in.Workload}
		for _, f := range queue.Method.Check(today) {
			if f.Severity == kind.Error {
				t.Errorf("problem %d, %s: its own check: %v", k, objective, f)
			}
		}
		if objective == "goodput" || objective == "throughput" {
			continue
		}
		for _, less := range oneLess(in, p) {
			refusals++
			t.Logf("problem %d, %s: %v: %s", k, objective, less.Cluster.Pools, tooFew(t, less, objective))
		}
	}
	t.Logf("%d plans of %d problems, %d refusals", plans, n, refusals)
	if plans < n/3 || refusals < n/5 {
		t.Errorf("%d plans of %d problems, %d refusals", plans, n, refusals)
	}
}

// solveAndReread is the plan of a problem, as it is read again; or why there is none.
func solveAndReread(t *testing.T, in planner.Inputs, objective string) (*formats.Plan, error) {
	t.Helper()
	res, err := solveBy(planner.Options{SkipNearest: true}, in, "objective", objective)
	if err != nil {
		if _, ok := errors.AsType[*kind.InfeasibleError](err); !ok {
			t.Fatalf("%s: %v", objective, err)
		}
		return nil, err
	}
	var b bytes.Buffer
	if err := document.Write(&b, res.Plan); err != nil {
		t.Fatal(err)
	}
	p, err := formats.DecodePlan(b.Bytes(), "plan.json")
	if err != nil {
		t.Fatal(err)
	}
	return p, nil
}

// oneLess are the clusters that have what a plan uses, but for one device, and run every model.
func oneLess(in planner.Inputs, p *formats.Plan) []planner.Inputs {
	used := map[string]int{}
	for _, x := range formats.QueueOf(p).Instances {
		used[x.Device]++
	}
	var out []planner.Inputs
	for _, device := range slices.Sorted(maps.Keys(used)) {
		less, cluster := in, *in.Cluster
		cluster.Pools = nil
		for _, pool := range in.Cluster.Pools {
			if pool.Count = used[pool.Device]; pool.Device == device {
				pool.Count--
			}
			if pool.Count > 0 {
				cluster.Pools = append(cluster.Pools, pool)
			}
		}
		runs := func(model string) bool {
			return slices.ContainsFunc(cluster.Pools, func(pool formats.Pool) bool { _, on := in.Profile.LLMOn(model, pool.Device, 1); return on != nil })
		}
		if less.Cluster = &cluster; !slices.ContainsFunc(formats.LLMOf(in.Workload).Models, func(m string) bool { return !runs(m) }) {
			out = append(out, less)
		}
	}
	return out
}

// tooFew says why a cluster does not do: the best layout found on it is late, on the streams
// of a plan or with other random numbers. It fails the test where there is a plan that holds.
func tooFew(t *testing.T, in planner.Inputs, objective string) string {
	t.Helper()
	p, err := solveAndReread(t, in, objective)
	if err != nil {
		return goodputShortfall(t, in)
	}
	if p.Certificate == nil || p.Certificate.LoadFactor >= 1 {
		t.Errorf("%v: there is a plan for %s", in.Cluster.Pools, objective)
		return ""
	}
	return fmt.Sprintf("with other random numbers it holds at %.2f of the rates", p.Certificate.LoadFactor)
}

// goodputShortfall simulates the layout with the most requests in time on all of a cluster, and says
// which class keeps its SLO in too few of them, or that queues grow. It fails the test where
// all is well.
func goodputShortfall(t *testing.T, in planner.Inputs) string {
	t.Helper()
	p, err := solveAndReread(t, in, "goodput")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range simulateOwnRuns(t, p).Classes {
		if share, err := document.ParsePercentile(c.Percentile); err != nil || c.Attainment < share {
			return fmt.Sprintf("class %s has %v in time of %s", c.Class, c.Attainment, c.Percentile)
		}
	}
	i := slices.IndexFunc(p.Warnings, func(w string) bool { return strings.HasPrefix(w, "what waits grows") })
	if i < 0 {
		t.Errorf("%v: every class keeps its SLO there, and no queue grows", in.Cluster.Pools)
		return ""
	}
	return p.Warnings[i]
}

// simulateOwnRuns is the report of a plan on the streams of its own runs.
func simulateOwnRuns(t *testing.T, p *formats.Plan) *formats.Report {
	t.Helper()
	sc, err := sim.NewScenario(p)
	if err != nil {
		t.Fatal(err)
	}
	q := formats.QueueOf(p)
	sc.Duration, sc.Seed = q.Runs.DurationUS.D(), q.Runs.Seed
	res, err := sim.Replicate(t.Context(), sc, q.Runs.Runs)
	if err != nil {
		t.Fatal(err)
	}
	return res.Report
}

// brokenPromises simulates a plan on the streams of its own runs, and says where it states
// something else, or does not keep what it must.
func brokenPromises(t *testing.T, p *formats.Plan) (wrong []string) {
	t.Helper()
	q, report := formats.QueueOf(p), simulateOwnRuns(t, p)
	for i := range q.Classes {
		c, m := &q.Classes[i], &report.Models[i]
		if c.Attainment != m.Attainment {
			wrong = append(wrong, fmt.Sprintf("%s (%s) states %v, simulation gives %v", c.Key(), c.Figure, c.Attainment, m.Attainment))
		}
	}
	if p.Objective.Name == "goodput" {
		return wrong
	}
	for _, c := range report.Classes {
		share, err := document.ParsePercentile(c.Percentile)
		if err != nil {
			t.Fatal(err)
		}
		if c.Attainment < share {
			wrong = append(wrong, fmt.Sprintf("class %s has %v in time of %s", c.Class, c.Attainment, c.Percentile))
		}
	}
	return wrong
}
