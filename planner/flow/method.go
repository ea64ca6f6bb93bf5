package flow

import (
	"context"

	"inferplan/formats"
	"inferplan/formats/diff"
	"inferplan/planner/certify"
	"inferplan/planner/flow/graph"
	"inferplan/planner/flow/terms"
	"inferplan/planner/flow/verify"
	"inferplan/planner/flow/workflow"
	"inferplan/planner/kind"
	"inferplan/planner/moves"
)

// Method is the entry of package planner to this package.
var Method = kind.Method{
	Kind: formats.PlanFlow, Summary: "applications and workflows of several modules",
	Solve: solvePlan, CheckRunning: checkRunning, Tune: tune, Certify: certify.CertifyPlan, ScalePromise: scalePromise, RelaxWorkload: loosenApplications, WithTraffic: withTraffic, Tuned: []string{"margin", "batch-wait", "dedicated"}, WithoutWaits: map[string]any{"batch-wait": 0.0}, Check: verify.Check, Figures: verify.Figures, WorkloadOf: verify.WorkloadOf, Explain: explainPlan, Diff: diff.Flows,
}

// checkRunning returns an error if a new plan cannot start from the one that runs, which must be of the same sort of
// applications: graphs of modules, or workflows.
func checkRunning(p *kind.Problem) error {
	var models []string
	asksWorkflows := false
	for _, a := range formats.ApplicationsOf(p.Workload) {
		for i := range a.Modules {
			for _, v := range a.Modules[i].Models() {
				models = append(models, v.Model)
			}
		}
		for i := range a.Segments {
			asksWorkflows = true
			for k := range a.Segments[i].Modules {
				models = append(models, a.Segments[i].Modules[k].Services()...)
			}
		}
	}
	if err := moves.CheckRunning(p, formats.PlanFlow, models); err != nil {
		return err
	}
	sorts := map[bool]string{false: "graphs of modules", true: "workflows (segments)"}
	if runs := formats.FlowOf(p.RunningPlan).Workflow(); runs != asksWorkflows {
		return p.FieldError("running", "flow.applications", sorts[runs], sorts[asksWorkflows]+", as the workload has", "start from a plan of these, or leave out --from")
	}
	return nil
}

// solvePlan is the method's solve: it plans workflows (applications with segments) or graphs of modules, and refuses
// options of the other.
func solvePlan(ctx context.Context, in *kind.Problem, run *kind.SolveRun) (*kind.Outcome, error) {
	if list := formats.ApplicationsOf(in.Workload); len(list) > 0 && len(list[0].Segments) > 0 {
		if in.Values.Time("cold-start") > 0 {
			return nil, in.FieldError("workload", "applications", "segments", "modules: --cold-start is of graphs, workflows load what they need", "")
		}
		return workflow.Plan(ctx, in, run)
	}

	// Refuse options that only workflows have.
	if in.Values.Word("algorithm") == terms.AlgorithmShares {
		return nil, in.FieldError("workload", "applications", "modules", "segments: --algorithm shares is of workflows", "")
	}
	if text := in.Values.Word("dedicated"); text != "" && text != workflow.DedicatedAuto {
		return nil, in.FieldError("workload", "applications", "modules", "segments: --dedicated is of workflows", "modules of a graph have devices of their own")
	}
	return graph.Plan(ctx, in, run)
}

// explainPlan returns lines of text about the applications of a plan and about its devices.
func explainPlan(p *formats.Plan) []string {
	f := formats.FlowOf(p)
	switch {
	case f == nil:
		return nil
	case f.Workflow():
		return workflow.Explain(p, f)
	}
	return graph.Explain(p, f)
}
