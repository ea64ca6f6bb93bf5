package text

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// say has something told about a run.
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

// telling tells the process that plans what there is to tell, until it has it.
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

// tellAll tells once; left: there is something that was not heard.
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
	if _, err := p.opt.Store.Ask(ctx, Planner, Encode(n)); err != nil { // who does not plan in this term is silent
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range n.Runs {
		if now, ok := p.tell[r.Number]; ok && now == r {
			delete(p.tell, r.Number)
		}
	}
	return len(p.tell) > 0
}
