package workflow

import (
	"slices"

	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/planner/kind"
	"inferplan/planner/lists"
)

// withLengthSamples returns a copy of the problem in which the modules that name a file of lengths have its rows (tokens of prompts and
// answers) as a sample. Of more than MaxSampleRows rows they have some evenly spread ones, and the plan states that as an assumption. The
// caller's documents do not change.
func withLengthSamples(in *kind.Problem, run *kind.SolveRun) (*kind.Problem, error) {
	applications := slices.Clone(formats.ApplicationsOf(in.Workload))
	for i := range applications {
		applications[i].Segments = slices.Clone(applications[i].Segments)
		for g := range applications[i].Segments {
			modules := slices.Clone(applications[i].Segments[g].Modules)
			for k := range modules {
				m := &modules[k]
				if m.LengthsFile == "" {
					continue
				}

				rows, err := arrivals.ReadLengths(in.WorkloadDir, m.LengthsFile)
				if err != nil {
					return nil, err
				}
				if m.Sample = evenlySpread(rows, formats.MaxSampleRows); len(m.Sample) < len(rows) {
					run.Assume("lengths of %s: %d rows of the %d of %s", m.Name, len(m.Sample), len(rows), m.LengthsFile)
				}
			}
			applications[i].Segments[g].Modules = modules
		}
	}

	// Return copies: the caller keeps its documents.
	workload := *in.Workload
	workload.Section = applications
	copied := *in
	copied.Workload = &workload
	return &copied, nil
}

// evenlySpread returns at most maxRows rows, evenly spread over the list.
func evenlySpread(rows [][2]int, maxRows int) [][2]int {
	if len(rows) <= maxRows {
		return rows
	}
	return lists.Filled(maxRows, func(i int) [2]int { return rows[(2*i+1)*len(rows)/(2*maxRows)] })
}
