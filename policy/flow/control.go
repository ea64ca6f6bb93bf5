package flow

import (
	"inferplan/policy"
)

// graphControl decides which tasks the requests of a plan's applications have, where applications are graphs. A node
// is a step of the graph. Its task is revealed when all its inputs have ended; the task's slot is freed when its
// readers have ended, too.
type graphControl struct {
	tables       *GraphTables
	stride       int32         // most nodes of an application
	initialNodes [][]nodeState // by application: the nodes of a request at its begin
	requests     []tasksOfRequest
	nodeStates   []nodeState // by request and node: [request*stride + node]
	taskNodes    []taskNode  // by task slot
}

// tasksOfRequest holds the application of a request, which is -1 if the slot is free, and how many of its tasks have not ended.
type tasksOfRequest struct{ app, openTasks int32 }

// nodeState is the state of a node (a step of the graph) in a request.
type nodeState struct {
	task            int32 // its slot; -1 before it is revealed, and after it is freed
	undecidedInputs int16 // input nodes of which it is not decided whether the request comes from them
	takenInputs     int16 // decided ones from which the request comes
	openReaders     int16 // readers of its task that have not ended
	outcome         int16 // outcome of its task; -1 until it has ended
}

// followsEdge reports whether the task of the node has ended and its request follows an edge that is taken with this
// outcome. An edge of the outcome -1 is taken with all outcomes.
func (s *nodeState) followsEdge(outcome int32) bool {
	return s.outcome >= 0 && (outcome < 0 || outcome == int32(s.outcome))
}

// taskNode is the request and node of a task.
type taskNode struct{ req, node int32 }

// NewGraphControl returns the control that decides, for applications that are graphs, which tasks the requests of a run
// have. At the begin of a request a node (step of the graph) has no task, and all its inputs are undecided. initialNodes
// has that state by application; the nodes of a request stand at request slot * stride. Task -1 is none, and outcome -1
// is not known.
func NewGraphControl(tables *policy.Tables) policy.Control {
	control := &graphControl{tables: GraphTablesOf(tables)}
	for appIndex := range control.tables.Apps {
		app := &control.tables.Apps[appIndex]
		nodes := make([]nodeState, len(app.Nodes))
		for node := range nodes {
			nodes[node] = nodeState{task: -1, outcome: -1, undecidedInputs: int16(len(app.Nodes[node].Inputs))}
		}
		control.initialNodes = append(control.initialNodes, nodes)
		control.stride = max(control.stride, int32(len(nodes)))
	}
	return control
}

// BeginRequest begins a request of an application (its model): no node is decided yet but the entry, node 0, whose
// task is revealed. It implements policy.Control.
func (c *graphControl) BeginRequest(req, model int32, out *policy.RevealedTasks) {
	for int(req) >= len(c.requests) {
		c.requests = append(c.requests, tasksOfRequest{app: -1})
		for range c.stride {
			c.nodeStates = append(c.nodeStates, nodeState{})
		}
	}
	c.requests[req] = tasksOfRequest{app: model}
	copy(c.nodeStates[req*c.stride:], c.initialNodes[model])
	c.revealNode(req, 0, out)
}

// nodesOf returns the states of all nodes (steps of the graph) in a request.
func (c *graphControl) nodesOf(req int32) []nodeState {
	return c.nodeStates[req*c.stride : (req+1)*c.stride]
}

// revealNode is called at the begin of a request, and by decideInput once it is known from which inputs the request
// comes to a node (step of the graph). It takes a slot for the task of the node, and appends the task to `out`, from
// which the policy hears of it, with its inputs: the tasks of the nodes from which the request comes or, for the entry
// node 0, the client's input, -1.
func (c *graphControl) revealNode(req, node int32, out *policy.RevealedTasks) {
	nodeRow, nodes := &c.tables.Apps[c.requests[req].app].Nodes[node], c.nodesOf(req)
	task := out.TakeSlot()
	for int(task) >= len(c.taskNodes) {
		c.taskNodes = append(c.taskNodes, taskNode{})
	}
	c.taskNodes[task], nodes[node].task = taskNode{req, node}, task
	c.requests[req].openTasks++

	// Its inputs are the client's, or the tasks of those input nodes from which the request comes: an edge is followed if
	// its outcome is that of the node before it, or none (-1).
	first := int32(len(out.Inputs))
	if node == 0 {
		out.Inputs = append(out.Inputs, -1)
	}
	for _, edge := range nodeRow.Inputs {
		if nodes[edge.From].followsEdge(edge.Outcome) {
			out.Inputs = append(out.Inputs, nodes[edge.From].task)
		}
	}
	out.Tasks = append(out.Tasks, policy.RevealedTask{Req: req, Task: task, Service: nodeRow.Service, FirstInput: first, NumInputs: int32(len(out.Inputs)) - first})
}

// TaskEnded is called when a task has run, with the outcome (branch) that its answer chose. It reveals the tasks that
// are now known, frees outputs that nothing will read, and ends the request if no task is open. It implements
// policy.Control. A task's output is freed (UnreadTasks) once openReaders, the number of nodes that have yet to read it,
// is 0.
func (c *graphControl) TaskEnded(task int32, outcome policy.Outcome, out *policy.RevealedTasks) {
	position := c.taskNodes[task]
	request, nodes := &c.requests[position.req], c.nodesOf(position.req)
	nodeRow := &c.tables.Apps[request.app].Nodes[position.node]
	request.openTasks--
	nodes[position.node].outcome = int16(outcome.Branch)

	// Free the inputs that no other node will read.
	for _, edge := range nodeRow.Inputs {
		if inputNode := &nodes[edge.From]; inputNode.followsEdge(edge.Outcome) {
			inputNode.openReaders--
			if inputNode.openReaders == 0 {
				out.UnreadTasks = append(out.UnreadTasks, inputNode.task)
				inputNode.task = -1
			}
		}
	}

	// Count the readers of the task before any of them is decided: deciding one may skip nodes and reveal others.
	for output := range nodeRow.Outputs {
		if nodes[position.node].followsEdge(nodeRow.Outputs[output].Outcome) {
			nodes[position.node].openReaders++
		}
	}

	// Decide for each node behind it whether the request comes to it.
	for output := range nodeRow.Outputs {
		c.decideInput(position.req, nodeRow.Outputs[output].To, nodes[position.node].followsEdge(nodeRow.Outputs[output].Outcome), out)
	}

	// A request without open tasks is over.
	if request.openTasks == 0 {
		out.EndedRequests = append(out.EndedRequests, position.req)
		c.ForgetRequest(position.req, out)
	}
}

// decideInput is called when a task has ended, for each node (step of the graph) behind it. It records whether the
// request comes to the node from that input (taken). Once all inputs of the node are decided, the node is revealed as a
// task or, if the request comes from none, skipped. A skipped node decides those behind it in the same way.
func (c *graphControl) decideInput(req, node int32, taken bool, out *policy.RevealedTasks) {
	state := &c.nodesOf(req)[node]
	state.undecidedInputs--
	if taken {
		state.takenInputs++
	}
	if state.undecidedInputs > 0 {
		return
	}
	if state.takenInputs > 0 {
		c.revealNode(req, node, out)
		return
	}

	// The node is skipped: the request comes to none of those behind it from here.
	for _, edge := range c.tables.Apps[c.requests[req].app].Nodes[node].Outputs {
		c.decideInput(req, edge.To, false, out)
	}
}

// ForgetRequest forgets a request that has ended or was dropped, and puts the outputs that it still has into
// out.UnreadTasks, so that their slots are freed. If it is forgotten already (application -1), nothing happens. It
// implements policy.Control.
func (c *graphControl) ForgetRequest(req int32, out *policy.RevealedTasks) {
	if int(req) >= len(c.requests) || c.requests[req].app < 0 {
		return
	}
	nodes := c.nodesOf(req)[:len(c.tables.Apps[c.requests[req].app].Nodes)]
	for i := range nodes {
		if task := nodes[i].task; task >= 0 {
			out.UnreadTasks = append(out.UnreadTasks, task)
			nodes[i].task = -1
		}
	}
	c.requests[req].app = -1
}
