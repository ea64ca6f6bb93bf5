package drop

import "time"

// moduleSpeed holds the ratio of measured to planned batch times of a module. A machine that others use, too, is slower
// than its profile. Estimates are corrected once per second.
type moduleSpeed struct {
	factor                  float64
	plannedTime, actualTime time.Duration // planned and measured time of the batches that ended in this second
}

// Bounds of the ratio, and how far one second moves it.
const (
	maxFactor, minFactor = 16., .25
	learningRate         = .5
)

// updateFactor takes the batch times measured in a second into account: the factor (measured over planned) moves
// towards them by learningRate. It returns false if there were none.
func (p *moduleSpeed) updateFactor() bool {
	if p.plannedTime <= 0 {
		return false
	}
	latest := min(max(float64(p.actualTime)/float64(p.plannedTime), minFactor), maxFactor)
	p.factor += learningRate * (latest - p.factor)
	p.plannedTime, p.actualTime = 0, 0
	return true
}

// recordBatchTime records the time of a worker's batch that ends now.
func (f *workerFleet) recordBatchTime(now time.Duration, w *worker) {
	if f.speeds != nil && len(w.runningBatch) > 0 {
		p := &f.speeds[w.module]
		p.plannedTime += w.plannedTimes[len(w.runningBatch)-1]
		p.actualTime += now - w.startedAt
	}
}

// updateBatchTimes sets, once per second, the batch times of all workers to the planned ones times the factor that
// was measured for their module.
func (f *workerFleet) updateBatchTimes(s *planner) {
	for m := range f.speeds {
		if !f.speeds[m].updateFactor() {
			continue
		}
		factor := f.speeds[m].factor
		s.batchTimes[m], s.soloTimes[m] = 0, 0
		for i, id := range f.modules[m].workers {
			w := &f.workers[id]
			w.scaleTimes(factor)
			s.batchTimes[m] = max(s.batchTimes[m], w.fullBatchTime)
			if i == 0 || w.batchTimes[0] < s.soloTimes[m] {
				s.soloTimes[m] = w.batchTimes[0]
			}
		}
		f.refreshLive(int32(m))
	}
}

// scaleTimes sets a worker's batch times to a factor times the planned ones.
func (w *worker) scaleTimes(factor float64) {
	if &w.batchTimes[0] == &w.plannedTimes[0] {
		w.batchTimes = make([]time.Duration, len(w.plannedTimes))
	}
	for i, d := range w.plannedTimes {
		w.batchTimes[i] = time.Duration(factor * float64(d))
	}
	w.fullBatchTime = w.batchTimes[w.plannedBatch-1]
	w.batchInterval = batchInterval(w.fullBatchTime, w.deviceShare)
	w.proof.invalidate()
}
