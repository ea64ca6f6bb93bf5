package importers

import (
	"fmt"
	"slices"

	"github.com/spf13/pflag"

	"inferplan/formats"
	"inferplan/formats/usage"
	"inferplan/planner"
	"inferplan/planner/inputs"
	"inferplan/planner/kind"
)

// RunningDocuments are the files of the documents that say what a deployment that runs costs and promises.
type RunningDocuments struct {
	profile, cluster, workload string
	certify                    bool
}

// DefineFlags defines the flags that name the files, and the one that certifies the plan.
func (o *RunningDocuments) DefineFlags(f *pflag.FlagSet) {
	for _, flag := range []struct {
		role string
		path *string
	}{{"profile", &o.profile}, {"cluster", &o.cluster}, {"workload", &o.workload}} {
		f.StringVar(flag.path, flag.role, "", fmt.Sprintf("%s (default ./%s.json or .yaml)", flag.role, flag.role))
	}
	f.BoolVar(&o.certify, "certify", false, "simulate the plan, and store the rates that it holds")
}

// Import saves the plan of a deployment that runs. read returns the deployment, with notes on what it took for granted.
func (o *RunningDocuments) Import(r *Run, read func(*formats.Profile, *formats.Cluster) (*kind.Observed, []string, error)) error {
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
	settings := kind.TestSettings{Seed: 1, TraceDir: in.WorkloadDir}
	plan, err := planner.Adopt(r.Context, in.Documents, planner.Options{Assumptions: slices.Concat(notes, in.Unnamed), Certify: o.certify, TestSettings: settings}, observed)
	if err != nil {
		return MarkInput(err)
	}
	for _, line := range plan.Assumptions {
		r.PrintNote("assumed: %s", line)
	}
	for _, line := range plan.Warnings {
		r.PrintNote("warning: %s", line)
	}
	carries, of := fmt.Sprintf("carries %.5g requests/s per unit of weight without queues", plan.Objective.Value), "that"
	if plan.Objective.Basis == formats.BasisSimulation {
		requested := 0.0
		for _, s := range plan.ServedModels() {
			requested += s.RPS
		}
		carries, of = fmt.Sprintf("has %.4g of %.4g requests/s in time", plan.Objective.Value, requested), "the rates"
	}
	if c := plan.Certificate; c != nil {
		carries += fmt.Sprintf(", and holds %.3g of %s within the SLOs", c.LoadFactor, of)
	}
	return r.SaveAndShow(plan, map[string]any{"objective": plan.Objective, "certified": plan.Certificate, "models": plan.ServedModels(), "warnings": plan.Warnings},
		"wrote %s: what runs %s; next: plan simulate %s", r.Path, carries, r.Path)
}
