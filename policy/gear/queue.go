package gear

import (
	"math/bits"
	"slices"
	"time"

	"inferplan/policy"
)

// enqueue is called when a request arrives, goes on to its next model, or has lost its batch or queue with a device. It
// puts the request into the queue of its stage, on the replica whose turn it is (smooth weighted round robin), and
// returns the replica's first device. If every replica is lost, the request skips the stage. If no stage is left, it is
// completed with the answer that it has, or dropped, and enqueue returns noIndex.
func (p *Policy) enqueue(now time.Duration, requestSlot int32, out *policy.Actions) int32 {
	request := &p.requests[requestSlot]

	// Find the first stage from here on with a replica that is not lost.
	for {
		stage := &p.gearStages[p.firstStage[request.gear]+request.stage]
		if replica := p.nextReplica(stage); replica >= 0 {
			p.pushRequest(now, requestSlot, stage.chains[replica])
			if p.refusals != nil {
				p.refusals.addWaiting(request, p.firstStage[request.gear]+request.stage)
			}
			return p.fleet.firstDevice(stage.chains[replica])
		}
		if stage.isLast {
			break
		}
		request.stage++
	}

	// No stage is left. noIndex says that no device got the request.
	if request.hasAnswer {
		p.completeRequest(requestSlot, out)
	} else {
		p.dropRequest(requestSlot, policy.ReasonWorkerLost, out)
	}
	return noIndex
}

// nextReplica returns the replica whose turn it is at a stage of a gear, as an index in stage.chains, and counts the turn
// in currentWeights. Each replica gets its share of the requests, evenly spread (smooth weighted round robin). If every
// replica is lost, it returns -1.
func (p *Policy) nextReplica(stage *gearStage) int {
	weights := stage.weights
	if len(weights) == 1 && weights[0] > 0 && p.lostDevices == 0 {
		return 0 // a single replica
	}

	// Every replica that works gains its share, and the one with the highest current weight is chosen and loses the sum of
	// the shares. So each is chosen as often as its share says.
	current := p.currentWeights[stage.weightIndex:][:len(weights)]
	bestReplica, highestWeight, total := -1, 0.0, 0.0
	for replica, share := range weights {
		if share <= 0 || p.lostDevices > 0 && p.fleet.chains[stage.chains[replica]].lostDevices > 0 {
			continue
		}
		weight := current[replica] + share
		current[replica] = weight
		total += share
		if bestReplica < 0 || weight > highestWeight {
			bestReplica, highestWeight = replica, weight
		}
	}
	if bestReplica >= 0 {
		current[bestReplica] -= total
		return bestReplica
	}

	// Only replicas without a share are left: take the first that works.
	for replica, chain := range stage.chains {
		if p.fleet.chains[chain].lostDevices == 0 {
			return replica
		}
	}
	return -1
}

// pushRequest appends a request to the queue of a chain, and notes that the first device of the chain has a queue to serve.
func (p *Policy) pushRequest(now time.Duration, requestSlot, chain int32) {
	queue, request := &p.fleet.queues[chain], &p.requests[requestSlot]
	request.queue, request.enqueuedAt = chain, now
	p.fleet.queueLinks.Append(queue, requestSlot)
	device := p.fleet.firstDevice(chain)
	p.fleet.devicesWithQueue[device/64] |= 1 << (device % 64)
}

// removeFromQueue removes a request from its queue, when it enters a batch, its client has gone away or its chain is
// lost.
func (p *Policy) removeFromQueue(requestSlot int32) {
	request := &p.requests[requestSlot]
	p.fleet.queueLinks.Remove(&p.fleet.queues[request.queue], requestSlot)
	request.queue = noIndex
}

// serveIdle is called after an event that may have freed a device or made a queue ready. It serves all idle devices for
// which requests may wait. devicesWithQueue is a set of bits, 64 devices in a word; a device for which no request waits
// is taken out of it here.
func (p *Policy) serveIdle(now time.Duration, out *policy.Actions) {
	for word, set := range p.fleet.devicesWithQueue {
		for ; set != 0; set &= set - 1 { // clears the lowest bit, whose device was served
			device := int32(64*word + bits.TrailingZeros64(set))
			switch deviceRow := &p.fleet.devices[device]; {
			case !slices.ContainsFunc(deviceRow.startingChains, func(chain int32) bool { return p.fleet.queues[chain].Len > 0 }):
				p.fleet.devicesWithQueue[word] &^= 1 << (device % 64)
			case deviceRow.activeBatches == 0 && !deviceRow.isLost:
				p.serveDevice(now, device, out)
			}
		}
	}
}

// serveDevice gives an idle device the first of its ready queues (see comesFirst). A queue is ready if it is long
// enough for the gear or its head has waited for the flush time. If none is, a timer is set for the first flush. A
// chain (the devices of a replica) that is full of batches waits until one has gone through. The device must be idle.
func (p *Policy) serveDevice(now time.Duration, device int32, out *policy.Actions) {
	bestChain, nextFlush := noIndex, time.Duration(-1)

	// Find the queue to serve, and when the next one is flushed.
	for _, chain := range p.fleet.devices[device].startingChains {
		queue, chainRow := &p.fleet.queues[chain], &p.fleet.chains[chain]
		if queue.Len == 0 || chainRow.activeBatches == chainRow.maxBatches || chainRow.lostDevices > 0 {
			continue
		}
		if due := p.requests[queue.First].enqueuedAt + p.options.Flush; queue.Len < p.minQueue[chainRow.pipeline] && due > now {
			if nextFlush < 0 || due < nextFlush {
				nextFlush = due
			}
		} else if bestChain == noIndex || p.comesFirst(chain, bestChain) {
			bestChain = chain
		}
	}

	// Send a batch, or set the timer for the next flush, unless it is set for an earlier one.
	if bestChain != noIndex {
		p.dispatch(now, bestChain, out)
	} else if nextFlush >= 0 && (p.flushAt < 0 || nextFlush < p.flushAt) {
		p.flushAt = nextFlush
		out.List = append(out.List, policy.Action{Kind: policy.Wake, Tag: flushTag, At: nextFlush})
	}
}

// comesFirst reports whether an idle device serves the queue of a chain before that of another. Usually that is the
// longer one, so that expensive models collect batches.
//
// While requests are refused, that rule would starve later models of a cascade. All requests go to the first model, so
// its queue is as long as the SLO allows. Only a part of them goes on to a later model, and there the oldest would be
// late before the queue becomes longer than that of the first. So a queue that fills a batch then comes before one that
// does not, and of two that fill one, the one whose head arrived earlier. Of two that do not, the longer one still
// comes first.
func (p *Policy) comesFirst(chain, otherChain int32) bool {
	queue, otherQueue := &p.fleet.queues[chain], &p.fleet.queues[otherChain]
	if p.refusals == nil || !p.refusals.isRefusing() {
		return queue.Len > otherQueue.Len
	}
	fillsBatch := queue.Len >= p.fleet.tables.Pipelines[p.fleet.chains[chain].pipeline].Batch
	otherFillsBatch := otherQueue.Len >= p.fleet.tables.Pipelines[p.fleet.chains[otherChain].pipeline].Batch
	switch {
	case fillsBatch != otherFillsBatch:
		return fillsBatch
	case fillsBatch:
		return p.requests[queue.First].arrivedAt < p.requests[otherQueue.First].arrivedAt
	}
	return queue.Len > otherQueue.Len
}
