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

// writeResults writes the output file (answered lines) and the error file (the others) of a batch whose lines have all
// ended, in the order of its input, and stores its final state: completed, cancelled or expired. The files belong to the
// batch's owner.
func (b *runningBatch) writeResults() error {
	f, ctx := b.front, b.front.ctx
	b.mu.Lock()
	cancelled := b.state.Cancelling != nil
	b.state.setStatus(batchFinalizing, b.front.opt.Now())
	b.mu.Unlock()

	// Create both files.
	outputWriter, err := f.files.createFile(ctx, b.state.Owner, b.state.ID+"_output.jsonl", "batch_output")
	if err != nil {
		return err
	}
	errorWriter, err := f.files.createFile(ctx, b.state.Owner, b.state.ID+"_error.jsonl", "batch_output")
	if err != nil {
		return err
	}

	// Write the result of each line into one of them.
	err = b.forEachLine(ctx, func(n int, line []byte) error {
		var requestLine batchLine
		if err := json.Unmarshal(line, &requestLine); err != nil {
			return err
		}
		out, ok, err := b.lineResult(ctx, n, &requestLine)
		if err != nil {
			return err
		}
		writer := errorWriter
		if ok {
			writer = outputWriter
		}
		text, err := json.Marshal(out)
		if err == nil {
			_, err = writer.Write(append(text, '\n'))
		}
		return err
	})

	// Close them. A file without lines is deleted.
	output, oerr := f.files.closeOrDelete(ctx, outputWriter)
	errorFile, eerr := f.files.closeOrDelete(ctx, errorWriter)
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
	b.state.OutputFile, b.state.ErrorFile = output, errorFile
	b.state.setStatus(status, b.front.opt.Now())
	b.mu.Unlock()
	return b.save(ctx)
}

// closeOrDelete ends a result file of a batch and returns its id. An empty file is deleted, and nil returned: a
// batch without errors has no error file.
func (f fileService) closeOrDelete(ctx context.Context, c *fileWriter) (*string, error) {
	if c.file.Bytes == 0 {
		return nil, f.deleteFile(ctx, c.file.ID)
	}
	return &c.file.ID, c.close()
}

// lineResult returns the result of the n-th line of a batch for its result files, and whether the line was
// answered. The result is in the store, unless the line was never accepted; then its error was noted here.
func (b *runningBatch) lineResult(ctx context.Context, n int, requestLine *batchLine) (*resultLine, bool, error) {
	id := lineID(b.state.ID, n)
	out := &resultLine{ID: "batch_req_" + id[len("batch_"):], CustomID: requestLine.ID}
	b.mu.Lock()
	lineErr := b.lineErrors[n]
	b.mu.Unlock()
	if lineErr == nil {
		// The request was accepted: its result is in the store.
		st, err := b.front.opt.Store.Get(ctx, id)
		if err != nil {
			return nil, false, err
		}
		record, result, err := readRecord(st)
		if err != nil || result == nil {
			return nil, false, errors.Join(fmt.Errorf("line %d of batch %s has not ended", n+1, b.state.ID), err)
		}
		if result.Error == nil {
			out.Response = &resultResponse{200, id, record.fullCompletion(id, string(result.fullText(st)), result)}
			return out, true, nil
		}
		lineErr = result.Error
	}

	// Requests that the batch itself ended have an error; others have the error as their response.
	if lineErr.Code == errBatchExpired.Reason || lineErr.Code == errBatchCancelled.Reason {
		out.Error = &resultError{lineErr.Code, lineErr.Message}
	} else {
		out.Response = &resultResponse{lineErr.Status, id, errorBody{lineErr.toAPIError()}}
	}
	return out, false, nil
}
