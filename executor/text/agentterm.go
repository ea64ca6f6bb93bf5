package text

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"
)

// orderQueue holds the orders to the instances of an agent in order. Which process plans is read from the store,
// because anybody could send a greater term. An order of a term greater than the known one waits until the store has
// been read after the order came: it may be the first of a new term, and a process that plans writes its term before
// it sends any order.
type line struct {
	sync.Mutex
	closed bool
	early  []earlyOrder
	unread chan struct{} // has an element while early orders wait
}

// earlyOrder is an order of a term that is not known yet.
type earlyOrder struct {
	place *agentPlace
	order *AgentOrder
	reply func([]byte)
}

// The store is read for the term at most once every termReadInterval, and may take termReadTimeout. At most
// MaxEarlyOrders wait: further ones come from somebody else, or will be sent again.
const (
	termEvery  = 100 * time.Millisecond
	termWithin = 5 * time.Second
	MostEarly  = 1 << 10
)

// receive takes a message. It executes an order of the current term, keeps one of a later term until the store has
// been read, and counts what is no order.
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

// requestTermRead requests that the term be read from the store.
func (p *agentProcess) readTerm() {
	select {
	case p.line.unread <- struct{}{}:
	default:
	}
}

// currentTerm returns the term whose orders count.
func (p *agentProcess) inTerm() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.term
}

// watchTerm reads the term from the store while orders wait for it.
func (p *agentProcess) readTerms() {
	for p.ctx.Err() == nil {
		select {
		case <-p.line.unread:
		case <-p.ctx.Done():
			return
		}

		// Orders that are here now came before the read.
		p.line.Lock()
		came := len(p.line.early)
		p.line.Unlock()
		ctx, cancel := context.WithTimeout(p.ctx, termWithin)
		term, err := p.opt.Store.Term(ctx)
		cancel()
		if err != nil && p.ctx.Err() == nil {
			p.opt.Log.Warn("whether another process plans is not known", "error", err)
			came = 0 // they wait for the next read
		}

		// Orders of the new term count from now on.
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

// releaseEarly executes the early orders whose term is current by now. The caller holds the lock of the queue. Of the
// first arrivedBefore orders, those of later terms are refused, because they came before the store was read.
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

// startTerm makes a later term the current one. The caller holds the lock of the queue. All earlier runs end, because
// the process that plans now orders them again, with numbers of its own.
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

// closeOrders stops executing orders.
func (p *agentProcess) close() {
	p.line.Lock()
	defer p.line.Unlock()
	p.line.closed, p.line.early = true, nil
}
