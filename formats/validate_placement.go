package formats

import (
	"fmt"

	"inferplan/formats/document"
)

// capacity checks that the stage carries the pipeline, and that it promises no
// more than its replicas can do.
func (p *planChecker) capacity(l *Pipeline, s *Stage, pool *Pool, at string) {
	p.FailIf(s.RPS < l.RPS && !document.CloseTo(s.RPS, l.RPS), at+".rps", s.RPS, "at least the pipeline's rate, "+document.FormatFloat(l.RPS))
	servers := float64(s.Replicas)
	if pool.Sharing == SharingTime {
		servers = min(servers, s.GPUs)
	}
	most := servers * float64(l.Batch) / p.plan.RunUS(l, s).D().Seconds()
	p.FailIf(s.RPS > most && !document.CloseTo(s.RPS, most), at+".rps", s.RPS, "at most what its replicas can do, "+document.FormatFloat(most))
}

// placement puts the replicas of a stage on the devices of its pool.
func (p *planChecker) placement(s *Stage, pool int, info *Pool, at string) {
	sum := 0
	for k := range s.Placement {
		g := &s.Placement[k]
		where := fmt.Sprintf("%s.placement[%d]", at, k)
		if p.FailIf(g.Replicas < 1 || g.PerDevice < 1 || g.Replicas > maxCount*maxShares, where, fmt.Sprintf("%d replicas, %d per device", g.Replicas, g.PerDevice), "1 or more of each") {
			return
		}
		sum += g.Replicas
		if p.FailIf(g.PerDevice > s.Share, where+".per_device", g.PerDevice, "at most %d shares of 1/%d on a device", s.Share, s.Share) {
			return
		}
		devices := (g.Replicas + g.PerDevice - 1) / g.PerDevice
		if p.FailIf(g.First < 0 || g.First > info.Count-devices, where, fmt.Sprintf("devices %d to %d", g.First, g.First+devices-1), "devices 0 to %d, which the pool has", info.Count-1) {
			return
		}
		if p.load[pool] == nil {
			continue // the count itself is wrong
		}
		full, rest := g.Replicas/g.PerDevice, g.Replicas%g.PerDevice
		p.put(pool, g.First, g.First+full, float64(g.PerDevice)/float64(s.Share))
		if rest > 0 {
			p.put(pool, g.First+full, g.First+full+1, float64(rest)/float64(s.Share))
		}
	}
	p.FailIf(sum != s.Replicas, at+".placement", fmt.Sprintf("%d replicas placed", sum), "replicas, %d", s.Replicas)
}

// put adds load to the devices [first, last) of a pool; load holds differences
// between neighbours until occupancy sums them.
func (p *planChecker) put(pool, first, last int, load float64) {
	p.load[pool][first] += load
	p.load[pool][last] -= load
}

// occupancy checks that no device is given away twice.
func (p *planChecker) occupancy() {
	for i := range p.plan.Pools {
		pool := p.plan.Pools[i].WithDefaults()
		if total := p.gpus[i]; total > float64(pool.Count)*(1+1e-6) {
			p.Fail(fmt.Sprintf("pools[%d].count", i), document.Whole(pool.Count), "the devices that the stages take together, "+document.FormatFloat(total), "")
		}
		if pool.Sharing == SharingTime {
			continue // a device of the pool may be in the lists of several stages
		}
		load := 0.0
		for g, step := range p.load[i] {
			load += step
			if load > 1+1e-9 {
				p.Fail(fmt.Sprintf("pools[%d]", i), fmt.Sprintf("device %d of %s given to stages %.4g times over", g, pool.Device, load),
					"shares of each device that sum to at most 1", "look at the placements that cover the device")
				break
			}
		}
	}
}
