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
type programs struct {
	inForce  func() *turn.Core // returns the core of the plan in force
	draining func() bool       // returns true if no new request is accepted

	mu   sync.Mutex
	open map[string]*session // by name of the request
}

// workflowAnswerer is the answerer of a plan of workflows.
type answers interface {
	turn.Answer
	// HasWorkflows returns true if the plan has workflows.
	Workflows() bool
	// Ledger returns the tasks of the requests.
	Ledger() *policy.TaskLedger
	// PreStepOf returns the step before a service's model in an application, and the bytes of the tensors that it reads. If
	// there is none, the name is empty.
	Before(service, app int32) (name string, reads []int)
	// ReserveBytes reserves bytes of the store, or releases them if negative. It returns false if there is no space.
	Book(bytes int64) bool
	// SetTaskValues keeps the values that a program gave a task. Their bytes are reserved.
	Give(task int32, tensors [][]byte, bytes int)
	// TaskOutputs returns the outputs of a task, one after the other; nil if it has none.
	Made(task int32) []byte
}

// session is a request whose program asks for its tasks in place of the plan. It is the request's policy.Control.
type session struct {
	c   *turn.Core
	f   answers
	app int32

	brought int64 // bytes of the request's inputs; 0 if it has none

	// The next fields belong to the core's turn.
	j       *turn.Job // nil once it has ended
	slot    int32
	news    calls.News            // is told of the tasks that have ended
	handles map[int32]form.Handle // by task slot
	slots   map[form.Handle]int32
	left    int  // tasks that have not ended
	free    bool // the slots of its tasks are freed
	counted bool // inputBytes are reserved in the store
}

// New returns the backend for the HTTP form of workflows as code.
func New(inForce func() *turn.Core, draining func() bool) calls.Backend {
	return &programs{inForce: inForce, draining: draining, open: map[string]*session{}}
}

// MessageBytes implements calls.Backend.
func (p *programs) MessageBytes() int64 {
	c := p.inForce()
	most := 0
	for _, m := range slices.Concat(c.Served.Models, c.Services) {
		elements := 0
		for i := range m.Inputs {
			elements += m.Inputs[i].Bytes / max(1, m.Inputs[i].Datatype.Size())
		}
		most = max(most, elements)
	}
	return textOfElement*int64(most) + textBeside
}

// JSON text of an element that a client writes with all its digits, and of what surrounds the tensors of a message, in
// bytes.
const (
	textOfElement = 32
	textBeside    = 64 << 10
)

// Begin implements calls.Backend.
func (p *programs) Begin(request string, open *form.Open) (time.Duration, error) {
	c := p.inForce()
	f, ok := c.Answers.(answers)
	if !ok || !f.Workflows() {
		return 0, fmt.Errorf("application: found %.40q, but the plan in force has no workflows", open.Application)
	}

	// Find the application.
	i := slices.IndexFunc(c.Served.Models, func(m *turn.Model) bool { return m.Name == open.Application })
	if i < 0 {
		return 0, fmt.Errorf("application: found %.40q, expected one of the plan in force", open.Application)
	}

	// Create the session and its job, with the deadline.
	s := &session{c: c, f: f, app: int32(i), slot: -1, handles: map[int32]form.Handle{}, slots: map[form.Handle]int32{}}
	j := turn.NewJob(c.Served.Models[i], 1)
	j.Program, j.Answers, j.Arrived = s, c.Answers, c.Now()
	j.Client = policy.ClientNumber(open.Client)
	budget := j.Model.Slo
	if open.TimeoutMS > 0 {
		budget = min(budget, time.Duration(open.TimeoutMS*float64(time.Millisecond)))
	}
	s.j, j.Deadline = j, j.Arrived+budget
	if err := s.bring(open.Inputs); err != nil {
		j.Forget()
		return 0, err
	}

	// Submit the job, and reserve its inputs.
	if p.draining() || !c.Submit(j) {
		j.Forget()
		return 0, calls.ErrDraining
	}
	go s.watch(j)
	var refusal error
	c.Call(func() { refusal = s.begin() }) // a core that has ended answers the job itself
	if refusal != nil {
		return 0, refusal
	}
	p.mu.Lock()
	p.open[request] = s
	p.mu.Unlock()
	return budget, nil
}

// readInputs reads the inputs of a request: all inputs of its application, or none.
func (s *session) bring(inputs map[string]any) error {
	list := s.j.Model.Inputs
	for name := range inputs {
		if !slices.ContainsFunc(list, func(in turn.Tensor) bool { return in.Name == name }) {
			return fmt.Errorf("inputs: found %.40q, expected inputs of %s: %v", name, s.j.Model.Name, turn.SpecsOf(list))
		}
	}
	for i := range list {
		if len(inputs) == 0 {
			return nil
		}
		v, ok := inputs[list[i].Name]
		if !ok {
			return fmt.Errorf("inputs: found no %s, expected all inputs of %s: %v", list[i].Name, s.j.Model.Name, turn.SpecsOf(list))
		}
		data, err := tensorSample(&list[i], v)
		if err != nil {
			return fmt.Errorf("inputs.%s: %w", list[i].Name, err)
		}
		s.j.Inputs = append(s.j.Inputs, data)
		s.brought += int64(len(data))
	}
	return nil
}

// bookInputs reserves the bytes of a request's inputs. It runs in the core's turn.
func (s *session) begin() error {
	if err := s.refusal(); err != nil {
		return err
	}
	if s.counted = s.f.Book(s.brought); s.counted {
		return nil
	}
	s.c.Refuse(s.j, policy.ReasonCancelled)
	s.c.Flush()
	return &calls.Refused{Reason: policy.ReasonQueueFull.String(), Retry: time.Second}
}

// refusalError returns why a request accepts no more tasks. If it does, it returns nil.
func (s *session) refusal() error {
	switch {
	case s.j == nil:
		return form.ErrEnded
	case s.j.Answered && s.j.Reason == policy.ReasonDraining:
		return calls.ErrDraining
	case s.j.Answered:
		return &calls.Refused{Reason: s.j.Reason.String(), Retry: time.Second}
	}
	return nil
}

// awaitEnd waits for the end of a request. Tasks that have not ended by then have failed.
func (s *session) watch(j *turn.Job) {
	<-j.Done
	var err error
	if j.Outcome != turn.Served {
		err = j.Problem()
	}
	cut := func() {
		if s.j = nil; s.counted {
			s.f.Book(-s.brought)
		}
		for _, h := range s.handles {
			s.news.Ended(h, nil, err) // changes nothing for tasks that have ended
		}
	}
	if !s.c.Call(cut) {
		cut() // the core has ended, so no other goroutine uses the session
	}
	j.Release()
}

// sessionOf returns the session of a request. If it is unknown, it returns nil.
func (p *programs) find(request string) *session {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open[request]
}

// taskCall is a task that a program asks for, with the values that the program gives it, by input.
type asks struct {
	*calls.Task
	service int32
	own     [][]byte // by input; nil if it is read from another task
	size    int      // bytes of the values
}

// Enqueue implements calls.Backend.
func (p *programs) Enqueue(request string, tasks []calls.Task, news calls.News) error {
	s := p.find(request)
	if s == nil {
		return form.ErrEnded
	}
	var list []asks
	for i := range tasks {
		a, err := s.asks(&tasks[i])
		if err != nil {
			return fmt.Errorf("tasks[%d].%w", i, err)
		}
		list = append(list, a)
	}
	err := calls.ErrDraining
	s.c.Call(func() { err = s.enqueue(list, news) })
	return err
}

// parseTask finds a task's model and turns its values into tensors.
func (s *session) asks(t *calls.Task) (a asks, err error) {
	a.Task = t
	a.service = int32(slices.IndexFunc(s.c.Services, func(m *turn.Model) bool { return m.Name == t.Model }))
	if a.service < 0 {
		return a, fmt.Errorf("model: found %.40q, expected one of the plan in force", t.Model)
	}
	own := s.c.Services[a.service]
	if pre, _ := s.f.Before(a.service, s.app); pre != "" && (s.brought == 0 || len(t.Inputs) > 0) {
		return a, fmt.Errorf("model: %s has the step %s before it, which makes its inputs of those of the request: open the request with inputs, and give the task none", own.Name, pre)
	}
	a.own = make([][]byte, len(own.Inputs))
	for name, v := range t.Inputs {
		i := slices.IndexFunc(own.Inputs, func(in turn.Tensor) bool { return in.Name == name })
		if i < 0 {
			return a, fmt.Errorf("inputs: found %.40q, expected inputs of %s: %v", name, own.Name, turn.SpecsOf(own.Inputs))
		}
		if a.own[i], err = tensorSample(&own.Inputs[i], v); err != nil {
			return a, fmt.Errorf("inputs.%s: %w", name, err)
		}
		a.size += len(a.own[i])
	}
	return a, nil
}

// revealTasks reveals tasks to the policy. It runs in the core's turn.
func (s *session) enqueue(list []asks, news calls.News) error {
	f := s.f
	if err := s.refusal(); err != nil {
		return err
	}

	// Check that all of them fit, and reserve the bytes of their values.
	known := map[form.Handle]int32{} // services of the tasks in the list
	size := int64(0)
	for i := range list {
		if err := s.fits(&list[i], known); err != nil {
			return fmt.Errorf("tasks[%d].reads: %w", i, err)
		}
		known[list[i].Handle] = list[i].service
		size += int64(list[i].size)
	}
	if !f.Book(size) {
		return &calls.Refused{Reason: policy.ReasonQueueFull.String(), Retry: time.Second}
	}

	// Add the tasks to the ledger.
	s.news = news
	ledger := f.Ledger()
	out := &ledger.Reveals
	for i := range list {
		a := &list[i]
		slot := out.Take()
		r := policy.Reveal{Req: s.slot, Task: slot, Service: a.service, FirstInput: int32(len(out.Inputs)), NumInputs: int32(max(1, len(a.Reads)))}
		if a.Work != 0 && a.Work != 1 {
			r.Work = max(1, int64(a.Work*1e6+.5))
		}
		for _, h := range a.Reads {
			out.Inputs = append(out.Inputs, s.slots[h])
		}
		if len(a.Reads) == 0 {
			out.Inputs = append(out.Inputs, -1)
		}
		f.Give(slot, a.own, a.size)
		s.handles[slot], s.slots[a.Handle] = a.Handle, slot
		out.Tasks = append(out.Tasks, r)
	}

	// Tell the policy.
	s.left += len(list)
	ledger.Between = true
	ledger.Reveal()
	ledger.Between = false
	ledger.SendReady()
	s.c.Flush()
	return nil
}

// checkReads returns an error unless what a task reads matches the inputs that it was not given, or what the step before
// its model reads.
func (s *session) fits(a *asks, known map[form.Handle]int32) error {
	own, i := s.c.Services[a.service], 0
	given, err := s.given(a, known)
	if err != nil {
		return err
	}

	// A step before the model reads all of them.
	if pre, reads := s.f.Before(a.service, s.app); pre != "" {
		same := func(g turn.Tensor, size int) bool { return g.Bytes == size }
		if len(a.Reads) == 0 {
			given = nil // the step reads the request's inputs itself
		}
		if !slices.EqualFunc(given, reads, same) {
			return fmt.Errorf("found %v, and the step %s before the model %s reads %d tensors of %v bytes", turn.SpecsOf(given), pre, a.Model, len(reads), reads)
		}
		return nil
	}

	// Otherwise they are the inputs without a value, in order.
	for _, t := range given {
		for i < len(own.Inputs) && a.own[i] != nil {
			i++
		}
		if i == len(own.Inputs) || t.Bytes != own.Inputs[i].Bytes || t.Datatype != own.Inputs[i].Datatype {
			if len(a.Reads) == 0 {
				break
			}
			return fmt.Errorf("found %v, and the model %s takes %v", turn.SpecsOf(given), a.Model, turn.SpecsOf(own.Inputs))
		}
		i++
	}
	for ; i < len(own.Inputs); i++ {
		if a.own[i] == nil {
			return fmt.Errorf("nothing gives the input %s of the model %s", own.Inputs[i].Name, a.Model)
		}
	}
	return nil
}

// readTensors returns the tensors that a task reads: of other tasks, or else of the request.
func (s *session) given(a *asks, known map[form.Handle]int32) (out []turn.Tensor, err error) {
	for _, h := range a.Reads {
		service, ok := known[h]
		if slot, before := s.slots[h]; before {
			service, ok = s.f.Ledger().List[slot].Service, true
		}
		if !ok {
			return nil, fmt.Errorf("%w: %q", form.ErrUnknown, h)
		}
		out = append(out, s.c.Services[service].Outputs...)
	}
	if len(a.Reads) == 0 && s.brought > 0 {
		out = s.j.Model.Inputs
	}
	return out, nil
}

// Begin implements policy.Control: it records the slot of the request.
func (s *session) Begin(slot, _ int32, _ *policy.Reveals) { s.slot = slot }

// Ended implements policy.Control. It tells the program that a task has ended.
func (s *session) Ended(task int32, _ policy.Outcome, _ *policy.Reveals) {
	s.left--
	if made := s.f.Made(task); made != nil {
		s.news.Ended(s.handles[task], outputsOf(s.c.Services[s.f.Ledger().List[task].Service].Outputs, made), nil)
	}
}

// Forget implements policy.Control.
func (s *session) Forget(_ int32, out *policy.Reveals) {
	if s.free {
		return
	}
	s.free = true
	first := len(out.Freed)
	for slot := range s.handles {
		out.Freed = append(out.Freed, slot)
	}
	slices.Sort(out.Freed[first:])
}

// End implements calls.Backend.
func (p *programs) End(request string) {
	s := p.find(request)
	if s == nil {
		return
	}
	p.mu.Lock()
	delete(p.open, request)
	p.mu.Unlock()
	s.c.Call(func() {
		switch {
		case s.j == nil || s.j.Answered:
		case s.left > 0:
			s.c.Refuse(s.j, policy.ReasonCancelled)
		default:
			ledger := s.f.Ledger()
			ledger.Reveals.Over = append(ledger.Reveals.Over, s.slot)
			ledger.Forget(s, s.slot)
		}
		s.c.Flush()
	})
}
