package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"inferplan/formats"
	"inferplan/formats/importer/tritonrepo"
	"inferplan/planner"
)

// importTriton describes the verb import triton, which makes a plan of what runs on Triton.
func importTriton() importer {
	var o runningDocuments
	return importer{
		use:     "triton DIR --profile F --cluster F --workload F",
		summary: "Model repositories of Triton Inference Server into a plan of what runs there",
		description: `Model repositories of Triton Inference Server into a plan of what runs there.

DIR is the repository of a machine, or holds a repository for each host of the cluster, as
'plan export triton' writes them. A server numbers its GPUs as the cluster lists its pools. The
configurations say where instances run and at which batch sizes, the profile what they cost, and
the workload what requests are promised. An ensemble that is named as a model of the profile is a
pipeline of its parts. The plan can be checked, simulated, and solved from (plan solve --from).`,
		example: `  plan import triton /srv/models -o today.json
  plan check today.json && plan simulate today.json
  plan solve --from today.json -o better.json`,
		args: cobra.ExactArgs(1), defaultOutput: "plan.json", kind: formats.KindPlan,
		flags: o.defineFlags,
		runImport: func(r *importRun) error {
			return o.importRunning(r, func(profile *formats.Profile, cluster *formats.Cluster) ([]formats.Deployed, []string, error) {
				return tritonrepo.Read(r.args[0], profile, cluster)
			})
		},
	}
}

// runningDocuments are the documents that say what a deployment that runs costs and promises.
type runningDocuments struct{ profile, cluster, workload string }

// defineFlags defines the flags that name the documents.
func (o *runningDocuments) defineFlags(f *pflag.FlagSet) {
	for _, flag := range []struct {
		role string
		path *string
	}{{"profile", &o.profile}, {"cluster", &o.cluster}, {"workload", &o.workload}} {
		f.StringVar(flag.path, flag.role, "", fmt.Sprintf("%s (default ./%s.json or .yaml)", flag.role, flag.role))
	}
}

// importRunning writes the plan of what runs. read returns the deployment, with notes on what it took for granted.
func (o *runningDocuments) importRunning(r *importRun, read func(*formats.Profile, *formats.Cluster) ([]formats.Deployed, []string, error)) error {
	in := &inputReader{planPath: r.path}
	for _, d := range []struct {
		role, flag string
		read       func(path string) error
	}{{"profile", o.profile, in.readProfile}, {"cluster", o.cluster, in.readCluster}, {"workload", o.workload, in.readWorkload}} {
		path, err := documentFile(d.role, d.flag)
		if err == nil && path == "" {
			err = usageErrorf("no %s here (%s.json or .yaml); name it with --%s", d.role, d.role, d.role)
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
		return badInput(err)
	}
	plan, err := planner.Adopt(in.Inputs, planner.Options{Assumptions: notes}, observed)
	if err != nil {
		return badInput(err)
	}
	for _, line := range plan.Assumptions {
		r.printNote("assumed: %s", line)
	}
	for _, line := range plan.Warnings {
		r.printNote("warning: %s", line)
	}
	return r.saveAndShow(plan, map[string]any{"objective": plan.Objective, "models": plan.ServedModels(), "warnings": plan.Warnings},
		"wrote %s: what runs carries %.5g requests/s per unit of weight without queues; next: plan simulate %s", r.path, plan.Objective.Value, r.path)
}
