package workflow

import (
	"slices"

	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/planner/kind"
)

// withLengthSamples returns the problem with the rows of the length files that its modules name, as samples
// in the modules. Of files with more than MaxSampleRows rows it takes some evenly spread ones.
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
	spread := make([][2]int, maxRows)
	for i := range spread {
		spread[i] = rows[(2*i+1)*len(rows)/(2*maxRows)]
	}
	return spread
}
