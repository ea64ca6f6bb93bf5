package completions

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"time"

	"inferplan/executor/durable"
	"inferplan/executor/httplimit"
)

// serveCompletion answers a completion, or a chat completion.
func (f *api) ask(x *inside, chat bool) error {
	if err := x.from.Take(); err != nil {
		return err
	}
	var hold httplimit.Hold
	defer hold.Close()

	// Read and check the request, within the memory for requests.
	body, err := f.readBody(x, &hold)
	if err != nil {
		return err
	}
	q, refusal := decode(body, chat)
	if refusal == nil {
		refusal = q.classes(x)
	}
	if refusal != nil {
		return refusal
	}

	// Accept it. From here on it counts as an open request and no longer as bytes.
	e, err := f.accept(x, q, body)
	if err != nil {
		return err
	}
	body, q.body = nil, nil
	hold.Close()

	// Answer it. A client that disconnects cancels it, unless it may come again.
	x.w.Header().Set(headerID, e.id)
	if q.stream {
		err = f.stream(x, e, q.usage)
	} else {
		err = f.single(x, e)
	}
	if errors.Is(err, errGone) && !e.rec.Keep {
		f.cancel(e, errCancelled)
	}
	return err
}

// resolveClass sets the SLO class: that of the header or of the body, else the default of the client's key. It
// returns an error if header and body differ.
func (q *question) classes(x *inside) *httplimit.Error {
	given := x.r.Header.Values(HeaderClass)
	if len(given) > 1 {
		return httplimit.Invalid(HeaderClass, "given %d times", len(given))
	}
	if len(given) == 1 && given[0] != "" {
		if q.class != "" && q.class != given[0] {
			return httplimit.Invalid("slo_class", "found %q, and %q in %s", httplimit.Clip(q.class), httplimit.Clip(given[0]), HeaderClass)
		}
		q.class = given[0]
	}
	set(&q.class, x.from.Class)
	return nil
}

// acceptRequest stores a request and returns it. If it has an idempotency key and was accepted before, it returns
// that request.
func (f *api) accept(x *inside, q *question, body []byte) (*entry, error) {
	prefix := "cmpl-"
	if q.chat {
		prefix = "chatcmpl-"
	}
	rec, err := f.record(q, x.from.Name)
	if err != nil {
		return nil, err
	}
	rec.address = httplimit.Host(x.r.RemoteAddr)
	id, key := newID(prefix), x.r.Header.Get(headerKey)

	// With an idempotency key, look for the request that was accepted under it.
	if key != "" {
		sum := sha256.Sum256(body)
		id, rec.Keep, rec.Sum = keyID(prefix, x.from.Name, key), true, hex.EncodeToString(sum[:])
		e, err := f.find(x.r.Context(), id, x.from.Name)
		if err == nil && e.rec.Sum != rec.Sum {
			err = &httplimit.Error{Code: httplimit.CodeInvalid, Reason: "idempotency_key_reused", Field: headerKey, Msg: "this key came with another request before"}
		}
		if !errors.Is(err, durable.ErrNotFound) {
			return e, err
		}
	}
	if err := f.admit(x.from, rec.request(id, "", 0)); err != nil {
		return nil, err
	}
	return f.submit(id, rec)
}

// requestByID returns the request whose id is in the path.
func (f *api) byID(x *inside) (*entry, error) {
	id := x.r.PathValue("id")
	e, err := f.find(x.r.Context(), id, x.from.Name)
	if errors.Is(err, durable.ErrNotFound) {
		return nil, httplimit.NotFound("no request %q is kept here", httplimit.Clip(id))
	}
	return e, err
}

// getRequest answers with the state of a request, or streams it from its beginning.
func (f *api) fetch(x *inside) error {
	e, err := f.byID(x)
	if err != nil {
		return err
	}
	if x.r.URL.Query().Get("stream") == "true" {
		return f.stream(x, e, true)
	}
	answer(x.w, http.StatusOK, e.found())
	return nil
}

// cancelByID cancels the request whose id is in the path, and answers with its state.
func (f *api) stopRequest(x *inside) error {
	e, err := f.byID(x)
	if err != nil {
		return err
	}
	f.cancel(e, errCancelled)
	if _, err := e.wait(x.r.Context()); err != nil {
		return gone(err)
	}
	answer(x.w, http.StatusOK, e.found())
	return nil
}

// answerWhole waits for the end of a request and answers with all of it.
func (f *api) single(x *inside, e *entry) error {
	_ = http.NewResponseController(x.w).SetWriteDeadline(time.Time{})
	n, err := e.wait(x.r.Context())
	if err != nil {
		return gone(err)
	}
	_ = http.NewResponseController(x.w).SetWriteDeadline(time.Now().Add(f.opt.StallTimeout))
	if n.end.Error != nil {
		fail(x.w, n.end.Error)
		return nil
	}
	answer(x.w, http.StatusOK, e.rec.whole(e.id, n.text, n.end))
	return nil
}
