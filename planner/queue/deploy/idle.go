package deploy

import (
	"fmt"
	"math"
)

// Limits of a layout: the most instances that are simulated (maxInstances), and the most instances of a
// kind: smallFleet, or maxIdleFactor times the instances that the rates keep busy, if that is more.
const (
	mostInstances = 4096
	fewInstances  = 256
	idleTimes     = 8
)

// limitInstances leaves out devices that would be idle, and returns an error if more instances would be
// needed than can be simulated. For throughput all devices count, because the search is for the
// rates.
func (r *resolver) bounded(p *Search) error {
	for k := range p.Kinds {
		kind := &p.Kinds[k]
		most := float64(mostInstances)

		// Compute how many instances of the kind the rates keep busy.
		if r.in.Values.Word("objective") != "throughput" {
			need := 0.0
			for _, x := range p.Items {
				if p.Models[x.Model].On[k] == nil {
					continue
				}
				each, err := p.each(x.Model, k, p.capsOf(x.Model, k)[0])
				if err != nil {
					return err
				}
				need += x.RPS * each
			}
			most = max(fewInstances, math.Ceil(idleTimes*need))
		}
		switch {
		case float64(kind.Most) <= min(most, mostInstances):
		case most > mostInstances:
			at := fmt.Sprintf("pools[%d].count", kind.Pool)
			return r.in.Fail("cluster", at, fmt.Sprintf("%d devices for %d instances", r.Pools[kind.Pool].Count, kind.Most), fmt.Sprintf("at most %d instances, which is what is simulated", mostInstances),
				"plan for a part of the devices and of the rates")
		default:
			kind.Most = int(most)
			r.run.Assume("%d of the %d devices of kind %s are looked at: the rates keep an eighth of these busy at most", kind.Most*kind.TP, r.Pools[kind.Pool].Count, kind.Device)
		}
	}
	return nil
}
