package sim

import (
	"fmt"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/policy"
)

// verifyDispatch checks a dispatch of the policy, in runs that verify: its size, stages, devices and reserved times
// must fit the plan, and its tasks must wait for these stages. It returns an error that says what is wrong. It
// marks the tasks, so that one listed twice is found.
func verifyDispatch(l *loop, a *policy.Action, tasks []int32, hops []policy.Hop) error {
	b := l.batches.at(a.Batch)
	pl := &l.tables.Pipelines[a.Pipeline]
	switch {
	case b.live:
		return fmt.Errorf("the policy dispatches batch slot %d, which is under way", a.Batch)
	case a.Size < 1 || a.Size > pl.Batch || len(tasks) != int(a.Size):
		return fmt.Errorf("the policy dispatches a batch of %d, expected 1 to %d", a.Size, pl.Batch)
	case a.Model >= 0 && pl.Model != a.Model || len(hops) == 0:
		return fmt.Errorf("the policy dispatches a batch of model %d along %d hops of pipeline %d, which is of model %d", a.Model, len(hops), a.Pipeline, pl.Model)
	}

	// The stages must be consecutive stages of the pipeline.
	firstStage := hops[0].Stage
	if firstStage < pl.FirstStage || firstStage+int32(len(hops)) > pl.FirstStage+pl.NumStages {
		return fmt.Errorf("the policy dispatches a batch to %d stages from %d on, pipeline %d has those from %d to %d", len(hops), firstStage, a.Pipeline, pl.FirstStage, pl.FirstStage+pl.NumStages-1)
	}

	// The tasks must wait for these stages.
	previousStage := int32(-1)
	if firstStage > pl.FirstStage {
		previousStage = firstStage - 1
	}
	for _, t := range tasks {
		if t < 0 || int(t) >= len(l.ledger.tasks.List) || !mayRun(l, t, pl.Service, previousStage) || a.Model >= 0 && l.ledger.requests[l.ledger.tasks.List[t].Req].model != a.Model {
			return fmt.Errorf("the policy dispatches task slot %d of model %d to stage %d, which is not a waiting task of it that left stage %d", t, a.Model, firstStage, previousStage)
		}
		l.ledger.tasks.List[t].State = policy.TaskBatched // so that the same task twice is seen
	}

	// The reservations of the hops must follow one another.
	end := l.agenda.now
	for h := range hops {
		hop := &hops[h]
		if hop.Stage != firstStage+int32(h) || !onStage(l.tables, hop) {
			return fmt.Errorf("hop %d of pipeline %d goes to device %d of stage %d, which is not on it", h, a.Pipeline, hop.Device, hop.Stage)
		}
		if hop.XferStart < end || hop.XferEnd < hop.XferStart || hop.Start < hop.XferEnd || hop.End <= hop.Start {
			return fmt.Errorf("hop %d of pipeline %d is reserved out of order: from %v, transfer %v to %v, run %v to %v", h, a.Pipeline, end, hop.XferStart, hop.XferEnd, hop.Start, hop.End)
		}
		end = hop.End
	}
	return nil
}

// mayRun reports whether a task waits for a service, has left previousStage last, and has
// all of its inputs.
func mayRun(l *loop, t, service, previousStage int32) bool {
	k := &l.ledger.tasks.List[t]
	return k.State == policy.TaskWaiting && l.ledger.requests[k.Req].state == requestOpen && k.Service == service && l.ledger.locations[t].lastStage == previousStage && l.ledger.tasks.InputsReady(t)
}

// onStage reports whether the device of a hop belongs to its stage.
func onStage(t *policy.Tables, hop *policy.Hop) bool {
	for _, d := range t.DevicesOf(hop.Stage) {
		if d == hop.Device {
			return true
		}
	}
	return false
}

// closeRun ends the run: it checks that no request is lost, adds the use of devices to the report, and closes the
// trace.
func (l *loop) closeRun() error {
	if open := l.ledger.openRequests(); open > 0 {
		return fmt.Errorf("%d requests were neither answered nor dropped when nothing was left to happen", open)
	}
	if l.cfg.Verify {
		if err := verifyEnd(l); err != nil {
			return err
		}
	}
	l.ledger.acc.AddEvents(l.events)
	addDeviceUse(l)
	return l.trace.close()
}

// verifyEnd is called at the end of a run that verifies. It returns an error if a batch or a task is still under
// way, because then the policy or the simulator has forgotten it.
func verifyEnd(l *loop) error {
	for slot := range l.batches.list {
		if l.batches.at(int32(slot)).live {
			return fmt.Errorf("batch slot %d is still under way when nothing is left to happen", slot)
		}
	}
	for _, h := range l.hosts {
		if err := h.checkIdle(); err != nil {
			return err
		}
	}
	if l.flow != nil {
		return l.flow.checkIdle()
	}
	return nil
}

// addDeviceUse adds to the report how long the devices of each kind ran, loaded and idled in the counted time. A
// device that is a share 1/v of a physical one counts as 1/v.
func addDeviceUse(l *loop) {
	span := l.cfg.Duration
	if span == 0 {
		span = l.agenda.now
	}
	span = max(0, span-l.cfg.Warmup)

	// Sum the times of the devices of a kind, and report the rest as idle.
	for kind, name := range l.tables.Kinds {
		busy, loads := 0.0, 0.0
		for d := range l.tables.Devices {
			if l.tables.Devices[d].Kind == int32(kind) {
				h, deviceShare := l.hosts[l.hostByDevice[d]], l.tables.PhysicalDevices(int32(d))
				busy += float64(h.busyTime(int32(d))) * deviceShare
				if s, ok := h.(*llmHost); ok {
					loads += float64(s.loadTime(int32(d))) * deviceShare
				}
			}
		}
		count := int64(l.tables.KindCounts[kind])
		running, loading := document.Micros(busy), document.Micros(loads)
		l.ledger.acc.AddDevice(formats.DeviceReport{
			Device: name, Count: int(count), RunningUS: running, LoadingUS: loading, IdleUS: max(0, document.Micros(int64(span)*count)-running-loading),
		})
	}
}

// buildResult returns the result of a run that has ended: its counts, the report unless it is not wanted, and the
// figures of the kind of plan.
func (l *loop) buildResult() *Result {
	transfers := l.baseHost.links.transferTimes
	res := &Result{Events: l.events, DispatchedBatches: l.batches.dispatchedBatches, Transfers: transfers.summary(), transferTimes: transfers, acc: l.ledger.acc}
	if p, ok := policy.FindExtension[policy.Prober](l.cfg.Policy); ok {
		res.Probes = p.Probes()
	}
	if !l.cfg.NoReport {
		res.Report = l.ledger.acc.Build()
		res.addDispatchFigures()
	}
	l.ending.addResult(res)
	return res
}
