package vqueue

import "time"

// QueueView is a virtual queue as reports show it.
type QueueView struct {
	Device                        int32
	IsUp                          bool
	LoadedNetwork, LoadingNetwork int32 // networks; -1 if there is none
	RunningRequests               int   // number of running requests
	Groups                        []GroupView
}

// GroupView is a request group in a queue.
type GroupView struct {
	Model           int32 // served model
	Size            int
	Start, Deadline time.Duration // expected start; deadline of the first member
}

// QueueViews returns the queues in their present order, for reports. Under rules that have one list for all instances, queues have no groups.
func (p *Policy) QueueViews() []QueueView {
	refreshStaleQueues(p.groups.assignment)
	views := make([]QueueView, len(p.fleet.instances))
	for queueIndex := range p.fleet.instances {
		instance := &p.fleet.instances[queueIndex]
		view := QueueView{Device: instance.Device, IsUp: instance.IsUp(), LoadedNetwork: instance.LoadedNetwork, LoadingNetwork: instance.LoadingNetwork, RunningRequests: len(instance.RunningBatches)}
		for _, entry := range p.groups.assignment.queues[queueIndex].entries {
			members := &p.groups.members[entry.group]
			view.Groups = append(view.Groups, GroupView{Model: members.model, Size: int(members.requests.Len), Start: fromSeconds(entry.start), Deadline: p.requests.byNumber[members.requests.First].Deadline})
		}
		views[queueIndex] = view
	}
	return views
}
