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

// GroupView is a request group at its place in a queue.
type GroupView struct {
	Model           int32 // served model
	Size            int
	Start, Deadline time.Duration // expected start; deadline of the first member
}

// QueueViews returns the queues in their present order. With rules that keep one list for all instances, queues
// have no groups.
func (p *Policy) QueueViews() []QueueView {
	refreshStaleQueues(p.groups.assignment)
	views := make([]QueueView, len(p.fleet.instances))
	for q := range p.fleet.instances {
		in := &p.fleet.instances[q]
		v := QueueView{Device: in.device, IsUp: in.isUp(), LoadedNetwork: in.loadedNetwork, LoadingNetwork: in.loadingNetwork, RunningRequests: len(in.runningBatches)}
		for _, slot := range p.groups.assignment.queues[q].slots {
			g := &p.groups.members[slot.group]
			v.Groups = append(v.Groups, GroupView{Model: g.model, Size: int(g.size), Start: fromSeconds(slot.start), Deadline: p.requests.bySlot[g.firstRequest].deadline})
		}
		views[q] = v
	}
	return views
}
