package programs

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"inferplan/executor/calls"
	"inferplan/executor/turn"
	form "inferplan/formats/calls"
	"inferplan/policy"
)

// programBackend runs workflows as code on a plan of workflows: a program asks for tasks over HTTP in place of the
// plan's segments. The policy places these tasks and expects the next ones, as it does with all others. It implements
// calls.Backend.
type programBackend struct {
	currentCore func() *turn.Core // returns the core of the plan in force
	isDraining  func() bool       // returns true if no new request is accepted

	mu       sync.Mutex
	sessions map[string]*session // by name of the request
}

// workflowAnswerer is the answerer of a plan of workflows.
type workflowAnswerer interface {
	turn.Answerer
	// HasWorkflows returns true if the plan has workflows.
	HasWorkflows() bool
	// Ledger returns the tasks of the requests.
	Ledger() *policy.TaskLedger
	// PreStepOf returns the step before a service's model in an application, and the bytes of the tensors that it reads. If
	// there is none, the name is empty.
	PreStepOf(service, app int32) (name string, reads []int)
	// ReserveBytes reserves bytes of the store, or releases them if negative. It returns false if there is no space.
	ReserveBytes(bytes int64) bool
	// SetTaskValues keeps the values that a program gave a task. Their bytes are reserved.
	SetTaskValues(task int32, tensors [][]byte, bytes int)
	// TaskOutputs returns the outputs of a task, one after the other; nil if it has none.
	TaskOutputs(task int32) []byte
}

// session is a request whose program asks for its tasks in place of the plan. It is the request's policy.Control.
type session struct {
	core     *turn.Core
	answerer workflowAnswerer
	app      int32

	inputBytes int64 // bytes of the request's inputs; 0 if it has none

	// The next fields belong to the core's turn.
	job        *turn.Job // nil once it has ended
	slot       int32
	events     calls.TaskListener    // is told of the tasks that have ended
	handleOf   map[int32]form.Handle // by task slot
	slotOf     map[form.Handle]int32
	openTasks  int  // tasks that have not ended
	slotsFreed bool // the slots of its tasks are freed
	isBooked   bool // inputBytes are reserved in the store
}

// New returns the backend for the HTTP form of workflows as code.
func New(currentCore func() *turn.Core, isDraining func() bool) calls.Backend {
	return &programBackend{currentCore: currentCore, isDraining: isDraining, sessions: map[string]*session{}}
}

// MaxMessageBytes returns how many bytes a message of a program (a client that runs a workflow as code and sends its
// tasks over HTTP) may have: enough for the inputs of the largest model, written as JSON. It implements calls.Backend.
func (p *programBackend) MaxMessageBytes() int64 {
	c := p.currentCore()
	maxElements := 0
	for _, m := range slices.Concat(c.ServedModels.Models, c.Services) {
		elements := 0
		for i := range m.Inputs {
			elements += m.Inputs[i].Bytes / max(1, m.Inputs[i].Datatype.Size())
		}
		maxElements = max(maxElements, elements)
	}
	return jsonBytesPerElement*int64(maxElements) + jsonOverhead
}

// JSON text of an element that a client writes with all its digits, and of what surrounds the tensors of a message, in
// bytes.
const (
	jsonBytesPerElement = 32
	jsonOverhead        = 64 << 10
)

// BeginRequest opens a request of an application for a program: a client that runs a workflow as code and names the
// tasks one by one. request is the name of the request in later calls. It creates its session and job, submits the job,
// and returns the time until its deadline. It implements calls.Backend.
func (p *programBackend) BeginRequest(request string, open *form.Open) (time.Duration, error) {
	c := p.currentCore()
	f, ok := c.Answerer.(workflowAnswerer)
	if !ok || !f.HasWorkflows() {
		return 0, fmt.Errorf("application: found %.40q, but the plan in force has no workflows", open.Application)
	}

	// Find the application.
	i := slices.IndexFunc(c.ServedModels.Models, func(m *turn.Model) bool { return m.Name == open.Application })
	if i < 0 {
		return 0, fmt.Errorf("application: found %.40q, expected one of the plan in force", open.Application)
	}

	// Create the session and its job, with the deadline.
	s := &session{core: c, answerer: f, app: int32(i), slot: -1, handleOf: map[int32]form.Handle{}, slotOf: map[form.Handle]int32{}}
	j := turn.NewJob(c.ServedModels.Models[i], 1)
	j.Program, j.Answerer, j.ArrivedAt = s, c.Answerer, c.Loop.Now()
	j.Client = policy.ClientNumber(open.Client)
	budget := j.Model.Slo
	if open.TimeoutMS > 0 {
		budget = min(budget, time.Duration(open.TimeoutMS*float64(time.Millisecond)))
	}
	s.job, j.Deadline = j, j.ArrivedAt+budget
	if err := s.readInputs(open.Inputs); err != nil {
		j.ReleaseUntaken()
		return 0, err
	}

	// Submit the job, and reserve its inputs.
	if p.isDraining() || !c.Inbox.SubmitJob(j) {
		j.ReleaseUntaken()
		return 0, calls.ErrDraining
	}
	// From here on the job belongs to the core, too, and awaitEnd releases it.
	go s.awaitEnd(j)
	var refusal error
	c.Loop.CallInRound(func() { refusal = s.bookInputs() }) // a core that has ended answers the job itself
	if refusal != nil {
		return 0, refusal
	}
	p.mu.Lock()
	p.sessions[request] = s
	p.mu.Unlock()
	return budget, nil
}

// readInputs reads the inputs of a request from JSON into its job, and counts their bytes: a value for each input of its
// application, or none at all if the tasks bring their own. It returns an error for an unknown or missing one.
func (s *session) readInputs(inputs map[string]any) error {
	list := s.job.Model.Inputs
	for name := range inputs {
		if !slices.ContainsFunc(list, func(in turn.Tensor) bool { return in.Name == name }) {
			return fmt.Errorf("inputs: found %.40q, expected inputs of %s: %v", name, s.job.Model.Name, turn.SpecsOf(list))
		}
	}
	for i := range list {
		if len(inputs) == 0 {
			return nil
		}
		v, ok := inputs[list[i].Name]
		if !ok {
			return fmt.Errorf("inputs: found no %s, expected all inputs of %s: %v", list[i].Name, s.job.Model.Name, turn.SpecsOf(list))
		}
		data, err := parseSample(&list[i], v)
		if err != nil {
			return fmt.Errorf("inputs.%s: %w", list[i].Name, err)
		}
		s.job.Inputs = append(s.job.Inputs, data)
		s.inputBytes += int64(len(data))
	}
	return nil
}

// bookInputs reserves memory for the inputs that a message adds to the session's request. If there is too little, it
// refuses the whole request, and returns an error that says when to try again. If the request accepts no more tasks, it
// returns the reason. It runs in a round of the core.
func (s *session) bookInputs() error {
	if err := s.refusalError(); err != nil {
		return err
	}
	if s.isBooked = s.answerer.ReserveBytes(s.inputBytes); s.isBooked {
		return nil
	}
	s.core.Ledger.RefuseJob(s.job, policy.ReasonCancelled)
	s.core.Flush()
	return &calls.RefusedError{Reason: policy.ReasonQueueFull.String(), RetryAfter: time.Second}
}

// refusalError returns why the session's request accepts no more tasks: it has ended, was refused, or the server drains.
// If it accepts more, it returns nil. The caller is in a round of the core.
func (s *session) refusalError() error {
	switch {
	case s.job == nil:
		return form.ErrEnded
	case s.job.Answered && s.job.Reason == policy.ReasonDraining:
		return calls.ErrDraining
	case s.job.Answered:
		return &calls.RefusedError{Reason: s.job.Reason.String(), RetryAfter: time.Second}
	}
	return nil
}

// awaitEnd runs in the background from the start of a request until its job is answered. Then tasks that have not
// ended have failed, and the reserved memory of the inputs is given back.
func (s *session) awaitEnd(j *turn.Job) {
	<-j.Done
	var err error
	if j.Outcome != turn.OutcomeServed {
		err = j.ClientError()
	}
	endSession := func() {
		if s.job = nil; s.isBooked {
			s.answerer.ReserveBytes(-s.inputBytes)
		}
		for _, h := range s.handleOf {
			s.events.TaskEnded(h, nil, err) // changes nothing for tasks that have ended
		}
	}
	if !s.core.Loop.CallInRound(endSession) {
		endSession() // the core has ended, so no other goroutine uses the session
	}
	j.Release()
}

// sessionOf returns the session of a request. If it is unknown, it returns nil.
func (p *programBackend) sessionOf(request string) *session {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sessions[request]
}

// taskCall is a task that a program asks for, with the values that the program gives it, by input.
type taskCall struct {
	*calls.Task
	service    int32
	values     [][]byte // by input; nil if it is read from another task
	valueBytes int      // bytes of the values
}

// Enqueue adds tasks to a request: it checks them outside of the core's loop and reveals them to the policy in it.
// events hears of their ends. If one is wrong, none is added. It implements calls.Backend.
func (p *programBackend) Enqueue(request string, tasks []calls.Task, events calls.TaskListener) error {
	s := p.sessionOf(request)
	if s == nil {
		return form.ErrEnded
	}
	var list []taskCall
	for i := range tasks {
		a, err := s.parseTask(&tasks[i])
		if err != nil {
			return fmt.Errorf("tasks[%d].%w", i, err)
		}
		list = append(list, a)
	}
	err := calls.ErrDraining
	s.core.Loop.CallInRound(func() { err = s.revealTasks(list, events) })
	return err
}

// parseTask finds the model of a task in the plan and turns its JSON values into tensors. It returns an error, with
// the field, for an unknown model or input. A model with a step before it takes no values, because the step makes
// them.
func (s *session) parseTask(t *calls.Task) (a taskCall, err error) {
	a.Task = t
	a.service = int32(slices.IndexFunc(s.core.Services, func(m *turn.Model) bool { return m.Name == t.Model }))
	if a.service < 0 {
		return a, fmt.Errorf("model: found %.40q, expected one of the plan in force", t.Model)
	}
	model := s.core.Services[a.service]
	if pre, _ := s.answerer.PreStepOf(a.service, s.app); pre != "" && (s.inputBytes == 0 || len(t.Inputs) > 0) {
		return a, fmt.Errorf("model: %s has the step %s before it, which makes its inputs of those of the request: open the request with inputs, and give the task none", model.Name, pre)
	}
	a.values = make([][]byte, len(model.Inputs))
	for name, v := range t.Inputs {
		i := slices.IndexFunc(model.Inputs, func(in turn.Tensor) bool { return in.Name == name })
		if i < 0 {
			return a, fmt.Errorf("inputs: found %.40q, expected inputs of %s: %v", name, model.Name, turn.SpecsOf(model.Inputs))
		}
		if a.values[i], err = parseSample(&model.Inputs[i], v); err != nil {
			return a, fmt.Errorf("inputs.%s: %w", name, err)
		}
		a.valueBytes += len(a.values[i])
	}
	return a, nil
}

// revealTasks passes the tasks of one message to the policy, all or none. They must fit the outputs that they read, and
// there must be memory for their values. events is told when they end. It runs in a round of the core.
func (s *session) revealTasks(list []taskCall, events calls.TaskListener) error {
	f := s.answerer
	if err := s.refusalError(); err != nil {
		return err
	}

	// Check that all of them fit, and reserve the bytes of their values.
	listedServices := map[form.Handle]int32{} // services of the tasks in the list
	size := int64(0)
	for i := range list {
		if err := s.checkReads(&list[i], listedServices); err != nil {
			return fmt.Errorf("tasks[%d].reads: %w", i, err)
		}
		listedServices[list[i].Handle] = list[i].service
		size += int64(list[i].valueBytes)
	}
	if !f.ReserveBytes(size) {
		return &calls.RefusedError{Reason: policy.ReasonQueueFull.String(), RetryAfter: time.Second}
	}

	// Add the tasks to the ledger.
	s.events = events
	ledger := f.Ledger()
	out := &ledger.Reveals
	for i := range list {
		a := &list[i]
		slot := out.TakeSlot()
		r := policy.RevealedTask{Req: s.slot, Task: slot, Service: a.service, FirstInput: int32(len(out.Inputs)), NumInputs: int32(max(1, len(a.Reads)))}
		// Work is the part of the model's usual time that the task takes, for the policy in millionths; 0 stands for 1.
		// An input of -1 stands for the inputs of the request.
		if a.Work != 0 && a.Work != 1 {
			r.Work = max(1, int64(a.Work*1e6+.5))
		}
		for _, h := range a.Reads {
			out.Inputs = append(out.Inputs, s.slotOf[h])
		}
		if len(a.Reads) == 0 {
			out.Inputs = append(out.Inputs, -1)
		}
		f.SetTaskValues(slot, a.values, a.valueBytes)
		s.handleOf[slot], s.slotOf[a.Handle] = a.Handle, slot
		out.Tasks = append(out.Tasks, r)
	}

	// Tell the policy.
	s.openTasks += len(list)
	ledger.OutsideBatchEnd = true
	ledger.RevealTasks()
	ledger.OutsideBatchEnd = false
	ledger.BringReadyInputs()
	s.core.Flush()
	return nil
}

// checkReads returns an error unless the tensors that a task reads from other tasks fit: in order they must be the
// model's inputs for which the task has no value, or the inputs of the step before its model. listedServices has the
// services of the tasks of the same message, which have no slot yet.
func (s *session) checkReads(a *taskCall, listedServices map[form.Handle]int32) error {
	model, i := s.core.Services[a.service], 0
	readList, err := s.readTensors(a, listedServices)
	if err != nil {
		return err
	}

	// A step before the model reads all of them.
	if pre, reads := s.answerer.PreStepOf(a.service, s.app); pre != "" {
		sameBytes := func(g turn.Tensor, size int) bool { return g.Bytes == size }
		if len(a.Reads) == 0 {
			readList = nil // the step reads the request's inputs itself
		}
		if !slices.EqualFunc(readList, reads, sameBytes) {
			return fmt.Errorf("found %v, and the step %s before the model %s reads %d tensors of %v bytes", turn.SpecsOf(readList), pre, a.Model, len(reads), reads)
		}
		return nil
	}

	// Otherwise they are the inputs without a value, in order.
	for _, t := range readList {
		for i < len(model.Inputs) && a.values[i] != nil {
			i++
		}
		if i == len(model.Inputs) || t.Bytes != model.Inputs[i].Bytes || t.Datatype != model.Inputs[i].Datatype {
			if len(a.Reads) == 0 {
				break
			}
			return fmt.Errorf("found %v, and the model %s takes %v", turn.SpecsOf(readList), a.Model, turn.SpecsOf(model.Inputs))
		}
		i++
	}
	for ; i < len(model.Inputs); i++ {
		if a.values[i] == nil {
			return fmt.Errorf("nothing gives the input %s of the model %s", model.Inputs[i].Name, a.Model)
		}
	}
	return nil
}

// readTensors returns the tensors that a task reads: the outputs of the tasks that it names, or else the inputs of
// the request. listedServices has the services of tasks of the same message.
func (s *session) readTensors(a *taskCall, listedServices map[form.Handle]int32) (out []turn.Tensor, err error) {
	for _, h := range a.Reads {
		service, ok := listedServices[h]
		if slot, isEarlier := s.slotOf[h]; isEarlier {
			service, ok = s.answerer.Ledger().List[slot].Service, true
		}
		if !ok {
			return nil, fmt.Errorf("%w: %q", form.ErrUnknown, h)
		}
		out = append(out, s.core.Services[service].Outputs...)
	}
	if len(a.Reads) == 0 && s.inputBytes > 0 {
		out = s.job.Model.Inputs
	}
	return out, nil
}

// BeginRequest implements policy.Control: it records the slot of the request.
func (s *session) BeginRequest(slot, _ int32, _ *policy.RevealedTasks) { s.slot = slot }

// TaskEnded tells the client's program that one of its tasks has ended, with its outputs. The program, not the
// plan, decides what follows. It implements policy.Control.
func (s *session) TaskEnded(task int32, _ policy.Outcome, _ *policy.RevealedTasks) {
	s.openTasks--
	if outputs := s.answerer.TaskOutputs(task); outputs != nil {
		s.events.TaskEnded(s.handleOf[task], taskOutputs(s.core.Services[s.answerer.Ledger().List[task].Service].Outputs, outputs), nil)
	}
}

// ForgetRequest adds to out.UnreadTasks the slots of all tasks of the session's request, which has ended, so that the
// ledger frees them and their outputs; once only. They are in ascending order, so that runs are reproducible. It
// implements policy.Control.
func (s *session) ForgetRequest(_ int32, out *policy.RevealedTasks) {
	if s.slotsFreed {
		return
	}
	s.slotsFreed = true
	first := len(out.UnreadTasks)
	for slot := range s.handleOf {
		out.UnreadTasks = append(out.UnreadTasks, slot)
	}
	slices.Sort(out.UnreadTasks[first:])
}

// EndRequest ends a program's request, by its name, when the client ends it. If tasks are under way, the request is
// cancelled. Otherwise the policy is told that it is complete, and its job is answered. An unknown name is ignored. It
// implements calls.Backend.
func (p *programBackend) EndRequest(request string) {
	s := p.sessionOf(request)
	if s == nil {
		return
	}
	p.mu.Lock()
	delete(p.sessions, request)
	p.mu.Unlock()
	s.core.Loop.CallInRound(func() {
		switch {
		case s.job == nil || s.job.Answered:
		case s.openTasks > 0:
			s.core.Ledger.RefuseJob(s.job, policy.ReasonCancelled)
		default:
			ledger := s.answerer.Ledger()
			ledger.Reveals.EndedRequests = append(ledger.Reveals.EndedRequests, s.slot)
			ledger.ForgetRequest(s, s.slot)
		}
		s.core.Flush()
	})
}
