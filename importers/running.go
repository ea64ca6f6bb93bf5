package importers

import (
	"fmt"

	"github.com/spf13/pflag"

	"inferplan/formats"
	"inferplan/formats/usage"
	"inferplan/planner"
	"inferplan/planner/inputs"
)

// RunningDocuments are the files of the documents that say what a deployment that runs costs and promises.
type RunningDocuments struct{ profile, cluster, workload string }

// DefineFlags defines the flags that name the files.
func (o *RunningDocuments) DefineFlags(f *pflag.FlagSet) {
	for _, flag := range []struct {
		role string
		path *string
	}{{"profile", &o.profile}, {"cluster", &o.cluster}, {"workload", &o.workload}} {
		f.StringVar(flag.path, flag.role, "", fmt.Sprintf("%s (default ./%s.json or .yaml)", flag.role, flag.role))
	}
}

// Import saves the plan of a deployment that runs. read returns the deployment, places and batch sizes alone, with
// notes on what it took for granted.
func (o *RunningDocuments) Import(r *Run, read func(*formats.Profile, *formats.Cluster) ([]formats.Deployed, []string, error)) error {
	in := &inputs.Reader{PlanPath: r.Path}
	for _, d := range []struct {
		role, flag string
		read       func(path string) error
	}{{"profile", o.profile, in.ReadProfile}, {"cluster", o.cluster, in.ReadCluster}, {"workload", o.workload, in.ReadWorkload}} {
		path, err := inputs.FindFile(d.role, d.flag)
		if err == nil && path == "" {
			err = usage.Errorf("no %s here (%s.json or .yaml); name it with --%s", d.role, d.role, d.role)
		}
		if err == nil {
			err = d.read(path)
		}
		if err != nil {
			return err
		}
	}
	observed, notes, err := read(in.Profile, in.Cluster)
	if err != nil {
		return MarkInput(err)
	}
	plan, err := planner.Adopt(in.Documents, planner.Options{Assumptions: notes}, observed)
	if err != nil {
		return MarkInput(err)
	}
	for _, line := range plan.Assumptions {
		r.PrintNote("assumed: %s", line)
	}
	for _, line := range plan.Warnings {
		r.PrintNote("warning: %s", line)
	}
	return r.SaveAndShow(plan, map[string]any{"objective": plan.Objective, "models": plan.ServedModels(), "warnings": plan.Warnings},
		"wrote %s: what runs carries %.5g requests/s per unit of weight without queues; next: plan simulate %s", r.Path, plan.Objective.Value, r.Path)
}
