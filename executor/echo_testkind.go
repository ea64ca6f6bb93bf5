//go:build testkind

package executor

import (
	"context"
	"time"

	"inferplan/executor/turn"
	"inferplan/executor/workers"
	"inferplan/policy"
	"inferplan/policy/echo"
)

func init() { moreBackends = append(moreBackends, newEchoes) }

// echoBackend executes the instances of the kind echo within this process. Every batch on one makes eight tokens, one
// per millisecond, and answers with what it has read.
type echoes struct {
	c    *turn.Core
	own  []int32              // devices
	live map[uint64]*speaking // by the serial of the batch
	kept map[int32]int32      // by task: tokens of batches that were evicted
}

// echoRun is a batch that runs.
type speaking struct {
	b       *turn.Batch
	tokens  int32
	evicted bool
}

// Kinds of events of the backend.
const (
	tokenCame uint8 = iota
	sentBack
)

// echoTokens is the number of tokens of an answer.
const echoTokens = 8

// newEchoBackend returns the backend of a core's instances, and their devices. If the plan is of another kind, it
// returns nil.
func newEchoes(c *turn.Core) (turn.Backend, []int32) {
	if echo.Of(c.Tables) == nil {
		return nil, nil
	}
	e := &echoes{c: c, live: map[uint64]*speaking{}, kept: map[int32]int32{}}
	for d := range c.Tables.Devices {
		if c.Tables.InstanceOf(int32(d)) >= 0 {
			e.own = append(e.own, int32(d))
		}
	}
	return e, e.own
}

// Start gives the services on instances the tensors that the plan names.
func (e *echoes) Start(context.Context) error {
	t := e.c.Tables
	for s := range t.Stages {
		if on := t.DevicesOf(int32(s)); e.c.BackendOf(on[0]) != e {
			continue
		}
		m := e.c.Services[t.Pipelines[t.Stages[s].Pipeline].Service]
		d := &e.c.Plan.Deployment[t.Stages[s].Pipeline]
		inputs, err := workers.Specs(d.Inputs, false, "input")
		if err != nil {
			return err
		}
		outputs, err := workers.Specs(d.Outputs, false, "output")
		if err != nil {
			return err
		}
		if err := m.SetTensors(&m.Inputs, inputs, "input"); err != nil {
			return err
		}
		if err := m.SetTensors(&m.Outputs, outputs, "output"); err != nil {
			return err
		}
	}
	return nil
}

func (e *echoes) Begin() {}

// postLater posts an event after d.
func (e *echoes) later(d time.Duration, n turn.News) {
	time.AfterFunc(d, func() { e.c.Post(n) })
}

// Run starts a batch, with the tokens that it made before it was evicted.
func (e *echoes) Run(b *turn.Batch) {
	e.live[b.Serial] = &speaking{b: b, tokens: e.kept[b.Tasks[0]]}
	delete(e.kept, b.Tasks[0])
	e.c.Began(b, b.Device(), e.c.Now())
	e.later(time.Millisecond, turn.News{Kind: tokenCame, Device: b.Device(), Id: b.Serial})
}

// Took handles an event.
func (e *echoes) Took(n *turn.News) {
	s := e.live[n.Id]
	if s == nil {
		return
	}
	switch {
	case n.Kind == sentBack:
		delete(e.live, n.Id)
		e.c.Returned(s.b, policy.ReturnEvicted, []int32{s.tokens})
	case !s.evicted:
		e.token(s)
	}
}

// addToken gives a batch its next token. After the last one the batch is answered.
func (e *echoes) token(s *speaking) {
	b := s.b
	if s.tokens++; s.tokens < echoTokens {
		e.later(time.Millisecond, turn.News{Kind: tokenCame, Device: b.Device(), Id: b.Serial})
		e.c.Progressed(b, s.tokens)
		return
	}
	delete(e.live, b.Serial)
	now := e.c.Now()
	e.c.Answers.Ran(b, said{e.c, b})
	e.c.FinishHop(b, b.Device(), b.Dispatched, now)
}

// echoOutputs are the outputs of a batch: what it has read.
type said struct {
	c *turn.Core
	b *turn.Batch
}

// Output implements turn.Outputs.
func (s said) Output(i int) []byte {
	size := s.b.Service.Outputs[i].Bytes
	out := make([]byte, size*len(s.b.Tasks))
	for k, t := range s.b.Tasks {
		copy(out[k*size:(k+1)*size], s.c.Answers.Input(t, i))
	}
	return out
}

func (e *echoes) Abort(b *turn.Batch) { delete(e.live, b.Serial) }

// Evict returns a batch to the policy. With keep, its tokens are kept for its next run.
func (e *echoes) Evict(b *turn.Batch, keep bool) {
	s := e.live[b.Serial]
	if s == nil {
		return
	}
	if s.evicted = true; keep {
		e.kept[b.Tasks[0]] = s.tokens
	}
	e.later(0, turn.News{Kind: sentBack, Device: b.Device(), Id: b.Serial})
}

// Load refuses all orders.
func (e *echoes) Load(o turn.Order) {
	now := e.c.Now()
	e.c.Loaded(&o, now, now, policy.ReturnRefused)
}

// Place answers at once.
func (e *echoes) Place(task, device, ticket int32) {
	now := e.c.Now()
	e.c.Placed(task, device, ticket, now, now)
}

func (e *echoes) Room()                             {}
func (e *echoes) Look(time.Duration, time.Duration) {}
func (e *echoes) Up(int32) bool                     { return true }
func (e *echoes) Close(context.Context)             {}
