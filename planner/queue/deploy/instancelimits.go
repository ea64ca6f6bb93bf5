package deploy

import (
	"fmt"
	"math"
)

// Limits of a layout: the most instances that are simulated (maxInstances), and the most instances of a
// kind: smallFleet, or maxIdleFactor times the instances that the rates keep busy, if that is more.
const (
	maxInstances  = 4096
	smallFleet    = 256
	maxIdleFactor = 8
)

// limitInstances lowers MaxInstances of each kind of servers to the number that the rates can use, since the search tries no more, and
// states that as an assumption of the plan. If the cluster has more instances than can be simulated and the rates can use them, it
// returns an error. For the objective throughput all devices count, because the rates are then sought.
func (r *resolver) limitInstances(p *Search) error {
	for k := range p.Problem.Kinds {
		kind := &p.Problem.Kinds[k]
		limit := float64(maxInstances)

		// Compute how many instances of the kind the rates keep busy.
		if r.input.Values.Word("objective") != "throughput" {
			busyInstances := 0.0
			for _, x := range p.Problem.Items {
				if p.Problem.Models[x.Model].ByKind[k] == nil {
					continue
				}
				requestTime, err := p.Estimators.requestTime(x.Model, k, p.Problem.capsOf(x.Model, k)[0])
				if err != nil {
					return err
				}
				busyInstances += x.RPS * requestTime
			}
			limit = max(smallFleet, math.Ceil(maxIdleFactor*busyInstances))
		}
		switch {
		case float64(kind.MaxInstances) <= min(limit, maxInstances):
		case limit > maxInstances:
			docPath := fmt.Sprintf("pools[%d].count", kind.Pool)
			return r.input.FieldError("cluster", docPath, fmt.Sprintf("%d devices for %d instances", r.problem.Pools[kind.Pool].Count, kind.MaxInstances), fmt.Sprintf("at most %d instances, which is what is simulated", maxInstances),
				"plan for a part of the devices and of the rates")
		default:
			kind.MaxInstances = int(limit)
			r.run.Assume("%d of the %d devices of kind %s are looked at: the rates keep an eighth of these busy at most", kind.MaxInstances*kind.TP, r.problem.Pools[kind.Pool].Count, kind.Device)
		}
	}
	return nil
}
