package completions

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"inferplan/executor/durable"
	"inferplan/executor/httplimit"
	"inferplan/executor/tracing"
)

// requestRecord is a request as the store holds it, in JSON.
type requestRecord struct {
	Owner        string          `json:"owner,omitempty"` // name of the client's key
	BodySum      string          `json:"sum,omitempty"`   // SHA-256 of the body, if the client sent an idempotency key
	Chat         bool            `json:"chat,omitempty"`
	Resumable    bool            `json:"keep,omitempty"` // the client may come again for the result, so it survives a disconnect
	Model        string          `json:"model"`
	Class        string          `json:"class,omitempty"`
	MaxTokens    int             `json:"max_tokens,omitempty"`    // bound on the tokens of a choice; 0: none
	PromptTokens int             `json:"prompt_tokens,omitempty"` // estimated from the body's bytes
	Choices      int             `json:"choices,omitempty"`       // 0 stands for one
	Events       bool            `json:"events,omitempty"`        // the answer is more than one text
	Streamed     bool            `json:"shown,omitempty"`         // the client sees the answer as it comes
	Accepted     time.Time       `json:"accepted"`
	Deadline     time.Time       `json:"deadline,omitzero"`
	Session      int64           `json:"session,omitempty"` // number of its session; 0 if it has none
	Batch        string          `json:"batch,omitempty"`   // id of the batch that it is a line of, or of the batch that it is
	Line         int             `json:"line,omitempty"`    // number of the line in the batch, from 0
	Body         json.RawMessage `json:"body"`
	// Parent is the span below which the request runs: its door, or what the client named if spans are not made.
	Parent tracing.Parent `json:"trace,omitzero"`

	address string // the client's, without a port; not stored
}

// requestResult is how a request ended, as the store holds it, in JSON.
type requestResult struct {
	Finish       string       `json:"finish,omitempty"`
	PromptTokens int          `json:"prompt_tokens,omitempty"`
	OutputTokens int          `json:"output_tokens,omitempty"`
	Tail         string       `json:"tail,omitempty"` // text that follows what was stored before
	Error        *clientError `json:"error,omitempty"`
}

// fullText returns the whole text of a record that has ended: the stored text and the tail. It does not change st.
func (result *requestResult) fullText(st *durable.State) []byte {
	return append(st.Text[:len(st.Text):len(st.Text)], result.Tail...)
}

// clientError is an error as clients see it, and as the store holds it.
type clientError struct {
	Status  int           `json:"status"`
	Type    string        `json:"type,omitempty"`
	Code    string        `json:"code,omitempty"`
	Param   string        `json:"param,omitempty"`
	Message string        `json:"message"`
	Retry   time.Duration `json:"retry,omitempty"`
}

// errCancelled is the result of a request that was cancelled.
var errCancelled = &httplimit.Error{Code: httplimit.CodeCancelled, Reason: "cancelled", Msg: "the request was cancelled"}

// toClientError converts an error to the form in which clients see it: status, code, message, and after which time to
// try again. Refusals for overload become 429, because proxies take a server that answers 503 out of service. The form
// can be stored with the request.
func toClientError(err error) *clientError {
	if isDiskFull(err) {
		err = errStoreFull
	}
	var refusal *Refusal
	var serverErr *ServerError
	switch {
	case errors.As(err, &refusal):
		return &clientError{Status: 429, Code: refusal.Reason, Message: refusal.Msg, Retry: max(refusal.RetryAfter, time.Second)}
	case errors.As(err, &serverErr):
		return &clientError{Status: serverErr.Status, Type: serverErr.Type, Code: serverErr.Code, Param: serverErr.Param, Message: serverErr.Msg}
	}
	e := httplimit.AsError(err)
	clientErr := &clientError{Status: e.Code.HTTPStatus(), Code: e.Reason, Param: e.Field, Message: e.Error(), Retry: e.RetryAfter}
	if e.Code == httplimit.CodeUnavailable && e.Reason == "memory" {
		clientErr.Status, clientErr.Retry = 429, max(clientErr.Retry, time.Second)
	}
	return clientErr
}

// openAIType returns the "type" of an error in the OpenAI protocol: the one that the server gave, or else the one
// of its HTTP status.
func (f *clientError) openAIType() string {
	switch {
	case f.Type != "":
		return f.Type
	case f.Status == 401:
		return "authentication_error"
	case f.Status == 403:
		return "permission_error"
	case f.Status == 404:
		return "not_found_error"
	case f.Status == 429:
		return "rate_limit_error"
	case f.Status < 500:
		return "invalid_request_error"
	}
	return "server_error"
}

// newID returns a new id. It begins with the time in milliseconds, so that the ids of requests of the same time are
// neighbours in the store.
func newID(prefix string) string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:], uint64(time.Now().UnixMilli())<<16)
	_, _ = rand.Read(b[6:]) // it does not fail
	return prefix + hex.EncodeToString(b[:])
}

// idempotentID returns the id of a request with an idempotency key. The same sender and key give the same id.
func idempotentID(prefix, owner, key string) string {
	sum := sha256.Sum256([]byte(owner + "\x00" + key))
	return prefix + hex.EncodeToString(sum[:16])
}

// batchRecords is the durable class of the lines of batches.
const batchRecords = "lines of batches"

// durableRecord returns the record as the store takes it: the JSON of r under an id. The store's class, by which records
// are retained, is the SLO class, or batchRecords for batches and their lines.
func (r *requestRecord) durableRecord(id string) (*durable.Record, error) {
	data, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("write a record: %w", err)
	}
	out := &durable.Record{ID: id, Class: r.Class, Data: data}
	if r.Batch != "" {
		out.Class = batchRecords
	}
	return out, nil
}

// errUnreadableRecord is returned when a record of the store is not a request of this front end.
var errUnreadableRecord = errors.New("a record of the store cannot be read")

// readRecord decodes a request and its result from the store. If the request has not ended, the result is nil. It
// returns errUnreadableRecord if the record cannot be decoded.
func readRecord(st *durable.State) (*requestRecord, *requestResult, error) {
	record := &requestRecord{}
	if err := json.Unmarshal(st.Data, record); err != nil {
		return nil, nil, fmt.Errorf("%w: %s: %w", errUnreadableRecord, st.ID, err)
	}
	if st.Result == nil {
		return record, nil, nil
	}
	result := &requestResult{}
	if err := json.Unmarshal(st.Result, result); err != nil {
		return nil, nil, fmt.Errorf("end of record %s of the store: %w", st.ID, err)
	}
	return record, result, nil
}

// sender returns whose request it is: the name of its key, else its address, which is not stored.
func (r *requestRecord) sender() string { return cmp.Or(r.Owner, r.address) }

// serverRequest returns the record as servers see it, to be continued after partial, which has the given number of
// tokens.
func (r *requestRecord) serverRequest(id, partial string, tokens int) *Request {
	return &Request{ID: id, Model: r.Model, Class: r.Class, Chat: r.Chat, Body: r.Body, Partial: partial, PartialTokens: tokens,
		PromptTokens: r.PromptTokens, MaxTokens: r.MaxTokens, Choices: max(r.Choices, 1), Events: r.Events, PartialShown: r.Streamed, Accepted: r.Accepted, Deadline: r.Deadline, Client: r.sender(), Session: r.Session, Parent: r.Parent}
}
