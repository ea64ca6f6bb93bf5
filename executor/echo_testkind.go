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

func init() { testBackends = append(testBackends, newEchoBackend) }

// echoBackend executes the instances of the kind echo within this process. Every batch on one makes eight tokens, one
// per millisecond, and answers with what it has read.
type echoBackend struct {
	c             *turn.Core
	devices       []int32             // devices
	running       map[uint64]*echoRun // by the serial of the batch
	evictedTokens map[int32]int32     // by task: tokens of batches that were evicted
}

// echoRun is a batch that runs.
type echoRun struct {
	b       *turn.Batch
	tokens  int32
	evicted bool
}

// Kinds of events of the backend.
const (
	eventToken uint8 = iota
	eventReturned
)

// echoTokens is the number of tokens of an answer.
const echoTokens = 8

// newEchoBackend returns the backend of a core's instances, and their devices. If the plan is of another kind, it
// returns nil.
func newEchoBackend(c *turn.Core) (turn.Backend, []int32) {
	if echo.TablesOf(c.Tables) == nil {
		return nil, nil
	}
	e := &echoBackend{c: c, running: map[uint64]*echoRun{}, evictedTokens: map[int32]int32{}}
	for d := range c.Tables.Devices {
		if c.Tables.InstanceOf(int32(d)) >= 0 {
			e.devices = append(e.devices, int32(d))
		}
	}
	return e, e.devices
}

// Start gives the services on instances the tensors that the plan names.
func (e *echoBackend) Start(context.Context) error {
	t := e.c.Tables
	for s := range t.Stages {
		if devices := t.DevicesOf(int32(s)); e.c.Backends.BackendOf(devices[0]) != e {
			continue
		}
		m := e.c.Services[t.Pipelines[t.Stages[s].Pipeline].Service]
		d := &e.c.Plan.Deployment[t.Stages[s].Pipeline]
		inputs, err := workers.TensorSpecs(d.Inputs, false, "input")
		if err != nil {
			return err
		}
		outputs, err := workers.TensorSpecs(d.Outputs, false, "output")
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

func (e *echoBackend) LoopStarted() {}

// postLater posts an event after d.
func (e *echoBackend) postLater(d time.Duration, n turn.BackendEvent) {
	time.AfterFunc(d, func() { e.c.Inbox.PostEvents(n) })
}

// RunBatch starts a batch, with the tokens that it made before it was evicted.
func (e *echoBackend) RunBatch(b *turn.Batch) {
	e.running[b.Serial] = &echoRun{b: b, tokens: e.evictedTokens[b.Tasks[0]]}
	delete(e.evictedTokens, b.Tasks[0])
	e.c.Batches.TellStarted(b, b.Device(), e.c.Loop.Now())
	e.postLater(time.Millisecond, turn.BackendEvent{Kind: eventToken, Device: b.Device(), Id: b.Serial})
}

// HandleEvent handles an event.
func (e *echoBackend) HandleEvent(n *turn.BackendEvent) {
	s := e.running[n.Id]
	if s == nil {
		return
	}
	switch {
	case n.Kind == eventReturned:
		delete(e.running, n.Id)
		e.c.Batches.TellReturned(s.b, policy.ReturnEvicted, []int32{s.tokens})
	case !s.evicted:
		e.addToken(s)
	}
}

// addToken gives a batch its next token. After the last one the batch is answered.
func (e *echoBackend) addToken(s *echoRun) {
	b := s.b
	if s.tokens++; s.tokens < echoTokens {
		e.postLater(time.Millisecond, turn.BackendEvent{Kind: eventToken, Device: b.Device(), Id: b.Serial})
		e.c.Batches.TellProgress(b, s.tokens)
		return
	}
	delete(e.running, b.Serial)
	now := e.c.Loop.Now()
	e.c.Answerer.TakeOutputs(b, echoOutputs{e.c, b})
	e.c.Batches.FinishHop(b, b.Device(), b.DispatchedAt, now)
}

// echoOutputs are the outputs of a batch: what it has read.
type echoOutputs struct {
	c *turn.Core
	b *turn.Batch
}

// Output implements turn.BatchOutputs.
func (s echoOutputs) Output(i int) []byte {
	size := s.b.Service.Outputs[i].Bytes
	out := make([]byte, size*len(s.b.Tasks))
	for k, t := range s.b.Tasks {
		copy(out[k*size:(k+1)*size], s.c.Answerer.TaskInput(t, i))
	}
	return out
}

func (e *echoBackend) AbortBatch(b *turn.Batch) { delete(e.running, b.Serial) }

// EvictBatch returns a batch to the policy. With keep, its tokens are kept for its next run.
func (e *echoBackend) EvictBatch(b *turn.Batch, keepState bool) {
	s := e.running[b.Serial]
	if s == nil {
		return
	}
	if s.evicted = true; keepState {
		e.evictedTokens[b.Tasks[0]] = s.tokens
	}
	e.postLater(0, turn.BackendEvent{Kind: eventReturned, Device: b.Device(), Id: b.Serial})
}

// LoadNetwork refuses all orders.
func (e *echoBackend) LoadNetwork(o turn.LoadOrder) {
	now := e.c.Loop.Now()
	e.c.TellLoaded(&o, now, now, policy.ReturnRefused)
}

// PlaceInputs answers at once.
func (e *echoBackend) PlaceInputs(task, device, ticket int32) {
	now := e.c.Loop.Now()
	e.c.TellPlaced(task, device, ticket, now, now)
}

func (e *echoBackend) SendWaiting()                       {}
func (e *echoBackend) Watch(time.Duration, time.Duration) {}
func (e *echoBackend) IsUp(int32) bool                    { return true }
func (e *echoBackend) BusyTime(int32) time.Duration       { return 0 }
func (e *echoBackend) Close(context.Context)              {}
