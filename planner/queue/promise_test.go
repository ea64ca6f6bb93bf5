package queue_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/formats/seeded"
	"inferplan/planner"
	"inferplan/planner/kind"
	"inferplan/planner/queue"
	"inferplan/sim"
)

// problems is how many are drawn; a tenth without INFERPLAN_LONG.
const problems = 50

// drawn is a problem of one or two models in one to three classes, whose SLOs are of
// any figure, at .5 to 3 times what the cluster does at most.
func drawn(rng *rand.Rand) planner.Inputs {
	in := documents()
	pick := func(n int) int { return rng.IntN(n) }
	lognormal := func(mean float64, most int) *formats.Lengths {
		return &formats.Lengths{Distribution: formats.LengthsLognormal, Mean: mean, SD: mean * (0.3 + 0.5*rng.Float64()), Max: most}
	}
	l := formats.LLMOf(in.Workload)
	l.Models, l.Classes = l.Models[:1+pick(2)], nil
	in.Cluster.Pools = in.Cluster.Pools[:1+pick(2)]
	seconds := func(s float64) formats.SLO { return formats.SLO{Duration: time.Duration(s * float64(time.Second))} }
	for i := range 1 + pick(3) {
		c := formats.LLMClass{Class: fmt.Sprint("c", i), Prompt: lognormal(200+600*rng.Float64(), 3000), Output: lognormal(40+160*rng.Float64(), 800), RPS: 0.5 + rng.Float64()}
		switch pick(5) {
		case 0:
			c.SLO = seconds(15 + 60*rng.Float64())
		case 1:
			c.SLO, c.WaitingSLO = seconds(30+60*rng.Float64()), seconds(5+10*rng.Float64())
		case 2:
			c.SLO, c.Of = seconds(2+6*rng.Float64()), formats.OfTTFT
		case 3:
			c.SLO, c.Of = seconds(0.04+0.04*rng.Float64()), formats.OfTPOT
		case 4:
			c.SLO, c.Of, c.WaitingSLO = seconds(0.04+0.04*rng.Float64()), formats.OfTPOT, seconds(5+10*rng.Float64())
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
// same streams. A plan that must hold does, and passes its own check.
func TestPlanSaysWhatSimulationSays(t *testing.T) {
	n := problems / 10
	if os.Getenv("INFERPLAN_LONG") != "" {
		n = problems
	}
	objectives := []string{"gpus", "goodput", "throughput", "cost"}
	plans := 0
	for k := range n {
		in, objective := drawn(seeded.New(uint64(k), "promise")), objectives[k%len(objectives)]
		res, err := solveBy(planner.Options{NearestUntold: true}, in, "objective", objective)
		if inf, ok := errors.AsType[*kind.InfeasibleError](err); ok {
			t.Logf("problem %d, %s: %v", k, objective, inf)
			continue
		}
		if err != nil {
			t.Errorf("problem %d, %s: %v", k, objective, err)
			continue
		}
		plans++
		var b bytes.Buffer
		if err := formats.Write(&b, res.Plan); err != nil {
			t.Fatal(err)
		}
		p, err := formats.DecodePlan(b.Bytes(), "plan.json")
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range promised(t, p) {
			t.Errorf("problem %d, %s: %s", k, objective, c)
		}
		today := &kind.Today{Plan: p, Against: p, Profile: in.Profile, Cluster: in.Cluster, Workload: in.Workload}
		for _, f := range queue.Method.Check(today) {
			if f.Severity == kind.Error {
				t.Errorf("problem %d, %s: its own check: %v", k, objective, f)
			}
		}
	}
	t.Logf("%d plans of %d problems", plans, n)
	if plans < n/3 {
		t.Errorf("%d plans of %d problems", plans, n)
	}
}

// promised simulates a plan on the streams of its own runs, and says where it states
// something else, or does not keep what it must.
func promised(t *testing.T, p *formats.Plan) (wrong []string) {
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
	for i := range q.Classes {
		c, m := &q.Classes[i], &res.Report.Models[i]
		if c.Attainment != m.Attainment {
			wrong = append(wrong, fmt.Sprintf("%s (%s) states %v, simulation gives %v", c.Key(), c.Of, c.Attainment, m.Attainment))
		}
	}
	if p.Objective.Name == "goodput" {
		return wrong
	}
	for _, c := range res.Report.Classes {
		share, err := formats.ParsePercentile(c.Percentile)
		if err != nil {
			t.Fatal(err)
		}
		if c.Attainment < share {
			wrong = append(wrong, fmt.Sprintf("class %s has %v in time of %s", c.Class, c.Attainment, c.Percentile))
		}
	}
	return wrong
}
