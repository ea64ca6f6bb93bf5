package flow

import (
	"math/rand/v2"

	"inferplan/formats/seeded"
	"inferplan/policy"
)

// Choices decide where requests go, where that depends on their inputs or on the outputs of their tasks. The executor
// evaluates the plan's conditions; the simulator draws by the plan's chances.
type Choices interface {
	// BeginRequest is called before anything else of a request.
	BeginRequest(req, app int32)
	// ItemCount returns how often a step of the segment that a request visits runs.
	ItemCount(req, app, segment, visit, step int32) int32
	// ChooseRoute returns the route that a task of a step takes, by its item.
	ChooseRoute(req, app, segment, visit, step, item int32) int32
	// ChooseNext returns the branch that a request takes behind a segment, one of those that are open. It is called only if
	// several are open.
	ChooseNext(req, app, segment, visit int32, open []bool) int32
}

// TokenChoices are Choices that also give the tokens of tasks of language models.
type TokenChoices interface {
	Choices
	// TokenLengths returns the tokens of prompt and answer of a task of a step, which is given by its number among the
	// generation steps.
	TokenLengths(req, ask int32) (prompt, output int32)
}

// WorkflowControl decides which tasks the requests of workflows have. The tasks of a segment are revealed at once. When
// all have ended, the next segment is chosen.
type WorkflowControl struct {
	workflows     *WorkflowTables
	choices       Choices
	tokens        TokenChoices // the choices, if they give tokens; otherwise nil
	requests      []workflowRequest
	requestOfTask []int32 // by task slot
	openBranches  []bool  // scratch: by branch
}

// workflowRequest is an open request.
type workflowRequest struct {
	app, segment int32
	openTasks    int32       // tasks of the segment that have not ended
	slots        []int32     // slots of all its tasks
	latestRuns   []slotRange // by name: the tasks of the latest run, in slots
	visits       []int32     // by segment
}

// slotRange is a range of a request's task slots.
type slotRange struct{ first, end int32 }

// NewWorkflowControl returns the control that decides which tasks the requests of a run have. Choices are drawn from the
// seed 0 until others are set.
func NewWorkflowControl(t *policy.Tables) policy.Control {
	workflows := WorkflowTablesOf(t)
	w := &WorkflowControl{workflows: workflows}
	w.SetChoices(NewRandomChoices(workflows, t, 0))
	return w
}

// SetChoices sets what decides where requests go.
func (w *WorkflowControl) SetChoices(c Choices) {
	w.choices = c
	w.tokens, _ = c.(TokenChoices)
}

// BeginRequest begins a request of a workflow: it resets its state, and reveals the tasks of the first segment
// (part whose tasks are revealed together). It implements policy.Control.
func (w *WorkflowControl) BeginRequest(req, model int32, out *policy.RevealedTasks) {
	for int(req) >= len(w.requests) {
		w.requests = append(w.requests, workflowRequest{})
	}
	q := &w.requests[req]
	app := &w.workflows.Apps[model]
	q.app, q.slots, q.latestRuns, q.visits = model, q.slots[:0], q.latestRuns[:0], q.visits[:0]
	for range app.Names {
		q.latestRuns = append(q.latestRuns, slotRange{})
	}
	for range app.Segments {
		q.visits = append(q.visits, 0)
	}
	w.choices.BeginRequest(req, model)
	w.enterSegment(req, 0, out)
}

// enterSegment takes a request to a segment (part of a workflow), and reveals its tasks to the policy at once. If
// none of its steps runs, the request goes on to the next segment, or ends.
func (w *WorkflowControl) enterSegment(req, segment int32, out *policy.RevealedTasks) {
	q := &w.requests[req]
	for {
		q.segment = segment
		q.visits[segment]++
		slotsBefore := len(q.slots)
		for k := range w.workflows.Apps[q.app].Segments[segment].Steps {
			w.revealStep(req, int32(k), out)
		}
		if q.openTasks = int32(len(q.slots) - slotsBefore); q.openTasks > 0 {
			return
		}
		if segment = w.nextSegment(req); segment < 0 {
			w.endRequest(req, out)
			return
		}
	}
}

// revealStep reveals the tasks of a step (module of a segment): a fixed or chosen number, or one for each task of
// another step (EachOf). A task reads all tasks of the latest run of each step that it names, or the one of its
// item; without inputs it reads the client's (-1).
func (w *WorkflowControl) revealStep(req, k int32, out *policy.RevealedTasks) {
	q := &w.requests[req]
	s := &w.workflows.Apps[q.app].Segments[q.segment].Steps[k]

	// How often does it run?
	n := s.FixedCount
	eachRange := slotRange{}
	switch {
	case s.EachOf >= 0:
		eachRange = q.latestRuns[s.EachOf]
		n = eachRange.end - eachRange.first
	case s.CountVaries:
		n = w.choices.ItemCount(req, q.app, q.segment, q.visits[q.segment], k)
	}

	// A task per item.
	first := int32(len(q.slots))
	for item := range n {
		slot := out.TakeSlot()
		for int(slot) >= len(w.requestOfTask) {
			w.requestOfTask = append(w.requestOfTask, 0)
		}
		w.requestOfTask[slot] = req
		r := policy.RevealedTask{Req: req, Task: slot, Service: s.Service, Work: s.Work, Item: int64(item), FirstInput: int32(len(out.Inputs))}
		if s.Service < 0 {
			r.Service = s.Routes[w.choices.ChooseRoute(req, q.app, q.segment, q.visits[q.segment], k, item)]
		}

		// Inputs: all tasks of the latest run, or the one of this item.
		for _, name := range s.Reads {
			inputRange := q.latestRuns[name]
			if name == s.EachOf {
				inputRange = slotRange{eachRange.first + item, eachRange.first + item + 1}
			}
			out.Inputs = append(out.Inputs, q.slots[inputRange.first:inputRange.end]...)
		}
		if r.Ask = s.GenerationStep; r.Ask > 0 && w.tokens != nil {
			r.Prompt, r.Output = w.tokens.TokenLengths(req, r.Ask-1)
		}
		if r.NumInputs = int32(len(out.Inputs)) - r.FirstInput; r.NumInputs == 0 {
			out.Inputs, r.NumInputs = append(out.Inputs, -1), 1
		}
		q.slots = append(q.slots, slot)
		out.Tasks = append(out.Tasks, r)
	}
	q.latestRuns[s.Name] = slotRange{first, int32(len(q.slots))}
}

// nextSegment returns the segment that follows the current one of a request, -1 if the request ends. A branch is
// open unless its segment was visited as often as allowed; if only one is open, there is nothing to choose.
func (w *WorkflowControl) nextSegment(req int32) int32 {
	q := &w.requests[req]
	app := &w.workflows.Apps[q.app]
	s := &app.Segments[q.segment]
	w.openBranches = w.openBranches[:0]
	openCount, chosen := 0, int32(-1)
	for b, to := range s.BranchTargets {
		isOpen := to < 0 || app.Segments[to].MaxVisits == 0 || q.visits[to] < app.Segments[to].MaxVisits
		if w.openBranches = append(w.openBranches, isOpen); isOpen {
			openCount++
			chosen = int32(b)
		}
	}
	if openCount > 1 {
		chosen = w.choices.ChooseNext(req, q.app, q.segment, q.visits[q.segment], w.openBranches)
	}
	if chosen < 0 {
		return -1
	}
	return s.BranchTargets[chosen]
}

// TaskEnded is called when a task has run. After the last open task of a segment the request goes on to the next
// segment, whose tasks are revealed, or ends. It implements policy.Control.
func (w *WorkflowControl) TaskEnded(task int32, _ policy.Outcome, out *policy.RevealedTasks) {
	req := w.requestOfTask[task]
	q := &w.requests[req]
	if q.openTasks--; q.openTasks > 0 {
		return
	}
	if to := w.nextSegment(req); to >= 0 {
		w.enterSegment(req, to, out)
		return
	}
	w.endRequest(req, out)
}

// endRequest reports that a request is over.
func (w *WorkflowControl) endRequest(req int32, out *policy.RevealedTasks) {
	out.EndedRequests = append(out.EndedRequests, req)
	w.ForgetRequest(req, out)
}

// ForgetRequest forgets a request that has ended or was dropped, and frees the outputs of all its tasks. It
// implements policy.Control.
func (w *WorkflowControl) ForgetRequest(req int32, out *policy.RevealedTasks) {
	if int(req) < len(w.requests) {
		q := &w.requests[req]
		out.UnreadTasks = append(out.UnreadTasks, q.slots...)
		q.slots = q.slots[:0]
	}
}

// LatestTasks returns the tasks of a module's latest run, also of a request that has just ended. The caller must not
// change the list.
func (w *WorkflowControl) LatestTasks(req, name int32) []int32 {
	q := &w.requests[req]
	run := q.latestRuns[name]
	return q.slots[run.first:run.end]
}

// SegmentOf returns the segment that a request is in, or has ended in.
func (w *WorkflowControl) SegmentOf(req int32) int32 { return w.requests[req].segment }

// RandomChoices draw by the chances of the plan. Each request draws from a stream of its own, which it gets when it
// begins, so that its path does not depend on the policy.
type RandomChoices struct {
	workflows      *WorkflowTables
	appStreams     []*rand.Rand
	requestStreams []rand.PCG                      // by request
	tokenStream    *rand.PCG                       // stream that tokens are drawn from
	tokenDraws     []func() (prompt, output int32) // by generation step
}

// Uint64 implements rand.Source by the stream of the request whose tokens are drawn.
func (d *RandomChoices) Uint64() uint64 { return d.tokenStream.Uint64() }

// NewRandomChoices returns choices that are drawn by the plan's chances from random streams of a seed. Each request
// has a stream of its own, so its course does not depend on the order of events.
func NewRandomChoices(workflows *WorkflowTables, t *policy.Tables, seed uint64) *RandomChoices {
	d := &RandomChoices{workflows: workflows}
	for i := range t.Models {
		d.appStreams = append(d.appStreams, seeded.New(seed, "requests/"+t.Models[i].Name))
	}
	rng := rand.New(d)
	for _, a := range workflows.GenerationSteps {
		d.tokenDraws = append(d.tokenDraws, a.tokenDraw(rng))
	}
	return d
}

// BeginRequest seeds the random stream of a request from that of its application. It implements Choices.
func (d *RandomChoices) BeginRequest(req, app int32) {
	for int(req) >= len(d.requestStreams) {
		d.requestStreams = append(d.requestStreams, rand.PCG{})
	}
	d.requestStreams[req].Seed(d.appStreams[app].Uint64(), d.appStreams[app].Uint64())
}

// TokenLengths implements TokenChoices.
func (d *RandomChoices) TokenLengths(req, ask int32) (prompt, output int32) {
	d.tokenStream = &d.requestStreams[req]
	return d.tokenDraws[ask]()
}

// uniform returns a random number from [0,1).
func (d *RandomChoices) uniform(req int32) float64 {
	return float64(d.requestStreams[req].Uint64()>>11) / (1 << 53)
}

// drawIndex draws an index by chances.
func (d *RandomChoices) drawIndex(req int32, chances []float64) int32 {
	u := d.uniform(req)
	for i, p := range chances[:len(chances)-1] {
		if u -= p; u < 0 {
			return int32(i)
		}
	}
	return int32(len(chances) - 1)
}

// ItemCount draws how often a step runs in a visit of its segment, by the plan's chances. Without chances it runs
// once. It implements Choices.
func (d *RandomChoices) ItemCount(req, app, segment, _, step int32) int32 {
	chances := d.workflows.Apps[app].Segments[segment].Steps[step].ItemChances
	if len(chances) == 0 {
		return 1
	}
	return d.drawIndex(req, chances)
}

// ChooseRoute implements Choices.
func (d *RandomChoices) ChooseRoute(req, app, segment, _, step, _ int32) int32 {
	return d.drawIndex(req, d.workflows.Apps[app].Segments[segment].Steps[step].RouteShares)
}

// ChooseNext draws the branch that a request takes behind a segment, among the open ones, by the chances of the
// plan at this visit. It implements Choices.
func (d *RandomChoices) ChooseNext(req, app, segment, visit int32, openBranches []bool) int32 {
	s := &d.workflows.Apps[app].Segments[segment]
	sum, lastOpen := 0.0, int32(0)
	for b := range openBranches {
		if openBranches[b] {
			sum += s.Branches[b].ProbabilityAt(int(visit))
		}
	}
	u := d.uniform(req) * sum
	for b := range openBranches {
		if !openBranches[b] {
			continue
		}
		lastOpen = int32(b)
		if u -= s.Branches[b].ProbabilityAt(int(visit)); u < 0 {
			break
		}
	}
	return lastOpen
}
