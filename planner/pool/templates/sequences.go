package templates

import (
	"slices"
	"sort"

	"inferplan/planner/pool/problem"
	"inferplan/planner/stages"
)

// maxEnumerated is the largest number of stage sequences for which all templates enter one linear program.
const maxEnumerated = 1_000_000

// largeCluster is the number of devices from which on rounding to whole replicas loses so little that the proof
// over all templates is not worth listing them, unless they are ten times fewer. With many models the same
// holds, because bundles prove as much.
const largeCluster = 5000

// countSequences estimates how many templates the problem has (batch size, cuts, kind and share of each stage),
// without regard to the SLO. It decides whether they are listed or generated.
func countSequences(p *problem.Problem) float64 {
	total := 0.0
	for d := range p.Models {
		m := &p.Models[d]
		cutBlocks := 1.0 // blocks that cuts can lie between
		for _, c := range m.CutBytes {
			if c >= 0 {
				cutBlocks++
			}
		}
		for _, b := range m.BatchSizes() {
			// With s stages: choose s-1 cuts, and a kind and share for each stage.
			devices := countStageDevices(p, m, b)
			stageChoices := devices
			for s := 1; s <= p.MaxPartitions && stageChoices > 0; s++ {
				total += stageChoices
				stageChoices *= devices * max(cutBlocks-float64(s), 0) / float64(s)
			}
		}
	}
	return total
}

// countStageDevices returns how many combinations of device kind and share 1/v a stage of a model may run on at
// a batch size: those that were measured, on pools with devices.
func countStageDevices(p *problem.Problem, m *stages.Model, batch int) (n float64) {
	for k := range m.ShareCosts {
		if p.Pools[k].Count == 0 {
			continue
		}
		for v := range min(len(m.ShareCosts[k]), p.Pools[k].MaxShares) {
			if m.ShareCosts[k][v].CostAt(batch) != nil {
				n++
			}
		}
	}
	return n
}

// LimitBlocks lets models with too many stage sequences be cut at fewer places, those that the fewest bytes
// cross, so that the problem has at most MaxSequences templates in all. It returns the number of blocks that a
// model then counts as. If nothing is limited, it returns 0.
func LimitBlocks(p *problem.Problem) int {
	if countSequences(p) <= MaxSequences {
		return 0
	}
	withBlocks := func(n int) *problem.Problem {
		q := *p
		q.Models = slices.Clone(p.Models)
		q.PrePartition(n)
		return &q
	}
	maxBlocks := 0
	for d := range p.Models {
		maxBlocks = max(maxBlocks, p.Models[d].NumBlocks())
	}
	n := max(sort.Search(maxBlocks, func(n int) bool { return countSequences(withBlocks(n+1)) > MaxSequences }), 1)
	p.Models = withBlocks(n).Models
	return n
}

// NeedsColumns reports whether the templates are too many to be listed for one program: then only useful ones
// are made, by column generation. On large clusters and with many models that begins at a tenth of the number.
// With a time-shared pool all templates are listed in any case, because the bounds on waiting there need them.
func NeedsColumns(p *problem.Problem) bool {
	maxTemplates := float64(maxEnumerated)
	if p.TotalDevices() >= largeCluster || p.UsesBundles() {
		// Their programs are large: list fewer.
		maxTemplates /= 10
	}
	return countSequences(p) > maxTemplates && !p.HasTimeShared()
}

// MaxSequences is the largest number of stage sequences of a problem.
const MaxSequences = 4_000_000
