package flow

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

				// Read the rows, and thin them out if there are too many.
				rows, err := arrivals.ReadLengths(in.WorkloadDir, m.LengthsFile)
				if err != nil {
					return nil, err
				}
				m.Sample = rows
				if n := len(rows); n > formats.MaxSampleRows {
					m.Sample = nil
					for row := range formats.MaxSampleRows {
						m.Sample = append(m.Sample, rows[(2*row+1)*n/(2*formats.MaxSampleRows)])
					}
					run.Assume("lengths of %s: %d rows of the %d of %s", m.Name, formats.MaxSampleRows, n, m.LengthsFile)
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
