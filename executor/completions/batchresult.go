package completions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// resultLine is a line of the output file or of the error file.
type resultLine struct {
	ID       string          `json:"id"`
	CustomID string          `json:"custom_id"`
	Response *resultResponse `json:"response"`
	Error    *resultError    `json:"error"`
}

type resultResponse struct {
	Status    int    `json:"status_code"`
	RequestID string `json:"request_id"`
	Body      any    `json:"body"`
}

type resultError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// writeResults writes the output file and the error file of a batch whose lines have ended, and sets its final state.
func (b *batch) finalize() error {
	f, ctx := b.front, b.front.ctx
	b.mu.Lock()
	cancelled := b.state.Cancelling != nil
	b.state.move(batchFinalizing, b.front.opt.Now())
	b.mu.Unlock()

	// Create both files.
	fs := files{f}
	good, err := fs.begin(ctx, b.state.Owner, b.state.ID+"_output.jsonl", "batch_output")
	if err != nil {
		return err
	}
	bad, err := fs.begin(ctx, b.state.Owner, b.state.ID+"_error.jsonl", "batch_output")
	if err != nil {
		return err
	}

	// Write the result of each line into one of them.
	err = b.lines(ctx, func(n int, line []byte) error {
		var l batchLine
		if err := json.Unmarshal(line, &l); err != nil {
			return err
		}
		out, ok, err := b.result(ctx, n, &l)
		if err != nil {
			return err
		}
		into := bad
		if ok {
			into = good
		}
		text, err := json.Marshal(out)
		if err == nil {
			_, err = into.Write(append(text, '\n'))
		}
		return err
	})

	// Close them. A file without lines is deleted.
	output, oerr := fs.keep(ctx, good)
	errorFile, eerr := fs.keep(ctx, bad)
	if err = errors.Join(err, oerr, eerr); err != nil {
		return err
	}

	// Store the final state.
	status := batchCompleted
	if cancelled {
		status = batchCancelled
	} else if errors.Is(context.Cause(b.ctx), errBatchExpired) {
		status = batchExpired
	}
	b.mu.Lock()
	b.state.Output, b.state.ErrorFile = output, errorFile
	b.state.move(status, b.front.opt.Now())
	b.mu.Unlock()
	return b.save(ctx)
}

// closeOrDelete ends a file and returns its id. It deletes the file and returns nil if it is empty.
func (f files) keep(ctx context.Context, c *chunks) (*string, error) {
	if c.file.Bytes == 0 {
		return nil, f.drop(ctx, c.file.ID)
	}
	return &c.file.ID, c.close()
}

// lineResult returns the result of a line, and whether it was answered.
func (b *batch) result(ctx context.Context, n int, l *batchLine) (*resultLine, bool, error) {
	id := lineID(b.state.ID, n)
	out := &resultLine{ID: "batch_req_" + id[len("batch_"):], CustomID: l.ID}
	b.mu.Lock()
	x := b.failures[n]
	b.mu.Unlock()
	if x == nil {
		// The request was accepted: its result is in the store.
		st, err := b.front.opt.Store.Get(ctx, id)
		if err != nil {
			return nil, false, err
		}
		rec, e, err := readRecord(st)
		if err != nil || e == nil {
			return nil, false, errors.Join(fmt.Errorf("line %d of batch %s has not ended", n+1, b.state.ID), err)
		}
		if e.Error == nil {
			out.Response = &resultResponse{200, id, rec.whole(id, string(e.text(st)), e)}
			return out, true, nil
		}
		x = e.Error
	}

	// Requests that the batch itself ended have an error; others have the error as their response.
	if x.Code == errBatchExpired.Reason || x.Code == errBatchCancelled.Reason {
		out.Error = &resultError{x.Code, x.Message}
	} else {
		out.Response = &resultResponse{x.Status, id, errorBody{x.api()}}
	}
	return out, false, nil
}
