package text

import (
	"context"
	"time"
)

// sendUpdates runs on a goroutine of an agent's process until the process ends. When there are updates (messages on the
// progress and the end of runs), it sends them to the process that plans, and again every PollInterval until that
// process has confirmed them.
func (p *agentProcess) sendUpdates() {
	for p.ctx.Err() == nil {
		select {
		case <-p.runs.updatesPending:
		case <-p.ctx.Done():
			return
		}
		for p.sendPending() && p.ctx.Err() == nil {
			time.Sleep(PollInterval)
		}
	}
}

// sendPending sends all pending updates to the planner once. It reports whether some remain, because the planner
// did not confirm them or new ones came meanwhile; the caller then tries again.
func (p *agentProcess) sendPending() (hasRemaining bool) {
	message := p.runs.pendingMessage()
	if len(message.Runs) == 0 {
		return false
	}
	ctx, cancel := context.WithTimeout(p.ctx, ResendInterval)
	defer cancel()
	if _, err := p.opt.Store.Ask(ctx, PlannerName, Encode(message)); err != nil { // a process that does not plan in this term does not answer
		return true
	}
	return p.runs.confirmUpdates(&message)
}
