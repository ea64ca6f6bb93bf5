package text

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// queueUpdate adds an update of a run of a term to those to be sent. It replaces an earlier update of the run that
// was not sent yet.
func (p *agentProcess) queueUpdate(term uint64, n RunUpdate) {
	p.mu.Lock()
	if term == p.term {
		p.pendingUpdates[n.Number] = n
	}
	p.mu.Unlock()
	select {
	case p.updatesPending <- struct{}{}:
	default:
	}
}

// sendUpdates sends the updates to the process that plans, again and again until that has confirmed them.
func (p *agentProcess) sendUpdates() {
	for p.ctx.Err() == nil {
		select {
		case <-p.updatesPending:
		case <-p.ctx.Done():
			return
		}
		for p.sendPending() && p.ctx.Err() == nil {
			time.Sleep(PollInterval)
		}
	}
}

// sendPending sends all pending updates once. It reports whether some remain.
func (p *agentProcess) sendPending() (hasRemaining bool) {
	p.mu.Lock()
	message := AgentMessage{Term: p.term}
	for _, r := range p.pendingUpdates {
		message.Runs = append(message.Runs, r)
	}
	p.mu.Unlock()
	if len(message.Runs) == 0 {
		return false
	}
	slices.SortFunc(message.Runs, func(a, b RunUpdate) int { return cmp.Compare(a.Number, b.Number) })
	ctx, cancel := context.WithTimeout(p.ctx, ResendInterval)
	defer cancel()
	if _, err := p.opt.Store.Ask(ctx, PlannerName, Encode(message)); err != nil { // a process that does not plan in this term does not answer
		return true
	}

	// Remove those that were confirmed, unless a later update has replaced them.
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range message.Runs {
		if latest, ok := p.pendingUpdates[r.Number]; ok && latest == r {
			delete(p.pendingUpdates, r.Number)
		}
	}
	return len(p.pendingUpdates) > 0
}
