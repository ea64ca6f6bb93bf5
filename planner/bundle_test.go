package planner

import (
	"inferplan/formats"
	"inferplan/formats/importer/reference"
)

// caseInputs are the documents of a reference case.
func caseInputs(ref *reference.Plan, p *formats.Profile) Inputs {
	return Inputs{Profile: p, Cluster: ref.ClusterDocument(), Workload: ref.WorkloadDocument()}
}

// caseOptions are the options under which a reference case was planned.
func caseOptions(ref *reference.Plan) Options {
	o := DefaultOptions()
	o.Margin, o.BatchBuild, o.MaxPartitions = ref.Margin, ref.BatchBuild, ref.MaxPartitions
	switch ref.Algorithm {
	case "NP":
		o.Algorithm = AlgorithmNP
	case "DART-r":
		o.Algorithm = AlgorithmDARTr
	}
	return o
}
