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
type orderQueue struct {
	sync.Mutex
	closed      bool
	earlyOrders []earlyOrder
	termUnread  chan struct{} // has an element while early orders wait
}

// earlyOrder is an order of a term that is not known yet.
type earlyOrder struct {
	instance *servedInstance
	order    *AgentOrder
	reply    func([]byte)
}

// The store is read for the term at most once every termReadInterval, and may take termReadTimeout. At most
// MaxEarlyOrders wait: further ones come from somebody else, or will be sent again.
const (
	termReadInterval = 100 * time.Millisecond
	termReadTimeout  = 5 * time.Second
	MaxEarlyOrders   = 1 << 10
)

// receive is called for each message to an instance. It executes an order of the current term (period in which one
// process plans), and refuses one of an earlier term there. An order of a later term waits until the store has
// confirmed that term. Messages that are no orders are counted and dropped.
func (p *servedInstance) receive(message []byte, reply func([]byte)) {
	o := &AgentOrder{}
	if err := json.Unmarshal(message, o); err != nil {
		p.process.refused.add(err)
		return
	}
	if !slices.Contains(orderKinds, o.Kind) {
		p.process.refused.add(fmt.Errorf("found %.40q, expected one of %v", o.Kind, orderKinds))
		return
	}
	p.process.orders.Lock()
	defer p.process.orders.Unlock()
	switch {
	case p.process.orders.closed:
	case o.Term <= p.runs.currentTerm():
		p.execute(o, reply)
	case len(p.process.orders.earlyOrders) >= MaxEarlyOrders:
		p.process.refused.add(fmt.Errorf("%d orders of terms that nobody has wait already", MaxEarlyOrders))
	default:
		p.process.orders.earlyOrders = append(p.process.orders.earlyOrders, earlyOrder{p, o, reply})
		p.process.requestTermRead()
	}
}

// requestTermRead requests that the term (number of the period in which one process plans) be read from the store
// soon. Requests while one is pending count as one.
func (p *agentProcess) requestTermRead() {
	select {
	case p.orders.termUnread <- struct{}{}:
	default:
	}
}

// watchTerm runs in the background. While orders of a later term wait, it reads the present term (the number of the
// period in which one process plans) from the store, and releases or refuses them. It pauses for termReadInterval
// after each read, so that many orders cause few reads.
func (p *agentProcess) watchTerm() {
	for p.ctx.Err() == nil {
		select {
		case <-p.orders.termUnread:
		case <-p.ctx.Done():
			return
		}

		// Orders that are here now came before the read.
		p.orders.Lock()
		arrivedBefore := len(p.orders.earlyOrders)
		p.orders.Unlock()
		ctx, cancel := context.WithTimeout(p.ctx, termReadTimeout)
		term, err := p.opt.Store.Term(ctx)
		cancel()
		if err != nil && p.ctx.Err() == nil {
			p.opt.Log.Warn("whether another process plans is not known", "error", err)
			arrivedBefore = 0 // they wait for the next read
		}

		// Orders of the new term count from now on.
		p.orders.Lock()
		p.startTerm(term)
		p.releaseEarly(arrivedBefore)
		p.orders.Unlock()
		select {
		case <-time.After(termReadInterval):
		case <-p.ctx.Done():
		}
	}
}

// releaseEarly executes the waiting orders whose term (period in which one process plans) is current by now, after
// the store was read. Of the first arrivedBefore orders, those of later terms are refused: they came before the
// read, so no process had their term. The caller holds the lock of the queue.
func (p *agentProcess) releaseEarly(arrivedBefore int) {
	if p.orders.closed {
		return
	}
	waiting, term := p.orders.earlyOrders, p.runs.currentTerm()
	p.orders.earlyOrders = nil
	for i, e := range waiting {
		switch {
		case e.order.Term <= term:
			e.instance.execute(e.order, e.reply)
		case i < arrivedBefore:
			p.refused.add(fmt.Errorf("its term is %d, in term %d", e.order.Term, term))
		default:
			p.orders.earlyOrders = append(p.orders.earlyOrders, e)
		}
	}
	if len(p.orders.earlyOrders) > 0 {
		p.requestTermRead()
	}
}

// startTerm makes a later term the current one, and ends the runs and long orders of the one before. The caller
// holds the lock of the queue. A term is the period in which one process plans. A term that is not later changes
// nothing.
func (p *agentProcess) startTerm(term uint64) {
	if !p.runs.startTerm(term) {
		return
	}
	for _, instance := range p.instances {
		if instance.longOrder != nil {
			instance.longOrder.cancel()
			instance.longOrder = nil
		}
	}
}

// closeOrders stops executing orders.
func (p *agentProcess) closeOrders() {
	p.orders.Lock()
	defer p.orders.Unlock()
	p.orders.closed, p.orders.earlyOrders = true, nil
}
