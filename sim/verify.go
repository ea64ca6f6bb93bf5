package sim

import (
	"fmt"
	"slices"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/policy"
)

// verifyDispatch checks the policy's dispatch of tasks along hops (stages on devices), in runs that verify: its size,
// stages, devices and reserved times must fit the plan, and its tasks must wait for these stages. It returns an error
// that says what is wrong. It also sets the state of the tasks to batched, so that one listed twice is found. An
// action's model of -1 means that several models may use the pipeline.
func verifyDispatch(loop *loop, action *policy.Action, tasks []int32, hops []policy.Hop) error {
	batch := loop.batches.at(action.Batch)
	pipeline := &loop.tables.Pipelines[action.Pipeline]
	switch {
	case batch.isLive:
		return fmt.Errorf("the policy dispatches batch slot %d, which is under way", action.Batch)
	case action.Size < 1 || action.Size > pipeline.Batch || len(tasks) != int(action.Size):
		return fmt.Errorf("the policy dispatches a batch of %d, expected 1 to %d", action.Size, pipeline.Batch)
	case action.Model >= 0 && pipeline.Model != action.Model || len(hops) == 0:
		return fmt.Errorf("the policy dispatches a batch of model %d along %d hops of pipeline %d, which is of model %d", action.Model, len(hops), action.Pipeline, pipeline.Model)
	}

	// The stages must be consecutive stages of the pipeline.
	firstStage := hops[0].Stage
	if firstStage < pipeline.FirstStage || firstStage+int32(len(hops)) > pipeline.FirstStage+pipeline.NumStages {
		return fmt.Errorf("the policy dispatches a batch to %d stages from %d on, pipeline %d has those from %d to %d", len(hops), firstStage, action.Pipeline, pipeline.FirstStage, pipeline.FirstStage+pipeline.NumStages-1)
	}

	// The tasks must wait for these stages: their last one is the stage before, or -1 if they have run none.
	previousStage := int32(-1)
	if firstStage > pipeline.FirstStage {
		previousStage = firstStage - 1
	}
	for _, task := range tasks {
		if !mayRun(loop, task, pipeline.Service, action.Model, previousStage) {
			return fmt.Errorf("the policy dispatches task slot %d of model %d to stage %d, which is not a waiting task of it that left stage %d", task, action.Model, firstStage, previousStage)
		}
		loop.ledger.tasks.List[task].State = policy.TaskBatched // so that the same task twice is seen
	}

	// The reservations of the hops must follow one another: of each, the transfer and then the run, not before the end of
	// the hop before. Instances of language models take a request when their batch has room, so a policy may dispatch to
	// them without a reservation: then the end of the hop is 0.
	previousEnd := loop.agenda.now
	for hopIndex := range hops {
		hop := &hops[hopIndex]
		if hop.Stage != firstStage+int32(hopIndex) || !onStage(loop.tables, hop) {
			return fmt.Errorf("hop %d of pipeline %d goes to device %d of stage %d, which is not on it", hopIndex, action.Pipeline, hop.Device, hop.Stage)
		}
		if loop.hostByDevice[hop.Device] != stageHost && hop.End == 0 {
			continue
		}
		if hop.XferStart < previousEnd || hop.XferEnd < hop.XferStart || hop.Start < hop.XferEnd || hop.End <= hop.Start {
			return fmt.Errorf("hop %d of pipeline %d is reserved out of order: from %v, transfer %v to %v, run %v to %v", hopIndex, action.Pipeline, previousEnd, hop.XferStart, hop.XferEnd, hop.Start, hop.End)
		}
		previousEnd = hop.End
	}
	return nil
}

// mayRun reports whether a task slot may be in a batch of a service that is dispatched to the stage behind
// previousStage: the task waits for the service, previousStage is the stage that it has left last (-1 if it has run
// none), its inputs are ready, and its request is open and, unless model is -1, of that model.
func mayRun(loop *loop, task, service, model, previousStage int32) bool {
	if task < 0 || int(task) >= len(loop.ledger.tasks.List) {
		return false
	}
	state := &loop.ledger.tasks.List[task]
	request := &loop.ledger.requests[state.Req]
	switch {
	case state.State != policy.TaskWaiting || state.Service != service || loop.ledger.locations[task].lastStage != previousStage:
		return false
	case request.state != requestOpen || model >= 0 && request.model != model:
		return false
	}
	return loop.ledger.tasks.InputsReady(task)
}

// onStage reports whether the device of a hop is one of those on which the plan runs the hop's stage.
func onStage(tables *policy.Tables, hop *policy.Hop) bool {
	for _, deviceIndex := range tables.DevicesOf(hop.Stage) {
		if deviceIndex == hop.Device {
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
	l.ledger.reportCounts.AddEvents(l.events)
	addDeviceUse(l)
	return l.trace.close()
}

// verifyEnd is called at the end of a run that verifies. It returns an error if a batch or a task is still under
// way, because then the policy or the simulator has forgotten it.
func verifyEnd(loop *loop) error {
	for batchSlot := range loop.batches.list {
		if loop.batches.at(int32(batchSlot)).isLive {
			return fmt.Errorf("batch slot %d is still under way when nothing is left to happen", batchSlot)
		}
	}
	for _, host := range loop.hosts {
		if err := host.checkIdle(); err != nil {
			return err
		}
	}
	if loop.flow != nil {
		return loop.flow.checkIdle()
	}
	return nil
}

// addDeviceUse adds to the report how long the devices of each kind ran, loaded and idled in the counted time. A
// device that is a share 1/v of a physical one counts as 1/v.
func addDeviceUse(loop *loop) {
	countedTime := loop.cfg.Duration
	if countedTime == 0 {
		countedTime = loop.agenda.now
	}
	countedTime = max(0, countedTime-loop.cfg.Warmup)

	// Sum the times of the devices of a kind, and report the rest as idle.
	for kind, name := range loop.tables.Kinds {
		if slices.Index(loop.tables.Kinds, name) < kind { // counted already: the tables have kinds of the same name with other times
			continue
		}
		busy, loads := 0.0, 0.0
		for deviceIndex := range loop.tables.Devices {
			if loop.tables.Kinds[loop.tables.Devices[deviceIndex].Kind] == name {
				host, deviceShare := loop.hosts[loop.hostByDevice[deviceIndex]], loop.tables.PhysicalDevices(int32(deviceIndex))
				busy += float64(host.busyTime(int32(deviceIndex))) * deviceShare
				if instances, ok := host.(*llmHost); ok {
					loads += float64(instances.loadTime(int32(deviceIndex))) * deviceShare
				}
			}
		}
		count := int64(loop.tables.KindCounts[kind])
		running, loading := document.Micros(busy), document.Micros(loads)
		loop.ledger.reportCounts.AddDevice(formats.DeviceReport{
			Device: name, Count: int(count), RunningUS: running, LoadingUS: loading, IdleUS: max(0, document.Micros(int64(countedTime)*count)-running-loading),
		})
	}
}

// buildResult returns the result of a run that has ended: its counts, the report unless it is not wanted, and the
// figures of the kind of plan.
func (l *loop) buildResult() *Result {
	transfers := l.baseHost.links.transferTimes
	result := &Result{Events: l.events, DispatchedBatches: l.batches.dispatchedBatches, Transfers: transfers.summary(), transferTimes: transfers, reportCounts: l.ledger.reportCounts, CutAt: l.cutAt,
		FrontEndOccupied: l.frontEnd.occupiedTime, FrontEndElapsed: l.frontEnd.freeAt}
	if prober, ok := policy.FindExtension[policy.Prober](l.cfg.Policy); ok {
		result.Probes = prober.Probes()
	}
	if !l.cfg.NoReport {
		result.Report = l.ledger.reportCounts.Build()
	}
	l.ending.addResult(result)
	if result.Report != nil {
		result.reportFigures()
	}
	return result
}
