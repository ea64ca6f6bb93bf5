package flow

import (
	"inferplan/policy"
)

// graphControl decides which tasks the requests of a plan's applications have. A task is revealed when all its inputs
// have ended. Its slot is freed when its readers have ended, too.
type graphControl struct {
	tables       *GraphTables
	stride       int32
	initialNodes [][]nodeState // by application: the nodes of a request at its begin
	requests     []graphRequest
	nodeStates   []nodeState // by request and node: [request*stride + node]
	taskNodes    []taskNode  // by task slot
}

// graphRequest is a request: its application, which is -1 if the slot is free, and its tasks that have not ended.
type graphRequest struct{ app, openTasks int32 }

// nodeState is the state of a node of a request.
type nodeState struct {
	task            int32 // its slot; -1 before it is revealed, and after it is freed
	undecidedInputs int16 // input nodes of which it is not decided whether the request comes from them
	takenInputs     int16 // decided ones from which the request comes
	openReaders     int16 // readers of its task that have not ended
	outcome         int16 // outcome of its task; -1 until it has ended
}

// tookEdge returns true if the task of the node has ended and its request follows an edge of an outcome. An edge of the
// outcome -1 belongs to all outcomes.
func (s *nodeState) tookEdge(outcome int32) bool {
	return s.outcome >= 0 && (outcome < 0 || outcome == int32(s.outcome))
}

// taskNode is the request and node of a task.
type taskNode struct{ req, node int32 }

// NewGraphControl returns the control that decides, for applications that are graphs, which tasks the requests of a
// run have. A node (step of the graph) starts with no task and all inputs undecided; stride is the most nodes of an
// application.
func NewGraphControl(t *policy.Tables) policy.Control {
	c := &graphControl{tables: GraphTablesOf(t)}
	for i := range c.tables.Apps {
		a := &c.tables.Apps[i]
		steps := make([]nodeState, len(a.Nodes))
		for n := range steps {
			steps[n] = nodeState{task: -1, outcome: -1, undecidedInputs: int16(len(a.Nodes[n].Inputs))}
		}
		c.initialNodes = append(c.initialNodes, steps)
		c.stride = max(c.stride, int32(len(steps)))
	}
	return c
}

// BeginRequest begins a request of an application that is a graph: no node is decided yet but the entry, whose task
// is revealed. It implements policy.Control.
func (c *graphControl) BeginRequest(req, model int32, out *policy.RevealedTasks) {
	for int(req) >= len(c.requests) {
		c.requests = append(c.requests, graphRequest{app: -1})
		for range c.stride {
			c.nodeStates = append(c.nodeStates, nodeState{})
		}
	}
	c.requests[req] = graphRequest{app: model}
	copy(c.nodeStates[req*c.stride:], c.initialNodes[model])
	c.revealNode(req, 0, out)
}

// nodesOf returns the nodes of a request.
func (c *graphControl) nodesOf(req int32) []nodeState {
	return c.nodeStates[req*c.stride : (req+1)*c.stride]
}

// revealNode reveals the task of a node (step of the graph) to the policy, once it is known from which inputs the
// request comes to it. The entry node has the client's input, -1.
func (c *graphControl) revealNode(req, node int32, out *policy.RevealedTasks) {
	n, steps := &c.tables.Apps[c.requests[req].app].Nodes[node], c.nodesOf(req)
	t := out.TakeSlot()
	for int(t) >= len(c.taskNodes) {
		c.taskNodes = append(c.taskNodes, taskNode{})
	}
	c.taskNodes[t], steps[node].task = taskNode{req, node}, t
	c.requests[req].openTasks++

	// Its inputs are the client's, or the tasks of those input nodes from which the request comes.
	first := int32(len(out.Inputs))
	if node == 0 {
		out.Inputs = append(out.Inputs, -1)
	}
	for _, in := range n.Inputs {
		if steps[in.From].tookEdge(in.Outcome) {
			out.Inputs = append(out.Inputs, steps[in.From].task)
		}
	}
	out.Tasks = append(out.Tasks, policy.RevealedTask{Req: req, Task: t, Service: n.Service, FirstInput: first, NumInputs: int32(len(out.Inputs)) - first})
}

// TaskEnded is called when a task has run, with the outcome (branch) that its answer chose. It reveals the tasks
// that are now known, frees outputs that nothing will read, and ends the request if no task is open. It implements
// policy.Control.
func (c *graphControl) TaskEnded(task int32, o policy.Outcome, out *policy.RevealedTasks) {
	v := c.taskNodes[task]
	r, steps := &c.requests[v.req], c.nodesOf(v.req)
	n := &c.tables.Apps[r.app].Nodes[v.node]
	r.openTasks--
	steps[v.node].outcome = int16(o.Branch)

	// Free the inputs that no other node will read.
	for _, in := range n.Inputs {
		if s := &steps[in.From]; s.tookEdge(in.Outcome) {
			if s.openReaders--; s.openReaders == 0 {
				out.UnreadTasks = append(out.UnreadTasks, s.task)
				s.task = -1
			}
		}
	}

	// Count the readers of the task before any of them is decided.
	for i := range n.Outputs {
		if steps[v.node].tookEdge(n.Outputs[i].Outcome) {
			steps[v.node].openReaders++
		}
	}

	// Decide for each node behind it whether the request comes to it.
	for i := range n.Outputs {
		c.decideInput(v.req, n.Outputs[i].To, steps[v.node].tookEdge(n.Outputs[i].Outcome), out)
	}

	// A request without open tasks is over.
	if r.openTasks == 0 {
		out.EndedRequests = append(out.EndedRequests, v.req)
		c.ForgetRequest(v.req, out)
	}
}

// decideInput records whether a request comes to a node (step of the graph) from one of its inputs. Once all inputs
// are decided, the node is revealed as a task or, if the request comes from none, skipped. A skipped node decides
// those behind it.
func (c *graphControl) decideInput(req, node int32, taken bool, out *policy.RevealedTasks) {
	s := &c.nodesOf(req)[node]
	s.undecidedInputs--
	if taken {
		s.takenInputs++
	}
	if s.undecidedInputs > 0 {
		return
	}
	if s.takenInputs > 0 {
		c.revealNode(req, node, out)
		return
	}
	for _, e := range c.tables.Apps[c.requests[req].app].Nodes[node].Outputs { // skipped, and so are edges from it
		c.decideInput(req, e.To, false, out)
	}
}

// ForgetRequest forgets a request that has ended or was dropped, and frees the outputs that it still has. If it is
// forgotten already, nothing happens. It implements policy.Control.
func (c *graphControl) ForgetRequest(req int32, out *policy.RevealedTasks) {
	if int(req) >= len(c.requests) || c.requests[req].app < 0 {
		return
	}
	steps := c.nodesOf(req)[:len(c.tables.Apps[c.requests[req].app].Nodes)]
	for i := range steps {
		if t := steps[i].task; t >= 0 {
			out.UnreadTasks = append(out.UnreadTasks, t)
			steps[i].task = -1
		}
	}
	c.requests[req].app = -1
}
