package text

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"
)

// line puts the orders to the places of an agent in line. Who plans is read from the
// store, since anybody might send a greater term. An order of a term that is greater than
// the known one waits until the store was read after it came: it may be the first of a
// new term, and who plans writes its term before it sends any order.
type line struct {
	sync.Mutex
	closed bool
	early  []earlyOrder
	unread chan struct{} // there are early orders
}

// earlyOrder is an order of a term that is not known yet.
type earlyOrder struct {
	place *agentPlace
	order *AgentOrder
	reply func([]byte)
}

// The store is read every termEvery at most, and may take termWithin. So many early
// orders wait: more are not of who plans, or are sent again.
const (
	termEvery  = 100 * time.Millisecond
	termWithin = 5 * time.Second
	MostEarly  = 1 << 10
)

// take takes an order.
func (p *agentPlace) take(message []byte, reply func([]byte)) {
	o := &AgentOrder{}
	if err := json.Unmarshal(message, o); err != nil {
		p.others.add(err)
		return
	}
	if !slices.Contains(orderKinds, o.What) {
		p.others.add(fmt.Errorf("found %.40q, expected one of %v", o.What, orderKinds))
		return
	}
	p.line.Lock()
	defer p.line.Unlock()
	switch {
	case p.line.closed:
	case o.Term <= p.inTerm():
		p.order(o, reply)
	case len(p.line.early) >= MostEarly:
		p.others.add(fmt.Errorf("%d orders of terms that nobody has wait already", MostEarly))
	default:
		p.line.early = append(p.line.early, earlyOrder{p, o, reply})
		p.readTerm()
	}
}

// readTerm has the store read.
func (p *agentProcess) readTerm() {
	select {
	case p.line.unread <- struct{}{}:
	default:
	}
}

func (p *agentProcess) inTerm() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.term
}

// readTerms reads who plans while orders wait for that.
func (p *agentProcess) readTerms() {
	for p.ctx.Err() == nil {
		select {
		case <-p.line.unread:
		case <-p.ctx.Done():
			return
		}
		p.line.Lock()
		came := len(p.line.early)
		p.line.Unlock()
		ctx, cancel := context.WithTimeout(p.ctx, termWithin)
		term, err := p.opt.Store.Term(ctx)
		cancel()
		if err != nil && p.ctx.Err() == nil {
			p.opt.Log.Warn("whether another process plans is not known", "error", err)
			came = 0 // they wait for the next try
		}
		p.line.Lock()
		p.begin(term)
		p.passEarly(came)
		p.line.Unlock()
		select {
		case <-time.After(termEvery):
		case <-p.ctx.Done():
		}
	}
}

// passEarly carries out early orders whose term is known now; line is held. Of the first
// came, those of other terms are refused: they came before the store was read.
func (p *agentProcess) passEarly(came int) {
	if p.line.closed {
		return
	}
	all, now := p.line.early, p.inTerm()
	p.line.early = nil
	for i, e := range all {
		switch {
		case e.order.Term <= now:
			e.place.order(e.order, e.reply)
		case i < came:
			p.others.add(fmt.Errorf("its term is %d, in term %d", e.order.Term, now))
		default:
			p.line.early = append(p.line.early, e)
		}
	}
	if len(p.line.early) > 0 {
		p.readTerm()
	}
}

// begin takes orders of a term from now on; line is held. All runs of before end: who
// plans now gives them out anew. Its numbers are its own.
func (p *agentProcess) begin(term uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if term <= p.term {
		return
	}
	p.term = term
	for _, r := range p.runs {
		r.cancel(errLeft)
	}
	clear(p.numbers)
	clear(p.tell)
	for _, place := range p.places {
		if place.work != nil {
			place.work.cancel()
			place.work = nil
		}
	}
}

// close takes no orders any more.
func (p *agentProcess) close() {
	p.line.Lock()
	defer p.line.Unlock()
	p.line.closed, p.line.early = true, nil
}
