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
)

// record is a request as the store keeps it.
type record struct {
	Owner    string          `json:"owner,omitempty"`
	Sum      string          `json:"sum,omitempty"` // of the body, of a request with a key against trying twice
	Chat     bool            `json:"chat,omitempty"`
	Keep     bool            `json:"keep,omitempty"` // the client may come again
	Model    string          `json:"model"`
	Class    string          `json:"class,omitempty"`
	Max      int             `json:"max_tokens,omitempty"`
	Prompt   int             `json:"prompt_tokens,omitempty"`
	Choices  int             `json:"choices,omitempty"` // 0: one
	Events   bool            `json:"events,omitempty"`  // the answer is more than a text
	Shown    bool            `json:"shown,omitempty"`   // as it comes
	Accepted time.Time       `json:"accepted"`
	Deadline time.Time       `json:"deadline,omitzero"`
	Batch    string          `json:"batch,omitempty"`
	Line     int             `json:"line,omitempty"` // of the batch, from 0
	Body     json.RawMessage `json:"body"`

	address string // that it came from
}

// end is how a request ended, as the store keeps it.
type end struct {
	Finish string   `json:"finish,omitempty"`
	Prompt int      `json:"prompt_tokens,omitempty"`
	Output int      `json:"output_tokens,omitempty"`
	Tail   string   `json:"tail,omitempty"` // text behind what was stored before
	Error  *failure `json:"error,omitempty"`
}

// text is the whole text of a record that has ended.
func (x *end) text(st *durable.State) []byte {
	return append(st.Text[:len(st.Text):len(st.Text)], x.Tail...)
}

// failure is an error as clients see it.
type failure struct {
	Status  int           `json:"status"`
	Type    string        `json:"type,omitempty"`
	Code    string        `json:"code,omitempty"`
	Param   string        `json:"param,omitempty"`
	Message string        `json:"message"`
	Retry   time.Duration `json:"retry,omitempty"`
}

// errCancelled ends a request that nobody wants any more.
var errCancelled = &httplimit.Error{Code: httplimit.CodeCancelled, Reason: "cancelled", Msg: "the request was cancelled"}

// failed turns an error into what clients see. Overload is always 429: proxies take a
// server that answers 503 for it out of service.
func failed(err error) *failure {
	if noRoom(err) {
		err = errFull
	}
	var refusal *Refusal
	var server *ServerError
	switch {
	case errors.As(err, &refusal):
		return &failure{Status: 429, Code: refusal.Reason, Message: refusal.Msg, Retry: max(refusal.RetryAfter, time.Second)}
	case errors.As(err, &server):
		return &failure{Status: server.Status, Type: server.Type, Code: server.Code, Param: server.Param, Message: server.Msg}
	}
	e := httplimit.AsError(err)
	out := &failure{Status: e.Code.HTTPStatus(), Code: e.Reason, Param: e.Field, Message: e.Error(), Retry: e.RetryAfter}
	if e.Code == httplimit.CodeUnavailable && e.Reason == "memory" {
		out.Status, out.Retry = 429, max(out.Retry, time.Second)
	}
	return out
}

// kind is OpenAI's type of the error.
func (f *failure) kind() string {
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

// newID makes an id whose beginning grows with time, which keeps what is stored
// together close.
func newID(prefix string) string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:], uint64(time.Now().UnixMilli())<<16)
	_, _ = rand.Read(b[6:]) // it does not fail
	return prefix + hex.EncodeToString(b[:])
}

// keyID is the id of a request with a key against trying twice: the same for the same
// key of the same sender.
func keyID(prefix, owner, key string) string {
	sum := sha256.Sum256([]byte(owner + "\x00" + key))
	return prefix + hex.EncodeToString(sum[:16])
}

// batchRecords is the class under which the store keeps the lines of batches.
const batchRecords = "lines of batches"

// stored is the record as the store takes it.
func (r *record) stored(id string) (*durable.Record, error) {
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

// errRecord: what the store has is no request of ours.
var errRecord = errors.New("a record of the store cannot be read")

// readRecord takes a stored request apart.
func readRecord(st *durable.State) (*record, *end, error) {
	r := &record{}
	if err := json.Unmarshal(st.Data, r); err != nil {
		return nil, nil, fmt.Errorf("%w: %s: %w", errRecord, st.ID, err)
	}
	if st.End == nil {
		return r, nil, nil
	}
	e := &end{}
	if err := json.Unmarshal(st.End, e); err != nil {
		return nil, nil, fmt.Errorf("end of record %s of the store: %w", st.ID, err)
	}
	return r, e, nil
}

// sender is whose request it is: the name of its key, else its address, which is not
// stored.
func (r *record) sender() string { return cmp.Or(r.Owner, r.address) }

// request is the record as servers see it.
func (r *record) request(id, partial string, tokens int) *Request {
	return &Request{ID: id, Model: r.Model, Class: r.Class, Chat: r.Chat, Body: r.Body, Partial: partial, PartialTokens: tokens,
		PromptTokens: r.Prompt, MaxTokens: r.Max, Choices: max(r.Choices, 1), Events: r.Events, Shown: r.Shown, Accepted: r.Accepted, Deadline: r.Deadline, Client: r.sender()}
}
