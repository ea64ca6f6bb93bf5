package text

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// queueUpdate adds an update of a run of a term to those to be sent. It replaces an earlier update of the run that
// was not sent yet.
func (p *agentProcess) say(term uint64, n RunNews) {
	p.mu.Lock()
	if term == p.term {
		p.tell[n.Number] = n
	}
	p.mu.Unlock()
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

// sendUpdates sends the updates to the process that plans, again and again until that has confirmed them.
func (p *agentProcess) telling() {
	for p.ctx.Err() == nil {
		select {
		case <-p.kick:
		case <-p.ctx.Done():
			return
		}
		for p.tellAll() && p.ctx.Err() == nil {
			time.Sleep(AskAfter)
		}
	}
}

// sendPending sends all pending updates once. It reports whether some remain.
func (p *agentProcess) tellAll() (left bool) {
	p.mu.Lock()
	n := AgentNews{Term: p.term}
	for _, r := range p.tell {
		n.Runs = append(n.Runs, r)
	}
	p.mu.Unlock()
	if len(n.Runs) == 0 {
		return false
	}
	slices.SortFunc(n.Runs, func(a, b RunNews) int { return cmp.Compare(a.Number, b.Number) })
	ctx, cancel := context.WithTimeout(p.ctx, Resend)
	defer cancel()
	if _, err := p.opt.Store.Ask(ctx, Planner, Encode(n)); err != nil { // a process that does not plan in this term does not answer
		return true
	}

	// Remove those that were confirmed, unless a later update has replaced them.
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range n.Runs {
		if now, ok := p.tell[r.Number]; ok && now == r {
			delete(p.tell, r.Number)
		}
	}
	return len(p.tell) > 0
}
