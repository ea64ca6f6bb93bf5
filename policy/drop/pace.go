package drop

import "time"

// moduleSpeed holds the ratio of measured to planned batch times of a module. A machine that others use, too, is slower
// than its profile. Estimates are corrected once per second.
type pace struct {
	factor       float64
	planned, ran time.Duration // planned and measured time of the batches that ended in this second
}

// Bounds of the ratio, and how far one second moves it.
const (
	slowest, fastest = 16., .25
	learnt           = .5
)

// updateFactor takes the measurements of a second into account. It returns false if there were none.
func (p *pace) tick() bool {
	if p.planned <= 0 {
		return false
	}
	now := min(max(float64(p.ran)/float64(p.planned), fastest), slowest)
	p.factor += learnt * (now - p.factor)
	p.planned, p.ran = 0, 0
	return true
}

// recordBatchTime records the time of a worker's batch that ends now.
func (f *fleet) ended(now time.Duration, w *worker) {
	if f.paces != nil && len(w.current) > 0 {
		p := &f.paces[w.module]
		p.planned += w.planned[len(w.current)-1]
		p.ran += now - w.began
	}
}

// updateBatchTimes sets the batch times of all workers to what was measured lately.
func (f *fleet) retime(s *planner) {
	for m := range f.paces {
		if !f.paces[m].tick() {
			continue
		}
		by := f.paces[m].factor
		s.runs[m], s.one[m] = 0, 0
		for i, id := range f.modules[m].workers {
			w := &f.workers[id]
			w.take(by)
			s.runs[m] = max(s.runs[m], w.full)
			if i == 0 || w.infer[0] < s.one[m] {
				s.one[m] = w.infer[0]
			}
		}
		f.enlist(int32(m))
	}
}

// scaleTimes sets a worker's batch times to a factor times the planned ones.
func (w *worker) take(by float64) {
	if &w.infer[0] == &w.planned[0] {
		w.infer = make([]time.Duration, len(w.planned))
	}
	for i, d := range w.planned {
		w.infer[i] = time.Duration(by * float64(d))
	}
	w.full = w.infer[w.batch-1]
	w.every = between(w.full, w.part)
	w.proof.void()
}
