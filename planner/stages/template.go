package stages

import (
	"fmt"
	"time"
)

// Template is a pipeline without replica counts: a possible way to run a model.
type Template struct {
	Model   int
	Batch   int
	Latency time.Duration // execution and transfers, of a batch
	Stages  []Stage
}

// Stage is a block range on a device kind and share.
type Stage struct {
	FirstBlock, EndBlock int // blocks [FirstBlock, EndBlock)
	Pool                 int
	Share                int           // v of the share 1/v
	MaxTime              time.Duration // most that a batch takes; the SLO must hold with it
	MeanTime             time.Duration // what a batch takes on average; rates are computed with it
	TransferTime         time.Duration // transfer of the cut after it
	Rate                 float64       // requests/s of one replica, or of one device on a time-shared pool
	Memory               int64         // bytes of one replica
}

// Key returns a text that differs between all templates of a problem: model and batch size, then blocks, pool and share
// of each stage. It serves as the key of maps.
func (t *Template) Key() string {
	buf := make([]byte, 0, 64)
	buf = fmt.Appendf(buf, "%d:%d", t.Model, t.Batch)
	for i := range t.Stages {
		s := &t.Stages[i]
		buf = fmt.Appendf(buf, "/%d-%d,%d,%d", s.FirstBlock, s.EndBlock, s.Pool, s.Share)
	}
	return string(buf)
}

// DevicesPerRPS returns how many devices of pool k a rate of one request per second through the template occupies,
// in fractions, if its replicas are always busy.
func (t *Template) DevicesPerRPS(k int) float64 {
	sum := 0.0
	for i := range t.Stages {
		if s := &t.Stages[i]; s.Pool == k {
			sum += 1 / (float64(s.Share) * s.Rate)
		}
	}
	return sum
}

// StageRate returns the requests/s that one replica of stage i of a template sustains: the rate of its mean execution
// time, but at most the rate at which its tensors come in from the stage before and go out to the next over the
// network card of its node. All replicas that the node's devices can hold have equal parts of the card, in each
// direction.
func (p *Problem) StageRate(t *Template, i int) float64 {
	s, cuts := &t.Stages[i], p.Models[t.Model].CutBytes
	rate := 1e9 * float64(t.Batch) / float64(s.MeanTime)
	pool := &p.Pools[s.Pool]
	if pool.Gbps <= 0 {
		return rate
	}

	// limitByNIC lowers the rate to what the NIC passes of the cut between pools a and b.
	limitByNIC := func(a, b, endBlock int) {
		micros := SampleMicros(cuts[endBlock-1], LinkGbps(&p.Pools[a], &p.Pools[b]))
		if micros > 0 {
			rate = min(rate, 1e6/micros/float64(s.Share*pool.PerNode))
		}
	}
	if i > 0 {
		limitByNIC(t.Stages[i-1].Pool, s.Pool, s.FirstBlock)
	}
	if i+1 < len(t.Stages) {
		limitByNIC(s.Pool, t.Stages[i+1].Pool, s.EndBlock)
	}
	return rate
}
