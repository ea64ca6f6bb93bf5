package templates

import (
	"slices"
	"sort"

	"inferplan/planner/lists"
	"inferplan/planner/pool/problem"
	"inferplan/planner/stages"
)

// maxEnumerated is the largest number of stage sequences for which all templates enter one linear program.
const maxEnumerated = 1_000_000

// largeCluster is the number of devices from which on rounding to whole replicas loses so little that the proof
// over all templates is not worth listing them, unless they are ten times fewer. With many models the same
// holds, because bundles prove as much.
const largeCluster = 5000

// countSequences estimates how many templates the problem has if no SLO rules any out: choices of a batch size, of cuts
// between blocks, and of a device kind and share for each stage. The number decides whether all are listed, only useful
// ones are generated, or models are cut at fewer places.
func countSequences(p *problem.Problem) float64 {
	total := 0.0
	for d := range p.Models {
		m := &p.Models[d]
		cutBlocks := 1.0 // parts into which all possible cuts divide the model; a negative size allows no cut
		for _, cutBytes := range m.CutBytes {
			if cutBytes >= 0 {
				cutBlocks++
			}
		}
		for _, b := range m.BatchSizes() {
			// With s stages: choose s-1 of the cuts, and a kind and share for each stage. Each round turns the
			// choices of s stages into those of s+1, by C(n, s) = C(n, s-1) (n-s+1)/s with n = cutBlocks-1.
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

// countStageDevices returns on how many combinations of a device kind and a share 1/v of a device a stage of model m may
// run at a batch size: those at which the model was measured, on pools that have devices.
func countStageDevices(p *problem.Problem, m *stages.Model, batch int) (n float64) {
	for k := range m.ShareCosts {
		if p.Pools[k].Count == 0 {
			continue
		}
		for i := range min(len(m.ShareCosts[k]), p.Pools[k].MaxShares) {
			if m.ShareCosts[k][i].CostAt(batch) != nil { // the costs on a share of 1/(i+1)
				n++
			}
		}
	}
	return n
}

// LimitBlocks lets models be cut at fewer places, those that the fewest bytes cross, if the problem has more than
// MaxSequences templates (choices of batch size, cuts, kinds and shares) in all. Then it replaces the models of the
// problem by copies with fewer cuts: as many as the limit allows. It returns n if models of more than n blocks are now
// cut as if they had n, which the plan then names as an assumption, or 0 if nothing was limited.
func LimitBlocks(p *problem.Problem) int {
	if countSequences(p) <= MaxSequences {
		return 0
	}
	withBlocks := func(n int) *problem.Problem {
		limitedProblem := *p
		limitedProblem.Models = slices.Clone(p.Models)
		limitedProblem.PrePartition(n)
		return &limitedProblem
	}

	// The largest number of blocks, at least 1, with which the templates are within the limit: the least n for which n+1
	// blocks exceed it.
	maxBlocks := lists.Max(0, len(p.Models), func(d int) int { return p.Models[d].NumBlocks() })
	n := max(sort.Search(maxBlocks, func(n int) bool { return countSequences(withBlocks(n+1)) > MaxSequences }), 1)
	p.Models = withBlocks(n).Models
	return n
}

// NeedsColumns reports whether the templates are too many to be listed for one program. Then a search makes only useful
// ones, by column generation (the prices of a smaller program say which others would improve it). On large clusters and
// with many models that begins at a tenth of the number. With a time-shared pool all templates are listed in any case,
// because the bounds on waiting there need them.
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
