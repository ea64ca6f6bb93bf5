package drop

import "time"

// pace is how long the batches of a module really take, over what the plan says:
// a machine that others use, too, is slower than its profile. Estimates are put
// right by it once per second.
type pace struct {
	factor       float64
	planned, ran time.Duration // of the batches that ended in this second
}

// Bounds of what is believed, and how far one second moves it.
const (
	slowest, fastest = 16., .25
	learnt           = .5
)

// tick takes in a second; false: nothing changes.
func (p *pace) tick() bool {
	if p.planned <= 0 {
		return false
	}
	now := min(max(float64(p.ran)/float64(p.planned), fastest), slowest)
	p.factor += learnt * (now - p.factor)
	p.planned, p.ran = 0, 0
	return true
}

// ended notes a batch of a worker that ends now.
func (f *fleet) ended(now time.Duration, w *worker) {
	if f.paces != nil && len(w.current) > 0 {
		p := &f.paces[w.module]
		p.planned += w.planned[len(w.current)-1]
		p.ran += now - w.began
	}
}

// retime has the workers of all modules take as long as they lately did.
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

// take sets the times of a worker's batches to so many times the planned ones.
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
