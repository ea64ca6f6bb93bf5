package flow

import (
	"inferplan/policy"
)

// graphControl decides which tasks the requests of a plan's applications have. A task is revealed when all its inputs
// have ended. Its slot is freed when its readers have ended, too.
type control struct {
	own      *Tables
	stride   int32
	start    [][]step // by application: the nodes of a request at its begin
	requests []running
	steps    []step  // by request and node: [request*stride + node]
	tasks    []visit // by task slot
}

// graphRequest is a request: its application, which is -1 if the slot is free, and its tasks that have not ended.
type running struct{ app, open int32 }

// nodeState is the state of a node of a request.
type step struct {
	task    int32 // its slot; -1 before it is revealed, and after it is freed
	left    int16 // input nodes of which it is not decided whether the request comes from them
	came    int16 // decided ones from which the request comes
	readers int16 // readers of its task that have not ended
	way     int16 // outcome of its task; -1 until it has ended
}

// tookEdge returns true if the task of the node has ended and its request follows an edge of an outcome. An edge of the
// outcome -1 belongs to all outcomes.
func (s *step) takes(way int32) bool { return s.way >= 0 && (way < 0 || way == int32(s.way)) }

// taskNode is the request and node of a task.
type visit struct{ req, node int32 }

// NewGraphControl returns the control that decides which tasks the requests of a run have.
func NewControl(t *policy.Tables) policy.Control {
	c := &control{own: Of(t)}
	for i := range c.own.Apps {
		a := &c.own.Apps[i]
		steps := make([]step, len(a.Nodes))
		for n := range steps {
			steps[n] = step{task: -1, way: -1, left: int16(len(a.Nodes[n].In))}
		}
		c.start = append(c.start, steps)
		c.stride = max(c.stride, int32(len(steps)))
	}
	return c
}

// Begin implements policy.Control.
func (c *control) Begin(req, model int32, out *policy.Reveals) {
	for int(req) >= len(c.requests) {
		c.requests = append(c.requests, running{app: -1})
		for range c.stride {
			c.steps = append(c.steps, step{})
		}
	}
	c.requests[req] = running{app: model}
	copy(c.steps[req*c.stride:], c.start[model])
	c.reveal(req, 0, out)
}

// nodesOf returns the nodes of a request.
func (c *control) of(req int32) []step {
	return c.steps[req*c.stride : (req+1)*c.stride]
}

// revealNode reveals the task of a node.
func (c *control) reveal(req, node int32, out *policy.Reveals) {
	n, steps := &c.own.Apps[c.requests[req].app].Nodes[node], c.of(req)
	t := out.Take()
	for int(t) >= len(c.tasks) {
		c.tasks = append(c.tasks, visit{})
	}
	c.tasks[t], steps[node].task = visit{req, node}, t
	c.requests[req].open++

	// Its inputs are the client's, or the tasks of those input nodes from which the request comes.
	first := int32(len(out.Inputs))
	if node == 0 {
		out.Inputs = append(out.Inputs, -1)
	}
	for _, in := range n.In {
		if steps[in.From].takes(in.Way) {
			out.Inputs = append(out.Inputs, steps[in.From].task)
		}
	}
	out.Tasks = append(out.Tasks, policy.Reveal{Req: req, Task: t, Service: n.Service, FirstInput: first, NumInputs: int32(len(out.Inputs)) - first})
}

// Ended implements policy.Control.
func (c *control) Ended(task int32, o policy.Outcome, out *policy.Reveals) {
	v := c.tasks[task]
	r, steps := &c.requests[v.req], c.of(v.req)
	n := &c.own.Apps[r.app].Nodes[v.node]
	r.open--
	steps[v.node].way = int16(o.Branch)

	// Free the inputs that no other node will read.
	for _, in := range n.In {
		if s := &steps[in.From]; s.takes(in.Way) {
			if s.readers--; s.readers == 0 {
				out.Freed = append(out.Freed, s.task)
				s.task = -1
			}
		}
	}

	// Count the readers of the task before any of them is decided.
	for i := range n.Out {
		if steps[v.node].takes(n.Out[i].Way) {
			steps[v.node].readers++
		}
	}

	// Decide for each node behind it whether the request comes to it.
	for i := range n.Out {
		c.known(v.req, n.Out[i].To, steps[v.node].takes(n.Out[i].Way), out)
	}

	// A request without open tasks is over.
	if r.open == 0 {
		out.Over = append(out.Over, v.req)
		c.Forget(v.req, out)
	}
}

// decideInput records whether a request comes to a node from one of its inputs. Once all inputs are decided, the node is
// revealed, or skipped if the request comes from none.
func (c *control) known(req, node int32, comes bool, out *policy.Reveals) {
	s := &c.of(req)[node]
	s.left--
	if comes {
		s.came++
	}
	if s.left > 0 {
		return
	}
	if s.came > 0 {
		c.reveal(req, node, out)
		return
	}
	for _, e := range c.own.Apps[c.requests[req].app].Nodes[node].Out { // skipped, and so are edges from it
		c.known(req, e.To, false, out)
	}
}

// Forget implements policy.Control.
func (c *control) Forget(req int32, out *policy.Reveals) {
	if int(req) >= len(c.requests) || c.requests[req].app < 0 {
		return
	}
	steps := c.of(req)[:len(c.own.Apps[c.requests[req].app].Nodes)]
	for i := range steps {
		if t := steps[i].task; t >= 0 {
			out.Freed = append(out.Freed, t)
			steps[i].task = -1
		}
	}
	c.requests[req].app = -1
}
