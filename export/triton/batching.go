package triton

import (
	"math"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/triton/configpb"
)

// dynamicBatching returns how the queue of a part of v forms batches: up to the planned size, within the time that the
// SLO leaves. Requests that waited so long that even an immediate batch misses the SLO are refused. isPool says that
// the pipelines have the whole SLO for themselves, and do not share it with other models. share is the part of the rate
// that comes to the queue.
func (v *variant) dynamicBatching(isPool bool, share float64) *configpb.ModelDynamicBatching {
	var wait, timeout time.Duration
	for i, p := range v.pipelines {
		pipelineWait, pipelineTimeout := v.waits(p, share)
		if i == 0 || pipelineTimeout < timeout {
			timeout = pipelineTimeout
		}
		if i == 0 || pipelineWait < wait {
			wait = pipelineWait
		}
	}
	b := &configpb.ModelDynamicBatching{}
	if v.promise.SLOUS > 0 { // 0: no request asks for the model by itself, or through an application
		// Clients may ask for less with the parameter timeout of a request. 0 would stand for no timeout.
		b.DefaultQueuePolicy = &configpb.ModelQueuePolicy{
			TimeoutAction: configpb.ModelQueuePolicy_REJECT, DefaultTimeoutMicroseconds: uint64(max(timeout.Microseconds(), 1)), AllowTimeoutOverride: true,
		}
	}
	if v.batch > 1 {
		b.PreferredBatchSize = []int32{int32(v.batch)}
		if isPool {
			b.MaxQueueDelayMicroseconds = uint64(wait.Microseconds())
		}
	}
	return b
}

// waits returns how long requests may wait, at each stage of a pipeline, until a batch is full, and how long they may
// wait in a queue at all. share is the part of the rate that comes to the queue.
//
// The SLO is for the batch (latency), for the batch that occupies a replica when it is formed (at most the longest
// stage), and for the waits until batches are full. What is left for these is divided among the stages. At the planned
// rate of the host a batch of b requests is full after (b-1)/rate, so that longer waits are for times of fewer requests: there they
// would only delay answers.
func (v *variant) waits(p *formats.Pipeline, share float64) (untilFull, inQueue time.Duration) {
	longest := document.Micros(0)
	for i := range p.Stages {
		longest = max(longest, p.Stages[i].InferUS[p.Batch-1])
	}
	inQueue = (v.promise.SLOUS - p.LatencyUS).D()
	left := max(0, inQueue-longest.D()) / time.Duration(len(p.Stages))
	filled := time.Duration(math.MaxInt64)
	if rate := v.rate() * share; rate > 0 {
		filled = time.Duration(float64(p.Batch-1) / rate * float64(time.Second))
	}
	return min(left, filled), inQueue
}

// rate returns the planned requests per second of a variant.
func (v *variant) rate() (rps float64) {
	for _, p := range v.pipelines {
		rps += p.RPS
	}
	return rps
}
