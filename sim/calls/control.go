package calls

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"

	"inferplan/formats/calls"
	"inferplan/formats/seeded"
	"inferplan/policy"
)

// Application is a program with what its requests bring.
type Application struct {
	Program    calls.Program
	Parameters func(rng *rand.Rand) map[string]any // nil: nothing
}

// Answer makes what a task puts out, piece by piece; the last piece is its output
// as a whole.
type Answer func(c *calls.Call, rng *rand.Rand) []calls.Outputs

// Control runs programs as the requests of a simulated run. It implements
// policy.Control.
type Control struct {
	apps     []Application // by model
	services map[string]int32
	answer   Answer
	streams  []*rand.Rand // by model
	// Answered hears of the answer of every request; nil: nobody.
	Answered func(req int32, answer calls.Outputs, err error)

	requests []*session
	tasks    []int32 // request by task slot
}

// NewControl makes the control of a run over tables, whose models the applications
// are, in order.
func NewControl(t *policy.Tables, apps []Application, answer Answer, seed uint64) (*Control, error) {
	if len(apps) != len(t.Models) {
		return nil, fmt.Errorf("simulating programs: %d applications, the plan has %d", len(apps), len(t.Models))
	}
	c := &Control{apps: apps, services: map[string]int32{}, answer: answer}
	for s := range t.Services {
		c.services[t.Services[s].Name] = int32(s)
	}
	for i := range t.Models {
		c.streams = append(c.streams, seeded.New(seed, "requests/"+t.Models[i].Name))
	}
	return c, nil
}

// session is a request of a run.
type session struct {
	control    *Control
	rng        *rand.Rand
	parameters map[string]any
	calls      []call
	fresh      []int // calls that are not revealed yet
	waits      []int // calls that the program waits for
	open       int   // calls that have not ended
	over       bool  // the program has returned
	gone       bool  // the request has ended before it
	answer     calls.Outputs
	err        error
	next       func() (struct{}, bool)
	stop       func()
	yield      func(struct{}) bool
}

// call is a task of a request.
type call struct {
	calls.Call
	service int32
	reads   []int
	slot    int32
	ended   bool
	pieces  []calls.Outputs
}

// Begin implements policy.Control.
func (c *Control) Begin(req, model int32, out *policy.Reveals) {
	for int(req) >= len(c.requests) {
		c.requests = append(c.requests, nil)
	}
	s := &session{control: c, rng: rand.New(rand.NewPCG(c.streams[model].Uint64(), c.streams[model].Uint64()))}
	c.requests[req] = s
	if p := c.apps[model].Parameters; p != nil {
		s.parameters = p(s.rng)
	}
	program := c.apps[model].Program
	s.next, s.stop = iter.Pull(func(yield func(struct{}) bool) {
		s.yield = yield
		s.answer, s.err = program(s)
		s.over = true
	})
	c.resume(req, out)
}

// resume lets a program run until it waits, and reveals what it has enqueued.
func (c *Control) resume(req int32, out *policy.Reveals) {
	s := c.requests[req]
	if !s.over {
		s.next()
	}
	for _, i := range s.fresh {
		k := &s.calls[i]
		k.slot = out.Take()
		for int(k.slot) >= len(c.tasks) {
			c.tasks = append(c.tasks, 0)
		}
		c.tasks[k.slot] = req
		r := policy.Reveal{Req: req, Task: k.slot, Service: k.service, FirstInput: int32(len(out.Inputs))}
		if k.Work > 0 && k.Work != 1 {
			r.Work = max(1, int64(k.Work*1e6+.5))
		}
		for _, in := range k.reads {
			out.Inputs = append(out.Inputs, s.calls[in].slot)
		}
		if len(k.reads) == 0 {
			out.Inputs = append(out.Inputs, -1)
		}
		r.NumInputs = int32(len(out.Inputs)) - r.FirstInput
		out.Tasks = append(out.Tasks, r)
	}
	s.open += len(s.fresh)
	s.fresh = s.fresh[:0]
	if s.over && s.open == 0 {
		out.Over = append(out.Over, req)
		c.Forget(req, out)
	}
}

// Ended implements policy.Control.
func (c *Control) Ended(task int32, _ policy.Outcome, out *policy.Reveals) {
	req := c.tasks[task]
	s := c.requests[req]
	at := slices.IndexFunc(s.calls, func(k call) bool { return k.slot == task && !k.ended })
	k := &s.calls[at]
	k.ended = true
	k.pieces = c.answer(&k.Call, s.rng)
	s.open--
	if s.over || !slices.ContainsFunc(s.waits, func(i int) bool { return !s.calls[i].ended }) {
		c.resume(req, out)
	}
}

// Forget implements policy.Control.
func (c *Control) Forget(req int32, out *policy.Reveals) {
	if int(req) >= len(c.requests) || c.requests[req] == nil {
		return
	}
	s := c.requests[req]
	c.requests[req] = nil
	if s.stop(); c.Answered != nil {
		c.Answered(req, s.answer, s.err)
	}
	for i := range s.calls {
		if s.calls[i].slot >= 0 {
			out.Freed = append(out.Freed, s.calls[i].slot)
		}
	}
}
