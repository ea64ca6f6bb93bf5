package sim

import "time"

// maxSavedRunTime is for how long the front end saves up the time that runs may occupy it: bursts of a second are
// charged as long as the devices catch up.
const maxSavedRunTime = time.Second

// frontEnd is the process that takes requests in, one after another. Each occupies it for requestTime. Runs on CPUs of
// its machine occupy a part of it while they last, so that the requests that wait pass it later.
//
// All runs together take no more than the share maxRunShare of the time. Time of that share that no run took is saved for later ones, up to the share of maxSavedRunTime.
type frontEnd struct {
	requestTime time.Duration
	perRun      []float64 // by device: the part of the front end that a run there occupies; nil if none does
	maxRunShare float64

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

// startRun counts the run that begins on a device now, and endRun the one that ends there or is lost.
func (f *frontEnd) startRun(now time.Duration, deviceIndex int32) {
	if f.perRun != nil {
		f.countRuns(now)
		f.runningShare += f.perRun[deviceIndex]
		f.isRunning[deviceIndex] = true
	}
}

func (f *frontEnd) endRun(now time.Duration, deviceIndex int32) {
	if f.perRun != nil && f.isRunning[deviceIndex] {
		f.countRuns(now)
		f.runningShare -= f.perRun[deviceIndex]
		f.isRunning[deviceIndex] = false
	}
}

// countRuns adds to runTime how long the present runs have occupied the front end until now.
func (f *frontEnd) countRuns(now time.Duration) {
	f.runTime += f.runningShare * float64(now-f.countedAt)
	f.countedAt = now
}

// passRequest returns when a request reaches the policy that reaches the front end at arrivedAt, now or later: then, or
// when the front end has taken in the requests before it.
func (f *frontEnd) passRequest(now, arrivedAt time.Duration) time.Duration {
	if f.requestTime == 0 && f.perRun == nil {
		return arrivedAt
	}

	// The runs since the last request have delayed what the front end does, if their share allows it.
	f.countRuns(now)
	availableTime := min(f.savedRunTime+f.maxRunShare*float64(now-f.savedAt), f.maxRunShare*float64(maxSavedRunTime))
	chargedTime := min(f.runTime, availableTime)
	f.runTime, f.savedRunTime, f.savedAt = 0, availableTime-chargedTime, now
	f.freeAt += time.Duration(chargedTime)

	arrivedAt = max(arrivedAt, f.freeAt)
	f.freeAt = arrivedAt + f.requestTime
	f.occupiedTime += time.Duration(chargedTime) + f.requestTime
	return arrivedAt
}
