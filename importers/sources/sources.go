package sources

import (
	"inferplan/importers"
	"inferplan/importers/blocks"
	"inferplan/importers/kubernetes"
	"inferplan/importers/llm"
	"inferplan/importers/perfanalyzer"
	"inferplan/importers/pipeline"
	"inferplan/importers/records"
	"inferplan/importers/trace"
	"inferplan/importers/transitions"
	"inferplan/importers/triton"
	"inferplan/importers/trtexec"
	"inferplan/importers/vllmrun"
	"inferplan/importers/workload"
)

// All returns the importers, in the order of the help. Each call returns new ones, with flags of their own.
func All() []*importers.Importer {
	return []*importers.Importer{
		blocks.Importer(),
		trace.Importer(),
		records.Importer(),
		trtexec.Importer(),
		perfanalyzer.Importer(),
		pipeline.Importer(),
		llm.Importer(),
		vllmrun.Importer(),
		transitions.Importer(),
		workload.Importer(),
		triton.Importer(),
		kubernetes.Importer(),
	}
}
