package triton

import (
	"inferplan/formats"
	"inferplan/importers"
	"inferplan/planner/kind"
)

// Importer describes the verb import triton, which makes a plan of what runs on Triton.
func Importer() *importers.Importer {
	var documents importers.RunningDocuments
	return &importers.Importer{
		Usage:   "triton DIR --profile F --cluster F --workload F",
		Summary: "Model repositories of Triton Inference Server into a plan of what runs there",
		Description: `Model repositories of Triton Inference Server into a plan of what runs there.

DIR is the repository of a machine, or holds a repository for each host of the cluster, as
'plan export triton' writes them. A server numbers its GPUs as the cluster lists its pools. The
configurations say where instances run and at which batch sizes, the profile what they cost, and
the workload what requests are promised. An ensemble that is named as a model of the profile is a
pipeline of its parts. The plan can be checked, simulated, and solved from (plan solve --from).

instance_group     replicas; v instances on a GPU have shares 1/v, or take turns on a pool with
                   sharing: time. A group that is called 'L4 1/2' says its kind and share.
                   KIND_CPU has sets of CPU threads. Absent counts are Triton's defaults.
preferred_batch_size, else max_batch_size: the largest batch, less if the SLO or the profile
                   leaves less
ensemble_scheduling: stages, if the profile has a model of its name with cuts at the tensors
                   between the steps; else the steps are models
parameters         inferplan_model, _class, _blocks, _pipeline: as plan export triton writes them
folders of hosts   KIND-N for node N of a pool with a network, KIND for a pool without one, host
                   with host: shared

Margins are 0, and rates are what the devices carry. Models outside the workload are left out.`,
		Example: `  plan import triton repository -o today.json
  plan check today.json && plan simulate today.json
  plan solve --from today.json -o better.json`,
		MinArguments: 1, MaxArguments: 1, DefaultOutput: "plan.json", Kind: formats.KindPlan,
		DefineFlags: documents.DefineFlags,
		Import: func(r *importers.Run) error {
			return documents.Import(r, func(profile *formats.Profile, cluster *formats.Cluster) (*kind.Observed, []string, error) {
				observed, notes, err := Read(r.Args[0], profile, cluster)
				return &kind.Observed{Deployment: observed}, append(notes, "queues: what is simulated is plan serve on these places; Triton's own queues wait and refuse otherwise"), err
			})
		},
	}
}
