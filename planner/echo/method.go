//go:build testkind

package echo

import (
	"context"
	"fmt"
	"time"

	"inferplan/formats"
	"inferplan/formats/diff"
	"inferplan/formats/document"
	"inferplan/planner/kind"
	"inferplan/solver/milp"
)

// Method puts all services but the last onto the same devices, and the last onto a device of its own. It
// cannot certify, tune, or start from a running plan.
var Method = kind.Method{
	Kind: formats.PlanEcho, Summary: "every request answered by itself", Solve: solve, Check: check, Figures: figures, WorkloadOf: workloadOf, Explain: explain, Diff: diffEchoes,
}

// solve deploys the services of the workload on one pool. All but the last share the first devices of the pool, whose number is the option
// copies: each of these devices holds all of these services. The last service has the next device alone. It fails if the pool is not
// time-shared or has too few devices.
func solve(_ context.Context, p *kind.Problem, run *kind.SolveRun) (*kind.Outcome, error) {
	if err := p.CheckPresent(); err != nil {
		return nil, err
	}
	asked, _ := p.Workload.Section.(formats.Echoes)
	pool, copies := p.Cluster.Pools[0].WithDefaults(), p.Values.WholeNumber("copies")
	if !pool.TimeShared() {
		return nil, &document.Error{Path: "pools[0].sharing", Found: pool.Sharing, Expected: formats.SharingTime}
	}
	if missing := copies + 1 - pool.Count; missing > 0 {
		return nil, &kind.InfeasibleError{Constraint: "devices", Reason: fmt.Sprintf("the services take %d devices", copies+1),
			Nearest: kind.NearestFeasible{Devices: []kind.MissingCount{{Device: pool.Device, Count: missing}}}}
	}
	run.Assume("%d devices hold all services but the last", copies)
	section := &formats.EchoPlan{}
	used := float64(copies + 1)
	out := &kind.Outcome{
		Algorithm: "echo", Values: p.Values, Sense: milp.Minimize, StoppedBy: milp.StoppedByProof, Pools: []formats.Pool{pool}, Section: section,
		Objective: formats.Objective{Name: "gpus", Value: used, Bound: &used, Gap: new(float64)}, Policy: formats.PolicySpec{Name: "echo"},
	}

	// Deploy one service after another.
	for i, s := range asked {
		modelIndex, err := p.ModelIndex(s.Model, fmt.Sprintf("echoes[%d].model", i))
		if err != nil {
			return nil, err
		}
		m := &p.Profile.Models[modelIndex]
		requestTime := document.Micros(time.Millisecond) // assumed, unless the profile has a measurement
		if len(m.Measurements) > 0 && m.Measurements[0].WholeModel != nil {
			requestTime = m.Measurements[0].WholeModel.WallUS
		}

		// The last service runs on one device, in batches of one. The others run on all shared devices, each for its part of their time, in
		// batches of up to two. A batch of two takes as long as two of one.
		replicas, firstDevice, deviceTime := 1, copies, 1.0
		batchTimes := []document.Micros{requestTime} // by batch size
		if i < len(asked)-1 {
			replicas, firstDevice, deviceTime = copies, 0, float64(copies)/float64(len(asked)-1)
			batchTimes = append(batchTimes, 2*requestTime)
		}
		rate := deviceTime / requestTime.D().Seconds()
		deployment := m.NewDeployment()
		deployment.Pipelines = []formats.Pipeline{{Batch: len(batchTimes), RPS: s.RPS, LatencyUS: batchTimes[len(batchTimes)-1], Stages: []formats.Stage{{
			Blocks: [2]int{0, len(m.Blocks)}, Device: pool.Device, Share: 1, Replicas: replicas, GPUs: deviceTime, RPS: rate, InferUS: batchTimes,
			Placement: []formats.Placement{{FirstDevice: firstDevice, PerDevice: 1, Replicas: replicas}}}}}}
		out.Deployment = append(out.Deployment, deployment)
		section.Services = append(section.Services, formats.Served{Model: s.Model, SLOUS: document.Micros(s.SLO.Duration), Percentile: "p99", Weight: 1, RPS: s.RPS})
	}
	return out, nil
}

// check returns an error for every pipeline that exceeds its SLO.
func check(t *kind.CheckInput) []kind.Finding {
	var out []kind.Finding
	for i := range t.Plan.Deployment {
		d := &t.Plan.Deployment[i]
		for k := range d.Pipelines {
			if took := d.Pipelines[k].LatencyUS; took > t.Plan.PromiseFor(i).SLOUS {
				out = append(out, kind.Finding{Severity: kind.Error, Constraint: "slo", Path: fmt.Sprintf("deployment[%d].pipelines[%d].latency_us", i, k),
					Found: took.String(), Message: d.Model + " takes longer than its SLO"})
			}
		}
	}
	return out
}

// figures compares the numbers of services.
func figures(_ context.Context, t *kind.CheckInput) ([]kind.FigurePair, string, error) {
	return []kind.FigurePair{{Metric: "rps", Subject: "services", Old: float64(len(t.Promised.Deployment)), New: float64(len(t.Plan.Deployment)), Unit: "services"}}, "", nil
}

// workloadOf returns the workload for which a plan was made.
func workloadOf(p *formats.Plan) *formats.Workload {
	var list formats.Echoes
	for _, s := range p.Section.(*formats.EchoPlan).Services {
		list = append(list, formats.EchoService{Model: s.Model, SLO: document.SLO{Duration: s.SLOUS.D()}, RPS: s.RPS})
	}
	return &formats.Workload{Format: formats.FormatWorkload, Section: list}
}

// explain describes the plan in one line.
func explain(p *formats.Plan) []string {
	return []string{fmt.Sprintf("echo: %d services on %d devices", len(p.Deployment), p.Options.WholeNumber("copies")+1)}
}

func diffEchoes(a, b *formats.Plan, r *diff.Recorder) { diff.Echoes(a, b, r) }
