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

// updateFactor takes the batch times of a module that were measured in the last second into account: the factor
// (measured over planned time) moves towards theirs by learningRate, within minFactor and maxFactor. It then forgets
// them. It returns false if there were none.
func (speed *moduleSpeed) updateFactor() bool {
	if speed.plannedTime <= 0 {
		return false
	}
	measuredFactor := min(max(float64(speed.actualTime)/float64(speed.plannedTime), minFactor), maxFactor)
	speed.factor += learningRate * (measuredFactor - speed.factor)
	speed.plannedTime, speed.actualTime = 0, 0
	return true
}

// recordBatchTime adds the planned and the measured time of a worker's batch that ends now to those of its module, if
// speeds are learnt.
func (f *workerFleet) recordBatchTime(now time.Duration, worker *worker) {
	if f.speeds != nil && len(worker.runningBatch) > 0 {
		speed := &f.speeds[worker.module]
		speed.plannedTime += worker.plannedTimes[len(worker.runningBatch)-1]
		speed.actualTime += now - worker.startedAt
	}
}

// updateBatchTimes sets, once per second, the batch times of the workers of each module with new measurements to the
// planned ones times the module's factor. The planner gets the longest time of a full batch, and the shortest of a batch
// of one. Without learning (no speeds) it does nothing.
func (f *workerFleet) updateBatchTimes(planner *planner) {
	for module := range f.speeds {
		if !f.speeds[module].updateFactor() {
			continue
		}

		// Scale the times of the module's workers, and take their extremes for the planner.
		for _, id := range f.modules[module].workers {
			f.workers[id].scaleTimes(f.speeds[module].factor)
		}
		planner.batchTimes[module], planner.soloTimes[module] = f.batchTimesOf(module)
		f.updateLiveWorkers(int32(module))
	}
}

// batchTimesOf returns the longest time of a full batch and the shortest of a batch of one, over the workers of a module.
func (f *workerFleet) batchTimesOf(module int) (longestFull, shortestSolo time.Duration) {
	for i, id := range f.modules[module].workers {
		worker := &f.workers[id]
		longestFull = max(longestFull, worker.fullBatchTime)
		if i == 0 || worker.batchTimes[0] < shortestSolo {
			shortestSolo = worker.batchTimes[0]
		}
	}
	return longestFull, shortestSolo
}

// scaleTimes sets the expected times of a worker's batches to a factor times the planned ones. Workers share the planned
// times, so the first call makes a list of the worker's own. Proofs that its queue can be served are void.
func (worker *worker) scaleTimes(factor float64) {
	if &worker.batchTimes[0] == &worker.plannedTimes[0] {
		worker.batchTimes = make([]time.Duration, len(worker.plannedTimes))
	}
	for sizeIndex, plannedTime := range worker.plannedTimes {
		worker.batchTimes[sizeIndex] = time.Duration(factor * float64(plannedTime))
	}
	worker.fullBatchTime = worker.batchTimes[worker.plannedBatch-1]
	worker.batchInterval = batchInterval(worker.fullBatchTime, worker.deviceShare)
	worker.proof.invalidate()
}
