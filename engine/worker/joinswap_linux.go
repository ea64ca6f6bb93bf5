package worker

import (
	"cmp"
	"context"
	"fmt"
)

// keepStage handles the server's request to keep a stage (a range of a model's blocks): the worker cuts it out of
// its model's file, and it stays in this host's memory, from where it can be loaded fast.
func (a *agent) keepStage(ctx context.Context, p []byte) (*KeptStage, error) {
	q, err := parseJSON[KeepRequest](TypeKeep, p)
	if err != nil {
		return nil, err
	}
	if err := a.locateModel(&q.Stage); err != nil {
		return nil, err
	}
	l, err := a.config.cache.keepStage(ctx, a.proc, &q.Stage, a.fp16)
	if err != nil {
		return nil, err
	}
	if l, err = a.addStage(&q.Stage, l); err != nil {
		return nil, err
	}
	return &KeptStage{Stage: *l}, nil
}

// swap passes a swap (loading kept stages onto the device, or removing them) on to the worker, with slots of this
// host's shared memory in place of the server's. forwardResults sends the answer.
func (a *agent) swap(ctx context.Context, p []byte) error {
	q, err := parseJSON[Swap](TypeSwap, p)
	if err != nil {
		return err
	}
	if a.proc == nil {
		return fmt.Errorf("%w: swap before hello", ErrProtocol)
	}

	// Lay out the slots before the first swap, and name them in place of the server's.
	if a.segment == nil {
		err = a.layOut(ctx)
	}
	for i := range q.Stages {
		l := a.layouts[q.Stages[i].ID]
		if l == nil {
			err = cmp.Or(err, fmt.Errorf("stage %d was not kept", q.Stages[i].ID))
			continue
		}
		warm := q.Stages[i].WarmSlots
		q.Stages[i] = l.Layout
		q.Stages[i].WarmSlots = min(max(warm, 0), agentSlots)
	}
	if err != nil {
		return a.link.writeJSON(TypeSwapped, SwapResult{ID: q.ID, Code: codeOf(err), Text: fmt.Sprintf("host %s: %v", a.config.Host, err)})
	}
	a.startResults()
	return a.proc.SendSwap(q)
}

// startResults starts the goroutine that forwards the worker's results to the server, if that has not begun yet.
func (a *agent) startResults() {
	a.mu.Lock()
	isFirst, proc, segment := !a.readsResults, a.proc, a.segment
	a.readsResults = true
	a.mu.Unlock()
	if isFirst {
		a.wg.Go(func() {
			err := a.forwardResults(proc, segment)
			a.config.Log.Debug("worker's results ended", "error", err)
			a.link.conn.Close()
		})
	}
}
