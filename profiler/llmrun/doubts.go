package llmrun

import (
	"fmt"

	"inferplan/formats"
)

// minR2 is the R2 of end-to-end latencies below which a run counts as poorly explained.
const minR2 = .9

// Doubts returns reasons, as texts for the user, not to trust the model of a run. cpuGiven says that its constants
// of CPU time, c, were given rather than fitted to the run. x compares the run with the model.
func (r *Run) Doubts(c CPUCost, cpuGiven bool, x *Comparison) []string {
	var out []string
	if r.AllReduce == formats.NoAllReduce {
		out = append(out, r.withoutAllReduce())
	}
	return append(out, poorFigures(c, cpuGiven, x)...)
}

// poorFigures returns the figures of a run that its model does not explain, as texts: a fit of the CPU time at the
// edge of its range (unless the constants were given), and a low R2 of latencies.
func poorFigures(c CPUCost, cpuGiven bool, x *Comparison) []string {
	var out []string
	if !cpuGiven && c.Iteration >= maxSum/2 { // Calibrate tries sums up to maxSum, of which this is half
		out = append(out, fmt.Sprintf("the time that the CPU adds to an iteration was fitted to %v, the most that is looked at: the steps lack something", c.Iteration))
	}
	if x.R2 < minR2 {
		out = append(out, fmt.Sprintf("the model explains the run poorly: R2 %.2f of end-to-end latency, request by request", x.R2))
	}
	return out
}

// withoutAllReduce returns a doubt if the steps lack the exchange between GPUs.
func (r *Run) withoutAllReduce() string {
	return fmt.Sprintf("the steps of %s on %d x %s are WITHOUT ALL-REDUCES between the GPUs: --link-gbps, --link-us and --model-config add them", r.Meta.Model, r.Meta.TensorParallel, r.Device)
}
