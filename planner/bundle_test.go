package planner

import (
	"inferplan/formats"
	"inferplan/planner/pool/documents"
	"inferplan/testkit/reference"
)

// caseInputs are the documents of a reference case.
func caseInputs(ref *reference.Plan, p *formats.Profile) Inputs {
	return Inputs{Profile: p, Cluster: ref.ClusterDocument(), Workload: ref.WorkloadDocument()}
}

// caseOptions are the options under which a reference case was planned.
func caseOptions(ref *reference.Plan) Options {
	var o Options
	o.Set("margin", ref.Margin)
	o.Set("batch-build", ref.BatchBuild)
	o.Set("max-partitions", ref.MaxPartitions)
	switch ref.Algorithm {
	case "NP":
		o.Set("algorithm", documents.AlgorithmNP)
	case "DART-r":
		o.Set("algorithm", documents.AlgorithmDARTr)
	}
	return o
}
