package terms

import (
	"fmt"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/kind"
	"inferplan/planner/lists"
	"inferplan/planner/stages"
)

// The values of the option algorithm.
const (
	AlgorithmPaths  = "paths"  // for graphs: the method of docs/methods/flow.md
	AlgorithmShares = "shares" // for workflows: devices are divided by demand, and keep the models that they hold
)

// ModuleTime returns what a module takes of a deadline: a batch of its own, and before it the wait for a device, which is
// batchWait (the option batch-wait) times the longest run that may be under way there. A batchWait of 1 is the worst case of
// PARD (section 4.2), in which the run has just begun and no other replica becomes free before it ends.
func ModuleTime(batchTime, longestRun time.Duration, batchWait float64) time.Duration {
	return batchTime + time.Duration(batchWait*float64(longestRun))
}

// DescribeWait says in words what a request waits for in each module at a batchWait (the option batch-wait).
func DescribeWait(batchWait float64) string {
	switch batchWait {
	case 0:
		return "no wait for a device"
	case 1:
		return "a batch to wait for"
	}
	return fmt.Sprintf("%.2g of a batch to wait for", batchWait)
}

// MarginScope names the plans that the programs of this package bound without simulation: those with the margin and the
// waits of the options.
func MarginScope(values document.Values) string {
	return fmt.Sprintf("with margin %.3g and %s", values.Number("margin"), DescribeWait(values.Number("batch-wait")))
}

// WaitQuantile is the plan's lambda: the quantile of the waiting time that PARD's State Planner uses
// (section 5.4).
const WaitQuantile = .1

// Prices returns, by pool of the cluster, the price of a device by the objective: its cost, its power or, for the number
// of devices and for throughput, 1. It returns an error for a price that is missing, a kind of devices that is there
// twice, and a cluster without devices.
func Prices(in *kind.Problem) (prices []float64, err error) {
	devices := 0
	for i, pool := range in.Cluster.Pools {
		if slices.ContainsFunc(in.Cluster.Pools[:i], func(o formats.Pool) bool { return o.Device == pool.Device }) {
			return nil, in.FieldError("cluster", fmt.Sprintf("pools[%d].device", i), pool.Device+" a second time", "each device kind once", "add up the counts")
		}
		price, err := in.DevicePrice(i)
		if err != nil {
			return nil, err
		}
		prices, devices = append(prices, price), devices+pool.Count
	}
	if devices == 0 {
		return nil, in.FieldError("cluster", "pools", "no device", "at least one", "")
	}
	return prices, nil
}

// SLO returns the SLO of an application, and the margin that is kept back from it. The option slo comes before the
// workload's SLO. A multiple such as "5x" is one of baseTime, which baseName names in words. exampleSLO is one for the
// hint of an error.
func SLO(in *kind.Problem, run *kind.SolveRun, a *formats.Application, docPath, exampleSLO string, baseTime time.Duration, baseName string) (slo, margin time.Duration, err error) {
	target := a.SLO
	if slo := in.Values.SLO("slo"); !slo.IsZero() {
		target = slo
	}
	if target.IsZero() {
		return 0, 0, in.FieldError("workload", docPath+".slo", "nothing", "a latency target such as "+exampleSLO+" or 5x", "--slo sets it for all applications")
	}
	slo = target.Resolve(baseTime)
	if target.Factor > 0 {
		run.Assume("slo of %s: %s of %s, %s, is %s", a.Name, target, baseName, document.Duration(baseTime), document.Duration(slo))
	}
	if slo <= 0 {
		return 0, 0, in.FieldError("workload", docPath+".slo", target.String(), "more than 0", "")
	}
	return slo, kind.Margin(slo, in.Values.Number("margin")), nil
}

// Weight returns the rate of an application at rate factor 1, which multiplies the rates of all applications: for throughput its weight;
// for other objectives the rate that it asks for, in requests per second, without which it returns an error.
func Weight(in *kind.Problem, a *formats.Application, docPath string) (float64, error) {
	objective := in.Values.Word("objective")
	switch {
	case objective == "throughput":
		return a.Weight, nil
	case !(a.RPS > 0):
		return 0, in.FieldError("workload", docPath+".rps", "no rate to carry", "one of every application with --objective "+objective, "")
	}
	return a.RPS, nil
}

// AddStage adds to a deployment a pipeline of one stage, which runs the whole model in batches of the given size. costs
// are those of the model on the stage's devices.
func AddStage(d *formats.Deployed, s formats.Stage, profile *formats.ProfileModel, costs *stages.ShareCosts, batch int) {
	s.Blocks = [2]int{0, d.NumBlocks}
	costs.WriteStage(&s, profile, batch)
	d.Pipelines = append(d.Pipelines, formats.Pipeline{Batch: batch, RPS: s.RPS, LatencyUS: s.InferUS[batch-1], Stages: []formats.Stage{s}})
}

// MaxBatchTime returns the longest time that a plan states for a batch of a model, of any size up to the planned one and on any of its
// devices. If the plan does not deploy the model, it returns 0.
func MaxBatchTime(p *formats.Plan, name string) time.Duration {
	maxTime := time.Duration(0)
	for i := range p.Deployment {
		if p.Deployment[i].Model != name {
			continue
		}
		for _, pl := range p.Deployment[i].Pipelines {
			for _, s := range pl.Stages {
				maxTime = lists.Max(maxTime, len(s.InferUS), func(i int) time.Duration { return s.InferUS[i].D() })
			}
		}
	}
	return maxTime
}
