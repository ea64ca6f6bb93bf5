package pool

import "time"

// Templates are a model's pooled pipelines that keep its SLO, in a fixed order and
// none left out: for planners that have use for one which another beats here.
func (p *Problem) Templates(model int) ([]Template, error) {
	list, _, err := p.every(model)
	return list, err
}

// Fastest is the least time in which a batch can pass through a model within the
// memory of the devices, whatever the SLO; false when none can.
func (p *Problem) Fastest(model, batch int) (time.Duration, bool) { return p.fastest(model, batch) }

// LinkTime is the seconds that a sample takes of a NIC on the way from pool a to
// pool b, and whether it crosses a's and b's.
func (p *Problem) LinkTime(a, b int, bytes int64) (seconds float64, from, to bool) {
	seconds = sampleUS(bytes, linkGbps(&p.Pools[a], &p.Pools[b])) / 1e6
	return seconds, seconds > 0 && p.Pools[a].Gbps > 0, seconds > 0 && p.Pools[b].Gbps > 0
}
