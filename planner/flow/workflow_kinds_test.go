package flow

import (
	"context"
	"strings"
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/planner/kind"
	"inferplan/sim"
)

// mixedProblem has cards, and boards that take twice as long and hold less. The language
// model of GILL does not fit on them.
func mixedProblem(objective string) *kind.Problem {
	p := problemOf(8, 40e9, time.Minute, [3]float64{3, 1, 1})
	p.Cluster.Pools[0].USDPerHour = 3
	p.Cluster.Pools = append(p.Cluster.Pools, formats.Pool{Device: "board", Count: 8, PerNode: 4, NICGbps: 100, Memory: 13e9, USDPerHour: 1})
	for i := range p.Profile.Models {
		m := &p.Profile.Models[i]
		for _, ms := range m.Measurements {
			took := formats.Latency{WallUS: 2 * ms.WholeModel.WallUS}
			ms.Device, ms.WholeModel, ms.Blocks = "board", &took, []formats.Latency{took}
			m.Measurements = append(m.Measurements, ms)
		}
		m.Loads = append(m.Loads, formats.DeviceLoad{Device: "board", ModelLoads: formats.ModelLoads{WarmUS: 3 * m.Loads[0].WarmUS}})
	}
	p.Profile.Devices = append(p.Profile.Devices, formats.ProfileDevice{Device: "board", Method: "assumed"})
	if err := p.Values.Set("objective", objective); err != nil {
		panic(err)
	}
	return p
}

// A plan on two kinds holds when it is checked, is told kind by kind, and carries in
// simulation what it promises, on both kinds.
func TestPlanOnTwoKinds(t *testing.T) {
	for _, objective := range []string{"throughput", "cost"} {
		p := mixedProblem(objective)
		made := planOf(t, p)
		for _, f := range Method.Check(&kind.CheckInput{Plan: made, Profile: p.Profile, Cluster: p.Cluster, Workload: p.Workload}) {
			t.Errorf("%s: %v", objective, f)
		}
		text := strings.Join(Method.Explain(made), "\n")
		if !strings.Contains(text, "on board in batches of") || !strings.Contains(text, "on card in batches of") {
			t.Errorf("%s: %s", objective, text)
		}
		for i := range made.Deployment {
			for _, l := range made.Deployment[i].Pipelines {
				if name := made.Deployment[i].Model; l.Stages[0].Device == "board" && (name == "llama-2-7b" || name == "opt-6.7b") {
					t.Errorf("%s: %s on a board, whose memory it does not fit", objective, name)
				}
			}
		}
		sc, err := sim.NewScenario(made)
		if err != nil {
			t.Fatal(err)
		}
		sc.Load, sc.Duration, sc.Verify = .5, 3*time.Minute, true
		res, err := sim.Replicate(context.Background(), sc, 1)
		if err != nil {
			t.Fatal(err)
		}
		if r := res.Report; float64(r.Completed-r.Late)/float64(r.Requests) < .99 {
			t.Errorf("%s: %d of %d requests at load .5 in time", objective, r.Completed-r.Late, r.Requests)
		}
		for _, d := range res.Report.Devices {
			if d.Utilisation < .1 {
				t.Errorf("%s: %s works for %.2f of the time", objective, d.Device, d.Utilisation)
			}
		}
	}
	alone := planOf(t, problemOf(8, 40e9, time.Minute, [3]float64{3, 1, 1}))
	if both := planOf(t, mixedProblem("throughput")); both.Objective.Value < 1.2*alone.Objective.Value {
		t.Errorf("a factor of %v with boards, %v without", both.Objective.Value, alone.Objective.Value)
	}
}
