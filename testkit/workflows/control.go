package workflows

import "inferplan/policy"

// Task is a task of a request.
type Task struct {
	Service int32
	Work    int64   // millionths of the usual; 0 stands for the usual
	Reads   []int32 // earlier tasks of the request; none: the client's input
	// Of a language model: the tokens of its prompt and its answer; 0 if they are not drawn.
	Prompt, Output int32
}

// Way is the way that a request will go: tasks in order, and where each segment
// ends.
type Way struct {
	Tasks []Task
	Ends  []int32 // of the segments, in Tasks
	n     int
}

// Len is the number of tasks.
func (w *Way) Len() int { return w.n }

// Reset empties the way and keeps its memory.
func (w *Way) Reset() { w.n, w.Ends = 0, w.Ends[:0] }

// add adds a task and gives its place.
func (w *Way) add(service int32, work int64, reads ...int32) int32 {
	if w.n == len(w.Tasks) {
		w.Tasks = append(w.Tasks, Task{})
	}
	t := &w.Tasks[w.n]
	t.Service, t.Work, t.Reads, t.Prompt, t.Output = service, work, append(t.Reads[:0], reads...), 0, 0
	w.n++
	return int32(w.n - 1)
}

// end ends a segment.
func (w *Way) end() { w.Ends = append(w.Ends, int32(w.n)) }

// Control reveals requests segment by segment.
type Control struct {
	// Draw draws the way of the next request of a model.
	Draw func(model int32, w *Way)

	requests []request
	tasks    []int32 // request by task slot
}

type request struct {
	way     Way
	slots   []int32 // of its tasks so far
	segment int
	left    int // of the segment
}

// BeginRequest implements policy.Control.
func (c *Control) BeginRequest(req, model int32, out *policy.RevealedTasks) {
	for int(req) >= len(c.requests) {
		c.requests = append(c.requests, request{})
	}
	q := &c.requests[req]
	q.way.Reset()
	q.slots, q.segment = q.slots[:0], 0
	c.Draw(model, &q.way)
	c.reveal(req, out)
}

// reveal reveals the tasks of the next segment.
func (c *Control) reveal(req int32, out *policy.RevealedTasks) {
	q := &c.requests[req]
	first, end := int32(len(q.slots)), q.way.Ends[q.segment]
	q.segment++
	q.left = int(end - first)
	for i := first; i < end; i++ {
		t, slot := &q.way.Tasks[i], out.TakeSlot()
		for int(slot) >= len(c.tasks) {
			c.tasks = append(c.tasks, 0)
		}
		c.tasks[slot] = req
		q.slots = append(q.slots, slot)
		r := policy.RevealedTask{Req: req, Task: slot, Service: t.Service, Work: t.Work, Prompt: t.Prompt, Output: t.Output, FirstInput: int32(len(out.Inputs))}
		for _, in := range t.Reads {
			out.Inputs = append(out.Inputs, q.slots[in])
		}
		if len(t.Reads) == 0 {
			out.Inputs = append(out.Inputs, -1)
		}
		r.NumInputs = int32(len(out.Inputs)) - r.FirstInput
		out.Tasks = append(out.Tasks, r)
	}
}

// TaskEnded implements policy.Control.
func (c *Control) TaskEnded(task int32, _ policy.Outcome, out *policy.RevealedTasks) {
	req := c.tasks[task]
	q := &c.requests[req]
	if q.left--; q.left > 0 {
		return
	}
	if q.segment < len(q.way.Ends) {
		c.reveal(req, out)
		return
	}
	out.EndedRequests = append(out.EndedRequests, req)
	c.ForgetRequest(req, out)
}

// ForgetRequest implements policy.Control.
func (c *Control) ForgetRequest(req int32, out *policy.RevealedTasks) {
	if int(req) < len(c.requests) {
		q := &c.requests[req]
		out.UnreadTasks = append(out.UnreadTasks, q.slots...)
		q.slots = q.slots[:0]
	}
}
