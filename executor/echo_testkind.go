//go:build testkind

package executor

import (
	"context"
	"time"

	"inferplan/policy"
	"inferplan/policy/echo"
)

func init() { kindsServed.backends = append(kindsServed.backends, newEchoes) }

// echoes are the instances of the kind echo, within this process: every batch on
// one makes a token per millisecond, eight of them, and answers with what it read.
type echoes struct {
	c    *core
	own  []int32              // devices
	live map[uint64]*speaking // by the serial of the batch's use
	kept map[int32]int32      // tokens by task, of batches that were evicted
}

type speaking struct {
	b       *batch
	tokens  int32
	evicted bool
}

// Kinds of news of echoes.
const (
	tokenCame uint8 = iota
	sentBack
)

const echoTokens = 8

func newEchoes(c *core) (backend, []int32) {
	if echo.Of(c.tables) == nil {
		return nil, nil
	}
	e := &echoes{c: c, live: map[uint64]*speaking{}, kept: map[int32]int32{}}
	for d := range c.tables.Devices {
		if c.tables.InstanceOf(int32(d)) >= 0 {
			e.own = append(e.own, int32(d))
		}
	}
	return e, e.own
}

// start gives the services on instances the tensors of the plan.
func (e *echoes) start(context.Context) error {
	t := e.c.tables
	for s := range t.Stages {
		if on := t.DevicesOf(int32(s)); e.c.backendOf(on[0]) != e {
			continue
		}
		m := e.c.services[t.Pipelines[t.Stages[s].Pipeline].Service]
		d := &e.c.plan.Deployment[t.Stages[s].Pipeline]
		inputs, err := specs(d.Inputs, false, "input")
		if err != nil {
			return err
		}
		outputs, err := specs(d.Outputs, false, "output")
		if err != nil {
			return err
		}
		if err := m.setTensors(&m.inputs, inputs, "input"); err != nil {
			return err
		}
		if err := m.setTensors(&m.outputs, outputs, "output"); err != nil {
			return err
		}
	}
	return nil
}

func (e *echoes) begin() {}

func (e *echoes) later(d time.Duration, n news) {
	time.AfterFunc(d, func() { e.c.in.post(n) })
}

func (e *echoes) run(b *batch) {
	e.live[b.serial] = &speaking{b: b, tokens: e.kept[b.tasks[0]]}
	delete(e.kept, b.tasks[0])
	e.c.began(b, b.device(), e.c.now())
	e.later(time.Millisecond, news{what: tokenCame, device: b.device(), id: b.serial})
}

func (e *echoes) took(n *news) {
	s := e.live[n.id]
	if s == nil {
		return
	}
	switch {
	case n.what == sentBack:
		delete(e.live, n.id)
		e.c.returned(s.b, policy.ReturnEvicted, []int32{s.tokens})
	case !s.evicted:
		e.token(s)
	}
}

// token gives a batch its next token.
func (e *echoes) token(s *speaking) {
	b := s.b
	if s.tokens++; s.tokens < echoTokens {
		e.later(time.Millisecond, news{what: tokenCame, device: b.device(), id: b.serial})
		e.c.progressed(b, s.tokens)
		return
	}
	delete(e.live, b.serial)
	now := e.c.now()
	e.c.answers.ran(b, said{e.c, b})
	e.c.finishHop(b, b.device(), b.dispatched, now)
}

// said are the outputs of a batch: what it read.
type said struct {
	c *core
	b *batch
}

func (s said) output(i int) []byte {
	size := s.b.service.outputs[i].bytes
	out := make([]byte, size*len(s.b.tasks))
	for k, t := range s.b.tasks {
		copy(out[k*size:(k+1)*size], s.c.answers.input(t, i))
	}
	return out
}

func (e *echoes) abort(b *batch) { delete(e.live, b.serial) }

func (e *echoes) evict(b *batch, keep bool) {
	s := e.live[b.serial]
	if s == nil {
		return
	}
	if s.evicted = true; keep {
		e.kept[b.tasks[0]] = s.tokens
	}
	e.later(0, news{what: sentBack, device: b.device(), id: b.serial})
}

func (e *echoes) load(o order) {
	now := e.c.now()
	e.c.emit(queued{ev: o.event(now, now, policy.ReturnRefused)})
}

func (e *echoes) place(task, device, ticket int32) {
	now := e.c.now()
	e.c.placed(task, device, ticket, now, now)
}

func (e *echoes) room()                             {}
func (e *echoes) look(time.Duration, time.Duration) {}
func (e *echoes) up(int32) bool                     { return true }
func (e *echoes) close(context.Context)             {}
