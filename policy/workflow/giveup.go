package workflow

import "slices"

// givesUp returns true if a request that has just been placed is to be dropped, by the rule of Options.GiveUp, because it will end after
// its deadline. It is called after the tasks of each segment have been placed, because only then their expected ends are known.
func (p *placer) givesUp(now int64, request *request) bool {
	switch p.cluster.options.GiveUp {
	case GiveUpNever:
		return false
	case GiveUpHopeless:
		return p.earliestRequestEnd(now, request) > request.deadline
	}
	endsLate := func(taskID int32) bool { return p.registry.tasks[taskID].endsAt > request.deadline }
	return slices.ContainsFunc(request.revealedTasks, endsLate) || slices.ContainsFunc(request.expectedTasks, endsLate)
}

// earliestRequestEnd returns the earliest possible end in ns of the revealed tasks of a request: waiting tasks run alone on their quickest
// kind of device and wait for nothing but their inputs. If that is after the deadline, the request is hopeless.
func (p *placer) earliestRequestEnd(now int64, request *request) (lastEnd int64) {
	// Tasks come behind their inputs, so that earliestEnd of the inputs is set before it is read.
	for _, taskID := range request.revealedTasks {
		task := &p.registry.tasks[taskID]
		task.earliestEnd = task.endsAt
		if task.progress == taskQueued || task.progress == taskUnplaced { // it has not started
			task.earliestEnd = now
			for _, input := range task.inputs {
				if input >= 0 {
					task.earliestEnd = max(task.earliestEnd, p.registry.tasks[input].earliestEnd)
				}
			}
			task.earliestEnd += scaleTime(p.tables.services[task.service].minTaskTime, task.workFactor)
		}
		lastEnd = max(lastEnd, task.earliestEnd)
	}
	return lastEnd
}
