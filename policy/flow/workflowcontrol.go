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
	tokenChoices  TokenChoices // the choices, if they give tokens; otherwise nil
	requests      []workflowRequest
	requestOfTask []int32 // by task slot
	openBranches  []bool  // scratch: by branch
}

// workflowRequest holds the state of an open request of a workflow.
type workflowRequest struct {
	app, segment int32
	openTasks    int32       // tasks of the segment that have not ended
	slots        []int32     // slots of all its tasks
	latestRuns   []slotRange // by index in Workflow.Names: the tasks of the step's latest run, a range of slots
	visits       []int32     // by segment
}

// slotRange is a range of a request's task slots.
type slotRange struct{ first, end int32 }

// NewWorkflowControl returns the control that decides which tasks the requests of a run have. Choices are drawn from the
// seed 0 until others are set.
func NewWorkflowControl(shared *policy.Tables) policy.Control {
	workflows := WorkflowTablesOf(shared)
	control := &WorkflowControl{workflows: workflows}
	control.SetChoices(NewRandomChoices(workflows, shared, 0))
	return control
}

// SetChoices sets what decides where requests go: the plan's conditions, or draws by its chances. If it also gives
// tokens, tasks of language models get theirs from it.
func (w *WorkflowControl) SetChoices(choices Choices) {
	w.choices = choices
	w.tokenChoices, _ = choices.(TokenChoices)
}

// BeginRequest begins a request of a workflow (its model): it resets the request's state, and reveals the tasks of
// the first segment (part whose tasks are revealed together). It implements policy.Control.
func (w *WorkflowControl) BeginRequest(req, model int32, out *policy.RevealedTasks) {
	for int(req) >= len(w.requests) {
		w.requests = append(w.requests, workflowRequest{})
	}
	request := &w.requests[req]
	app := &w.workflows.Apps[model]
	request.app, request.slots, request.latestRuns, request.visits = model, request.slots[:0], request.latestRuns[:0], request.visits[:0]
	for range app.Names {
		request.latestRuns = append(request.latestRuns, slotRange{})
	}
	for range app.Segments {
		request.visits = append(request.visits, 0)
	}
	w.choices.BeginRequest(req, model)
	w.enterSegment(req, 0, out)
}

// enterSegment is called when a request begins, or has ended the last task of a segment (part of a workflow). It takes the
// request to a segment, and appends the tasks of it to `out`, from which the policy hears of them. If none of the steps
// runs, the request goes on to the next segment, or ends.
func (w *WorkflowControl) enterSegment(req, segment int32, out *policy.RevealedTasks) {
	request := &w.requests[req]
	for {
		request.segment = segment
		request.visits[segment]++
		slotsBefore := len(request.slots)

		// Reveal the tasks of all steps.
		for k := range w.workflows.Apps[request.app].Segments[segment].Steps {
			w.revealStep(req, int32(k), out)
		}
		request.openTasks = int32(len(request.slots) - slotsBefore)
		if request.openTasks > 0 {
			return
		}

		// Without tasks, go on at once.
		segment = w.nextSegment(req)
		if segment < 0 {
			w.endRequest(req, out)
			return
		}
	}
}

// revealStep reveals the tasks that a step (module) of a request has in the request's segment; `step` is its index
// there. Their number is fixed or chosen, or there is one for each task of another step (EachOf), its items. A task
// reads all tasks of the latest run of each step in Reads; of the step EachOf it reads only the one of its item.
// Without inputs it reads the client's (-1).
//
// Steps name each other by indexes in the workflow's list of names (Name, EachOf, Reads). latestRuns has, by these, the
// tasks of a step's latest run, as a range of indexes in request.slots, the list of all tasks of the request.
func (w *WorkflowControl) revealStep(req, step int32, out *policy.RevealedTasks) {
	request := &w.requests[req]
	stepRow := &w.workflows.Apps[request.app].Segments[request.segment].Steps[step]

	// How often does it run? eachRange is the range of the tasks for each of which it runs once.
	tasks := stepRow.FixedCount
	eachRange := slotRange{}
	switch {
	case stepRow.EachOf >= 0:
		eachRange = request.latestRuns[stepRow.EachOf]
		tasks = eachRange.end - eachRange.first
	case stepRow.CountVaries:
		tasks = w.choices.ItemCount(req, request.app, request.segment, request.visits[request.segment], step)
	}

	// Make a task per item.
	first := int32(len(request.slots))
	for item := range tasks {
		slot := out.TakeSlot()
		for int(slot) >= len(w.requestOfTask) {
			w.requestOfTask = append(w.requestOfTask, 0)
		}
		w.requestOfTask[slot] = req
		task := policy.RevealedTask{Req: req, Task: slot, Service: stepRow.Service, Work: stepRow.Work, Item: int64(item), FirstInput: int32(len(out.Inputs))}
		if stepRow.Service < 0 {
			task.Service = stepRow.Routes[w.choices.ChooseRoute(req, request.app, request.segment, request.visits[request.segment], step, item)]
		}

		// Add its inputs. A task of a language model also gets its tokens. Ask is the number of its generation step plus one,
		// as in the step; 0 means that it asks no language model.
		for _, name := range stepRow.Reads {
			inputRange := request.latestRuns[name]
			if name == stepRow.EachOf {
				inputRange = slotRange{eachRange.first + item, eachRange.first + item + 1}
			}
			out.Inputs = append(out.Inputs, request.slots[inputRange.first:inputRange.end]...)
		}
		task.Ask = stepRow.GenerationStep
		if task.Ask > 0 && w.tokenChoices != nil {
			task.Prompt, task.Output = w.tokenChoices.TokenLengths(req, task.Ask-1)
		}
		task.NumInputs = int32(len(out.Inputs)) - task.FirstInput
		if task.NumInputs == 0 {
			out.Inputs, task.NumInputs = append(out.Inputs, -1), 1
		}
		request.slots = append(request.slots, slot)
		out.Tasks = append(out.Tasks, task)
	}
	request.latestRuns[stepRow.Name] = slotRange{first, int32(len(request.slots))}
}

// nextSegment is called when all tasks of a request's segment (part of a workflow) have ended. It returns the segment
// that follows, by the choices (a draw, or the plan's conditions), or -1 if the request ends. A branch is open unless
// its segment was visited as often as allowed (MaxVisits, where 0 means no limit); if only one is open, there is nothing
// to choose.
func (w *WorkflowControl) nextSegment(req int32) int32 {
	request := &w.requests[req]
	app := &w.workflows.Apps[request.app]
	segment := &app.Segments[request.segment]
	w.openBranches = w.openBranches[:0]

	// Find the open branches.
	openCount, chosen := 0, int32(-1)
	for branch, target := range segment.BranchTargets {
		isOpen := target < 0 || app.Segments[target].MaxVisits == 0 || request.visits[target] < app.Segments[target].MaxVisits
		w.openBranches = append(w.openBranches, isOpen)
		if isOpen {
			openCount++
			chosen = int32(branch)
		}
	}

	// Ask only if there is a choice. Without an open branch the request ends.
	if openCount > 1 {
		chosen = w.choices.ChooseNext(req, request.app, request.segment, request.visits[request.segment], w.openBranches)
	}
	if chosen < 0 {
		return -1
	}
	return segment.BranchTargets[chosen]
}

// TaskEnded is called when a task has run. After the last open task of a segment the request goes on to the next
// segment, whose tasks are revealed, or ends. It implements policy.Control.
func (w *WorkflowControl) TaskEnded(task int32, _ policy.Outcome, out *policy.RevealedTasks) {
	req := w.requestOfTask[task]
	request := &w.requests[req]
	request.openTasks--
	if request.openTasks > 0 {
		return
	}
	if next := w.nextSegment(req); next >= 0 {
		w.enterSegment(req, next, out)
		return
	}
	w.endRequest(req, out)
}

// endRequest reports to the interpreter that a request is over, and forgets it.
func (w *WorkflowControl) endRequest(req int32, out *policy.RevealedTasks) {
	out.EndedRequests = append(out.EndedRequests, req)
	w.ForgetRequest(req, out)
}

// ForgetRequest forgets a request that has ended or was dropped, and frees the outputs of all its tasks. It
// implements policy.Control.
func (w *WorkflowControl) ForgetRequest(req int32, out *policy.RevealedTasks) {
	if int(req) < len(w.requests) {
		request := &w.requests[req]
		out.UnreadTasks = append(out.UnreadTasks, request.slots...)
		request.slots = request.slots[:0]
	}
}

// LatestTasks returns the tasks of the latest run of a module (its index in Workflow.Names), also of a request that
// has just ended: ForgetRequest sets the length of request.slots to 0, but the slots are still in its memory. The caller
// must not change the list.
func (w *WorkflowControl) LatestTasks(req, name int32) []int32 {
	request := &w.requests[req]
	run := request.latestRuns[name]
	return request.slots[run.first:run.end]
}

// SegmentOf returns the segment (part of the workflow) that a request is in, or has ended in.
func (w *WorkflowControl) SegmentOf(req int32) int32 { return w.requests[req].segment }

// RandomChoices draw by the chances of the plan. Each request draws from a stream of its own, which it gets when it
// begins, so that its path does not depend on the policy.
type RandomChoices struct {
	workflows          *WorkflowTables
	appStreams         []*rand.Rand
	requestStreams     []rand.PCG                      // by request
	currentTokenStream *rand.PCG                       // stream that tokens are drawn from
	tokenDraws         []func() (prompt, output int32) // by generation step
}

// Uint64 draws from the stream of the request whose tokens are drawn. It implements rand.Source.
func (d *RandomChoices) Uint64() uint64 { return d.currentTokenStream.Uint64() }

// NewRandomChoices returns choices that are drawn by the plan's chances from random streams of a seed. Each request has
// a stream of its own, seeded from that of its application, so its course does not depend on the order of events.
func NewRandomChoices(workflows *WorkflowTables, tables *policy.Tables, seed uint64) *RandomChoices {
	choices := &RandomChoices{workflows: workflows}
	for i := range tables.Models {
		choices.appStreams = append(choices.appStreams, seeded.New(seed, "requests/"+tables.Models[i].Name))
	}

	// Token lengths are drawn by functions that keep their source of random numbers. That source is the choices
	// themselves: Uint64 reads the stream of the request that TokenLengths sets before each draw.
	rng := rand.New(choices)
	for _, step := range workflows.GenerationSteps {
		choices.tokenDraws = append(choices.tokenDraws, step.tokenDraw(rng))
	}
	return choices
}

// BeginRequest seeds the random stream of a request from that of its application. It implements Choices.
func (d *RandomChoices) BeginRequest(req, app int32) {
	for int(req) >= len(d.requestStreams) {
		d.requestStreams = append(d.requestStreams, rand.PCG{})
	}
	d.requestStreams[req].Seed(d.appStreams[app].Uint64(), d.appStreams[app].Uint64())
}

// TokenLengths draws the tokens of prompt and answer of a request's task at a generation step, from the request's
// stream. It implements TokenChoices.
func (d *RandomChoices) TokenLengths(req, step int32) (prompt, output int32) {
	d.currentTokenStream = &d.requestStreams[req]
	return d.tokenDraws[step]()
}

// uniform draws a number from [0,1) from a request's stream.
func (d *RandomChoices) uniform(req int32) float64 {
	return float64(d.requestStreams[req].Uint64()>>11) / (1 << 53)
}

// drawIndex draws an index of chances, which sum to 1, from the random stream of a request.
func (d *RandomChoices) drawIndex(req int32, chances []float64) int32 {
	return indexAt(chances, d.uniform(req))
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

// ChooseRoute draws which of a step's services (routes) a task takes, by the plan's shares. It implements Choices.
func (d *RandomChoices) ChooseRoute(req, app, segment, _, step, _ int32) int32 {
	return d.drawIndex(req, d.workflows.Apps[app].Segments[segment].Steps[step].RouteShares)
}

// ChooseNext draws the branch that a request takes behind a segment, among the open ones, by the chances of the
// plan at this visit. It implements Choices.
func (d *RandomChoices) ChooseNext(req, app, segment, visit int32, openBranches []bool) int32 {
	segmentRow := &d.workflows.Apps[app].Segments[segment]

	// Sum the chances of the open branches.
	sum, lastOpen := 0.0, int32(0)
	for branch := range openBranches {
		if openBranches[branch] {
			sum += segmentRow.Branches[branch].ProbabilityAt(int(visit))
		}
	}

	// Draw one of them by its part of the sum.
	remaining := d.uniform(req) * sum
	for branch := range openBranches {
		if !openBranches[branch] {
			continue
		}
		lastOpen = int32(branch)
		remaining -= segmentRow.Branches[branch].ProbabilityAt(int(visit))
		if remaining < 0 {
			break
		}
	}
	return lastOpen
}
