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

// batchService accepts and shows batches: files of requests that are to be answered by the end of a window.
type batchService struct {
	opt     *Options // the store, the limits, the door and the clock
	files   fileService
	running *runningBatches
}

// Prefixes of the keys of batches, and of requests to cancel them, in the store.
const (
	batchKeys  = "batch/"
	cancelKeys = "batch-cancel/"
)

// Bounds on a batch. The end of its window is the deadline of its requests.
const (
	minWindow        = time.Second
	maxWindow        = 7 * day
	maxMetadataPairs = 16
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
	ID            string            `json:"id"`
	Object        string            `json:"object"`
	Endpoint      string            `json:"endpoint"`
	Errors        *batchErrors      `json:"errors"`
	InputFile     string            `json:"input_file_id"`
	Window        string            `json:"completion_window"`
	Status        string            `json:"status"`
	OutputFile    *string           `json:"output_file_id"`
	ErrorFile     *string           `json:"error_file_id"`
	Created       int64             `json:"created_at"`
	InProgress    *int64            `json:"in_progress_at"`
	Expires       int64             `json:"expires_at"`
	Finalizing    *int64            `json:"finalizing_at"`
	Completed     *int64            `json:"completed_at"`
	Failed        *int64            `json:"failed_at"`
	Expired       *int64            `json:"expired_at"`
	Cancelling    *int64            `json:"cancelling_at"`
	Cancelled     *int64            `json:"cancelled_at"`
	RequestCounts batchCounts       `json:"request_counts"`
	Metadata      map[string]string `json:"metadata"`
	Class         string            `json:"slo_class,omitempty"`
	Owner         string            `json:"owner,omitempty"`
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
func (s *batchState) hasEnded() bool {
	return slices.Contains([]string{batchFailed, batchCompleted, batchExpired, batchCancelled}, s.Status)
}

// setStatus changes the state of the batch and notes the time in the field of that state. There is no field, and so
// no way back, for the first state (validating).
func (s *batchState) setStatus(status string, now time.Time) {
	s.Status = status
	seconds := now.Unix()
	*map[string]**int64{batchInProgress: &s.InProgress, batchFinalizing: &s.Finalizing, batchCompleted: &s.Completed, batchFailed: &s.Failed,
		batchExpired: &s.Expired, batchCancelling: &s.Cancelling, batchCancelled: &s.Cancelled}[status] = &seconds
}

// deadline returns the end of the second in which the window ends. expires_at has whole seconds, and a batch that was
// created late in a second must not lose the rest of its window.
func (s *batchState) deadline() time.Time { return time.Unix(s.Expires, int64(time.Second-1)) }

// save stores the state of the batch.
func (s *batchState) save(ctx context.Context, store durable.Store) error {
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return store.Put(ctx, batchKeys+s.ID, data)
}

// createBatch handles the request for a new batch (a file of requests that are answered within hours): it checks
// and stores it. The process that takes its record from the store runs it.
func (f batchService) createBatch(req *apiRequest) error {
	if err := req.holder.CountRequest(); err != nil {
		return err
	}
	var memoryHold httplimit.MemoryHold
	defer memoryHold.Close()
	body, err := readBody(f.opt, req, &memoryHold)
	if err != nil {
		return err
	}
	s, refusal := decodeBatch(body, f.opt.Now())
	if refusal != nil {
		return refusal
	}

	// Find its SLO class, and make sure that its input file exists.
	q := parsedRequest{class: s.Class}
	if err := q.resolveClass(req); err != nil {
		return err
	}
	if _, err := f.files.findFile(req.r.Context(), s.InputFile, req.holder.Name); err != nil {
		return err
	}

	// Store its state, and then a record, so that a process takes the batch over and runs it.
	s.ID, s.Owner, s.Class = newID("batch_"), req.holder.Name, q.class
	ctx := context.WithoutCancel(req.r.Context())
	if err := s.save(ctx, f.opt.Store); err != nil {
		return fmt.Errorf("store a batch: %w", err)
	}
	durableRec, err := (&requestRecord{Owner: s.Owner, Batch: s.ID, Body: []byte("null")}).durableRecord(s.ID)
	if err == nil {
		_, err = f.opt.Store.Accept(ctx, durableRec)
	}
	if err != nil {
		return fmt.Errorf("store a batch: %w", err)
	}
	writeJSON(req.w, http.StatusOK, withoutOwner(s))
	return nil
}

// decodeBatch reads the body of the request for a batch that comes at the time now, and returns the batch's first
// state. It returns an error for the client if a field is wrong: the endpoint, the window in which it has to end,
// or the metadata.
func decodeBatch(body []byte, now time.Time) (*batchState, *httplimit.Error) {
	list, err := parseObject(body)
	if err != nil {
		return nil, err
	}
	s := &batchState{Object: "batch", Status: batchValidating, Created: now.Unix()}

	// Read the members.
	for _, f := range list {
		switch f.name {
		case "input_file_id":
			err = decodeValue(f.value, &s.InputFile, "the id of a file")
		case "endpoint":
			err = decodeValue(f.value, &s.Endpoint, "a path")
		case "completion_window":
			err = decodeValue(f.value, &s.Window, "a time such as 24h")
		case "slo_class":
			err = decodeValue(f.value, &s.Class, "the name of an SLO class")
		case "metadata":
			err = decodeValue(f.value, &s.Metadata, "an object of texts")
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
	window, windowErr := time.ParseDuration(s.Window)
	if windowErr != nil || window < minWindow || window > maxWindow {
		return nil, httplimit.Invalid("completion_window", "found %q, expected a time from %v to %v, such as 24h", httplimit.Clip(s.Window), minWindow, maxWindow)
	}
	if len(s.Metadata) > maxMetadataPairs {
		return nil, httplimit.TooLarge("metadata", "%d pairs, at most %d are taken", len(s.Metadata), maxMetadataPairs)
	}
	for k, v := range s.Metadata {
		if len(k) > 64 || len(v) > 512 {
			return nil, httplimit.TooLarge("metadata", "keys have at most 64 bytes, values 512")
		}
	}
	s.Expires = now.Add(window).Unix()
	return s, nil
}

// withoutOwner returns a copy of the batch for clients, who know who they are.
func withoutOwner(s *batchState) *batchState {
	out := *s
	out.Owner = ""
	return &out
}

// findBatch returns the batch (a file of requests that run together) whose id is in the path, with its current counts. A
// batch of another owner of a key is not found, like one that does not exist.
func (f batchService) findBatch(req *apiRequest) (*batchState, error) {
	id := req.r.PathValue("id")
	notFound := httplimit.NotFound("no such batch %q", httplimit.Clip(id))
	if durable.CheckKey(batchKeys+id) != nil {
		return nil, notFound
	}
	s, err := readValue[batchState](req.r.Context(), f.opt.Store, batchKeys+id)
	if errors.Is(err, durable.ErrNotFound) || err == nil && s.Owner != req.holder.Name {
		return nil, notFound
	}
	if err != nil {
		return nil, err
	}
	return f.withCurrentCounts(s), nil
}

// withCurrentCounts returns the current state of a batch, given the stored one: if the batch runs in this process, it
// has newer counts than the store.
func (f batchService) withCurrentCounts(s *batchState) *batchState {
	b := f.running.find(s.ID)
	if b == nil {
		return s
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	out := *b.state
	return &out
}

// getBatch answers with one batch.
func (f batchService) getBatch(req *apiRequest) error {
	s, err := f.findBatch(req)
	if err != nil {
		return err
	}
	writeJSON(req.w, http.StatusOK, withoutOwner(s))
	return nil
}

// listBatches answers with the sender's batches, newest first.
func (f batchService) listBatches(req *apiRequest) error {
	list, err := readAllValues[batchState](req.r.Context(), f.opt.Store, batchKeys)
	if err != nil {
		return err
	}
	list = slices.DeleteFunc(list, func(s *batchState) bool { return s.Owner != req.holder.Name })
	return writePage(req, list, func(s *batchState) string { return s.ID }, func(s *batchState) any { return withoutOwner(f.withCurrentCounts(s)) })
}

// cancelBatch handles the request to cancel a batch, which another process may run. It stores the wish, which that
// process reads, and stops the batch if it runs here. A batch that has ended cannot be cancelled.
func (f batchService) cancelBatch(req *apiRequest) error {
	s, err := f.findBatch(req)
	if err != nil {
		return err
	}
	if s.hasEnded() {
		return &httplimit.Error{Code: httplimit.CodeInvalid, Reason: "batch_over", Msg: fmt.Sprintf("the batch is %s", s.Status)}
	}
	if err := f.opt.Store.Put(req.r.Context(), cancelKeys+s.ID, []byte("cancel")); err != nil {
		return err
	}
	if b := f.running.find(s.ID); b != nil {
		b.cancel()
	}
	if s = f.withCurrentCounts(s); s.Cancelling == nil {
		s.setStatus(batchCancelling, f.opt.Now())
	}
	writeJSON(req.w, http.StatusOK, withoutOwner(s))
	return nil
}
