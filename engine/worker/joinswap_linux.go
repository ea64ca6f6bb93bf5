package worker

import (
	"cmp"
	"context"
	"fmt"
)

// keep has the worker keep a stage in this host's memory.
func (a *agent) keep(ctx context.Context, p []byte) (*Kept, error) {
	q, err := parseJSON[Keep](TypeKeep, p)
	if err != nil {
		return nil, err
	}
	if err := a.find(&q.Stage); err != nil {
		return nil, err
	}
	l, err := a.config.cache.keep(ctx, a.proc, &q.Stage, a.half)
	if err != nil {
		return nil, err
	}
	if l, err = a.note(&q.Stage, l); err != nil {
		return nil, err
	}
	return &Kept{Loaded: *l}, nil
}

// swap passes a swap on to the worker, with slots of this host's segment. forwardResults sends the answer.
func (a *agent) swap(ctx context.Context, p []byte) error {
	q, err := parseJSON[Swap](TypeSwap, p)
	if err != nil {
		return err
	}
	if a.proc == nil {
		return fmt.Errorf("%w: swap before hello", ErrProtocol)
	}
	if a.segment == nil {
		err = a.layOut(ctx)
	}
	for i := range q.Stages {
		l := a.layouts[q.Stages[i].ID]
		if l == nil {
			err = cmp.Or(err, fmt.Errorf("stage %d was not kept", q.Stages[i].ID))
			continue
		}
		warm := q.Stages[i].Warm
		q.Stages[i] = l.Layout
		q.Stages[i].Warm = min(max(warm, 0), farSlots)
	}
	if err != nil {
		return a.writeJSON(TypeSwapped, Swapped{ID: q.ID, Code: codeOf(err), Text: fmt.Sprintf("host %s: %v", a.config.Host, err)})
	}
	a.listen()
	return a.proc.SendSwap(q)
}

// startResults starts to forward the worker's results, if that has not begun yet.
func (a *agent) listen() {
	a.mu.Lock()
	first, proc, segment := !a.running, a.proc, a.segment
	a.running = true
	a.mu.Unlock()
	if first {
		a.wg.Go(func() {
			err := a.results(proc, segment)
			a.config.Log.Debug("worker's results ended", "error", err)
			a.conn.Close()
		})
	}
}
