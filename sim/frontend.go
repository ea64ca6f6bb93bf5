package sim

import "time"

// maxSavedRunTime is the period over which the time of runs on the front end is limited: in a burst they may take what
// they left unused of their share of the last second.
const maxSavedRunTime = time.Second

// frontEnd is the process that takes requests in, one after another. Each occupies it for requestTime. Runs on CPUs of
// its machine occupy a part of it while they last, so that the requests that wait pass it later.
//
// All runs together take no more than the share maxRunShare of the time. What they leave unused of it is saved for later
// runs, up to maxRunShare * maxSavedRunTime.
type frontEnd struct {
	requestTime time.Duration
	perRun      []float64 // by device: the part of the front end that a run there occupies; nil if none does
	maxRunShare float64   // share of the front end's time that all runs together may take

	freeAt       time.Duration // when it has taken in all requests that passed it
	occupiedTime time.Duration // for how long requests and runs have occupied it
	isRunning    []bool        // by device: whether a run occupies it
	runningShare float64       // part of the front end that the present runs occupy
	runTime      float64       // ns that runs have occupied it since the last request passed, up to countedAt
	countedAt    time.Duration
	savedRunTime float64 // ns that runs may still occupy it, at savedAt
	savedAt      time.Duration
}

// newFrontEnd returns the idle front end of a run.
func newFrontEnd(cfg *Config) frontEnd {
	return frontEnd{requestTime: cfg.FrontEnd, perRun: cfg.FrontEndRuns, maxRunShare: cfg.FrontEndRunShare, isRunning: make([]bool, len(cfg.FrontEndRuns)), savedRunTime: cfg.FrontEndRunShare * float64(maxSavedRunTime)}
}

// startRun notes that a run begins on a device now, which occupies its part of the front end until endRun.
func (f *frontEnd) startRun(now time.Duration, deviceIndex int32) {
	if f.perRun != nil {
		f.countRuns(now)
		f.runningShare += f.perRun[deviceIndex]
		f.isRunning[deviceIndex] = true
	}
}

// endRun notes that the run on a device has ended now, or is lost. If none occupies the front end, nothing happens.
func (f *frontEnd) endRun(now time.Duration, deviceIndex int32) {
	if f.perRun != nil && f.isRunning[deviceIndex] {
		f.countRuns(now)
		f.runningShare -= f.perRun[deviceIndex]
		f.isRunning[deviceIndex] = false
	}
}

// countRuns adds to runTime, in nanoseconds, how long the present runs have occupied the front end since countedAt: the
// time that has passed, times the part of the front end that they occupy.
func (f *frontEnd) countRuns(now time.Duration) {
	f.runTime += f.runningShare * float64(now-f.countedAt)
	f.countedAt = now
}

// passRequest is called for the next request, which reaches the front end at arrivedAt (not before now). It returns when
// the request has passed the front end and reaches the policy: at arrivedAt or, if that is later, when the front end is
// free (freeAt). The request then occupies it for requestTime. Runs since the last request have delayed freeAt.
func (f *frontEnd) passRequest(now, arrivedAt time.Duration) time.Duration {
	if f.requestTime == 0 && f.perRun == nil {
		return arrivedAt
	}

	// Charge the time of the runs since the last request, as far as their share allows it:
	//
	//	availableTime = min(savedRunTime + maxRunShare * time since savedAt, maxRunShare * maxSavedRunTime)
	//
	// in nanoseconds. What is not charged is forgotten.
	f.countRuns(now)
	availableTime := min(f.savedRunTime+f.maxRunShare*float64(now-f.savedAt), f.maxRunShare*float64(maxSavedRunTime))
	chargedTime := min(f.runTime, availableTime)
	f.runTime, f.savedRunTime, f.savedAt = 0, availableTime-chargedTime, now
	f.freeAt += time.Duration(chargedTime)

	// Let the request pass when the front end is free.
	arrivedAt = max(arrivedAt, f.freeAt)
	f.freeAt = arrivedAt + f.requestTime
	f.occupiedTime += time.Duration(chargedTime) + f.requestTime
	return arrivedAt
}
