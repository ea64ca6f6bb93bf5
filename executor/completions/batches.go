package completions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"inferplan/executor/durable"
	"inferplan/executor/httplimit"
)

// batchService has the methods of the front end for batches: files of requests that are to be answered by the end of
// a window.
type batches struct{ *Front }

// Prefixes of the keys of batches, and of requests to cancel them, in the store.
const (
	batchKeys  = "batch/"
	cancelKeys = "batch-cancel/"
)

// Bounds on a batch. The end of its window is the deadline of its requests.
const (
	shortestWindow = time.Second
	longestWindow  = 7 * day
	mostMetadata   = 16
)

// The states of a batch.
const (
	batchValidating = "validating"
	batchFailed     = "failed"
	batchInProgress = "in_progress"
	batchFinalizing = "finalizing"
	batchCompleted  = "completed"
	batchExpired    = "expired"
	batchCancelling = "cancelling"
	batchCancelled  = "cancelled"
)

// batchState is a batch as the store holds it and as clients see it. Times are Unix times in seconds; nil if the
// state was not reached.
type batchState struct {
	ID         string            `json:"id"`
	Object     string            `json:"object"`
	Endpoint   string            `json:"endpoint"`
	Errors     *batchErrors      `json:"errors"`
	Input      string            `json:"input_file_id"`
	Window     string            `json:"completion_window"`
	Status     string            `json:"status"`
	Output     *string           `json:"output_file_id"`
	ErrorFile  *string           `json:"error_file_id"`
	Created    int64             `json:"created_at"`
	InProgress *int64            `json:"in_progress_at"`
	Expires    int64             `json:"expires_at"`
	Finalizing *int64            `json:"finalizing_at"`
	Completed  *int64            `json:"completed_at"`
	Failed     *int64            `json:"failed_at"`
	Expired    *int64            `json:"expired_at"`
	Cancelling *int64            `json:"cancelling_at"`
	Cancelled  *int64            `json:"cancelled_at"`
	Counts     batchCounts       `json:"request_counts"`
	Metadata   map[string]string `json:"metadata"`
	Class      string            `json:"slo_class,omitempty"`
	Owner      string            `json:"owner,omitempty"`
}

type batchCounts struct {
	Total     int `json:"total"`
	Completed int `json:"completed"`
	Failed    int `json:"failed"`
}

type batchErrors struct {
	Object string       `json:"object"`
	Data   []batchError `json:"data"`
}

type batchError struct {
	Code    string  `json:"code"`
	Message string  `json:"message"`
	Param   *string `json:"param"`
	Line    *int    `json:"line"`
}

// hasEnded reports whether the batch is in a final state.
func (s *batchState) over() bool {
	return slices.Contains([]string{batchFailed, batchCompleted, batchExpired, batchCancelled}, s.Status)
}

// setStatus changes the state of the batch and notes the time.
func (s *batchState) move(status string, now time.Time) {
	s.Status = status
	at := now.Unix()
	*map[string]**int64{batchInProgress: &s.InProgress, batchFinalizing: &s.Finalizing, batchCompleted: &s.Completed, batchFailed: &s.Failed,
		batchExpired: &s.Expired, batchCancelling: &s.Cancelling, batchCancelled: &s.Cancelled}[status] = &at
}

// deadline returns the end of the second in which the window ends. expires_at has whole seconds, and a batch that was
// created late in a second must not lose the rest of its window.
func (s *batchState) deadline() time.Time { return time.Unix(s.Expires, int64(time.Second-1)) }

// saveState stores the state of a batch.
func (f batches) save(ctx context.Context, s *batchState) error {
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return f.opt.Store.Put(ctx, batchKeys+s.ID, data)
}

// createBatch handles the request for a new batch: it checks and stores it.
func (f batches) create(x *inside) error {
	if err := x.from.Take(); err != nil {
		return err
	}
	var hold httplimit.Hold
	defer hold.Close()
	body, err := newAPI(f.Front).readBody(x, &hold)
	if err != nil {
		return err
	}
	s, refusal := decodeBatch(body, f.opt.Now())
	if refusal != nil {
		return refusal
	}

	// Find its SLO class, and make sure that its input file exists.
	q := question{class: s.Class}
	if err := q.classes(x); err != nil {
		return err
	}
	if _, err := files(f).find(x.r.Context(), s.Input, x.from.Name); err != nil {
		return err
	}

	// Store its state, and then a record, so that a process takes the batch over and runs it.
	s.ID, s.Owner, s.Class = newID("batch_"), x.from.Name, q.class
	ctx := context.WithoutCancel(x.r.Context())
	if err := f.save(ctx, s); err != nil {
		return fmt.Errorf("store a batch: %w", err)
	}
	stored, err := (&record{Owner: s.Owner, Batch: s.ID, Body: []byte("null")}).stored(s.ID)
	if err == nil {
		_, err = f.opt.Store.Accept(ctx, stored)
	}
	if err != nil {
		return fmt.Errorf("store a batch: %w", err)
	}
	return f.reply(x, s)
}

// decodeBatch reads the body of the request for a batch that comes at the time now.
func decodeBatch(body []byte, now time.Time) (*batchState, *httplimit.Error) {
	list, err := fields(body)
	if err != nil {
		return nil, err
	}
	s := &batchState{Object: "batch", Status: batchValidating, Created: now.Unix()}

	// Read the members.
	for _, f := range list {
		switch f.name {
		case "input_file_id":
			err = read(f.value, &s.Input, "the id of a file")
		case "endpoint":
			err = read(f.value, &s.Endpoint, "a path")
		case "completion_window":
			err = read(f.value, &s.Window, "a time such as 24h")
		case "slo_class":
			err = read(f.value, &s.Class, "the name of an SLO class")
		case "metadata":
			err = read(f.value, &s.Metadata, "an object of texts")
		}
		if err != nil {
			err.Field = f.name
			return nil, err
		}
	}

	// Check them.
	if s.Endpoint != "/v1/completions" && s.Endpoint != "/v1/chat/completions" {
		return nil, httplimit.Invalid("endpoint", "found %q, expected /v1/completions or /v1/chat/completions", httplimit.Clip(s.Endpoint))
	}
	window, perr := time.ParseDuration(s.Window)
	if perr != nil || window < shortestWindow || window > longestWindow {
		return nil, httplimit.Invalid("completion_window", "found %q, expected a time from %v to %v, such as 24h", httplimit.Clip(s.Window), shortestWindow, longestWindow)
	}
	if len(s.Metadata) > mostMetadata {
		return nil, httplimit.TooLarge("metadata", "%d pairs, at most %d are taken", len(s.Metadata), mostMetadata)
	}
	for k, v := range s.Metadata {
		if len(k) > 64 || len(v) > 512 {
			return nil, httplimit.TooLarge("metadata", "keys have at most 64 bytes, values 512")
		}
	}
	s.Expires = now.Add(window).Unix()
	return s, nil
}

// reply answers with a batch.
func (f batches) reply(x *inside, s *batchState) error {
	answer(x.w, http.StatusOK, shown(s))
	return nil
}

// withoutOwner returns a copy of the batch for clients, who know who they are.
func shown(s *batchState) *batchState {
	out := *s
	out.Owner = ""
	return &out
}

// findBatch returns the batch whose id is in the path, with current counts, if it belongs to the sender.
func (f batches) find(x *inside) (*batchState, error) {
	id := x.r.PathValue("id")
	missing := httplimit.NotFound("no such batch %q", httplimit.Clip(id))
	if durable.CheckKey(batchKeys+id) != nil {
		return nil, missing
	}
	s, err := stored[batchState](x.r.Context(), f.opt.Store, batchKeys+id)
	if errors.Is(err, durable.ErrNotFound) || err == nil && s.Owner != x.from.Name {
		return nil, missing
	}
	if err != nil {
		return nil, err
	}
	return f.current(s), nil
}

// withCurrentCounts returns a batch as it is now: if it runs here, the stored state is older.
func (f batches) current(s *batchState) *batchState {
	f.mu.Lock()
	b := f.running[s.ID]
	f.mu.Unlock()
	if b == nil {
		return s
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	out := *b.state
	return &out
}

// getBatch answers with one batch.
func (f batches) show(x *inside) error {
	s, err := f.find(x)
	if err != nil {
		return err
	}
	return f.reply(x, s)
}

// listBatches answers with the sender's batches, newest first.
func (f batches) list(x *inside) error {
	list, err := all[batchState](x.r.Context(), f.opt.Store, batchKeys)
	if err != nil {
		return err
	}
	list = slices.DeleteFunc(list, func(s *batchState) bool { return s.Owner != x.from.Name })
	return page(x, list, func(s *batchState) string { return s.ID }, func(s *batchState) any { return shown(f.current(s)) })
}

// cancelBatch requests that a batch stop. The process that runs it reads the request from the store.
func (f batches) cancel(x *inside) error {
	s, err := f.find(x)
	if err != nil {
		return err
	}
	if s.over() {
		return &httplimit.Error{Code: httplimit.CodeInvalid, Reason: "batch_over", Msg: fmt.Sprintf("the batch is %s", s.Status)}
	}
	if err := f.opt.Store.Put(x.r.Context(), cancelKeys+s.ID, []byte("cancel")); err != nil {
		return err
	}
	f.mu.Lock()
	b := f.running[s.ID]
	f.mu.Unlock()
	if b != nil {
		b.cancel()
	}
	if s = f.current(s); s.Cancelling == nil {
		s.move(batchCancelling, f.opt.Now())
	}
	return f.reply(x, s)
}
