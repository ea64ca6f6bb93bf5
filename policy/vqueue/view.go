package vqueue

import "time"

// QueueView is a virtual queue as reports show it.
type QueueView struct {
	Device         int32
	Up             bool
	Loaded, Coming int32 // networks; -1 if there is none
	Running        int   // number of running requests
	Groups         []GroupView
}

// GroupView is a request group at its place in a queue.
type GroupView struct {
	Model           int32 // served model
	Size            int
	Start, Deadline time.Duration // expected start; deadline of the first member
}

// QueueViews returns the queues in their present order. With rules that keep one list for all instances, queues
// have no groups.
func (p *Policy) View() []QueueView {
	fresh(p.state)
	out := make([]QueueView, len(p.instances))
	for q := range p.instances {
		in := &p.instances[q]
		v := QueueView{Device: in.device, Up: in.up(), Loaded: in.loaded, Coming: in.coming, Running: len(in.running)}
		for _, x := range p.state.queues[q].slots {
			g := &p.groups[x.group]
			v.Groups = append(v.Groups, GroupView{Model: g.model, Size: int(g.size), Start: inSeconds(x.start), Deadline: p.requests[g.first].deadline})
		}
		out[q] = v
	}
	return out
}
