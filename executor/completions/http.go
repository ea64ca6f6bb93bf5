package completions

import (
	"errors"
	"io"
	"net/http"

	"inferplan/executor/httplimit"
)

// HeaderClass names the SLO class of a request.
const HeaderClass = "X-SLO-Class"

const (
	headerKey = "Idempotency-Key" // against trying twice
	headerID  = "X-Request-Id"
)

// api answers the requests of clients.
type api struct {
	*Front
	files   files
	batches batches
}

func newAPI(f *Front) *api { return &api{f, files{f}, batches{f}} }

// inside is a request of a known sender.
type inside struct {
	w    http.ResponseWriter
	r    *http.Request
	from *holder
}

// paths says what is served where.
func (f *api) paths() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		if f.gate.Closed() {
			fail(w, failed(errLeaves))
			return
		}
		if f.Full() {
			fail(w, failed(errFull))
			return
		}
		answer(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	on := func(pattern string, serve func(*inside) error) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { f.pass(w, r, serve) })
	}
	for path, chat := range map[string]bool{"/v1/completions": false, "/v1/chat/completions": true} {
		on("POST "+path, func(x *inside) error { return f.ask(x, chat) })
		on("GET "+path+"/{id}", f.fetch)
		on("POST "+path+"/{id}/cancel", f.stopRequest)
	}
	on("GET /v1/models", f.models)
	on("GET /v1/models/{id...}", f.model)
	on("POST /v1/files", f.files.upload)
	on("GET /v1/files", f.files.list)
	on("GET /v1/files/{id}", f.files.show)
	on("GET /v1/files/{id}/content", f.files.content)
	on("DELETE /v1/files/{id}", f.files.remove)
	on("POST /v1/batches", f.batches.create)
	on("GET /v1/batches", f.batches.list)
	on("GET /v1/batches/{id}", f.batches.show)
	on("POST /v1/batches/{id}/cancel", f.batches.cancel)
	on("/", func(x *inside) error {
		return httplimit.NotFound("no such path: %s %s", httplimit.Clip(x.r.Method), httplimit.Clip(x.r.URL.Path))
	})
	return mux
}

// ServeHTTP answers one request.
func (f *Front) ServeHTTP(w http.ResponseWriter, r *http.Request) { f.routes.ServeHTTP(w, r) }

// pass lets a request in whose sender may pass, and answers with the error of serve.
func (f *api) pass(w http.ResponseWriter, r *http.Request, serve func(*inside) error) {
	defer f.recovered(w, r)
	from, refusal := f.who(w, r)
	var err error
	switch {
	case refusal != nil:
		err = refusal
	case !f.gate.Enter():
		err = errLeaves
	default:
		defer f.gate.Leave()
		err = serve(&inside{w, r, from})
	}
	if err == nil || errors.Is(err, errGone) {
		return
	}
	if r.ContentLength < 0 || r.ContentLength > 256<<10 {
		w.Header().Set("Connection", "close") // the rest of the body is not waited for
	}
	fail(w, failed(err))
}

// recovered keeps a panic to its own request.
func (f *api) recovered(w http.ResponseWriter, r *http.Request) {
	p := recover()
	if p == nil {
		return
	}
	httplimit.Panicked(p, r, f.opt.Log)
	fail(w, failed(errors.New("internal error")))
}

// readBody reads a body whole, within the memory for requests. The hold is the caller's
// to close.
func (f *api) readBody(x *inside, hold *httplimit.Hold) ([]byte, error) {
	r, limit := x.r, f.opt.MaxBodyBytes
	if err := httplimit.CheckContentType(r, "application/json"); err != nil {
		return nil, err
	}
	if enc := r.Header.Get("Content-Encoding"); enc != "" && enc != "identity" {
		return nil, &httplimit.Error{Code: httplimit.CodeUnsupportedMedia, Reason: "content_encoding", Msg: "send the body as it is"}
	}
	hold.Open(f.opt.Budget, httplimit.Host(r.RemoteAddr), x.w)
	var body []byte
	for {
		if len(body) == cap(body) {
			room := max(4<<10, 2*cap(body))
			if r.ContentLength > 0 {
				room = min(room, max(int(min(r.ContentLength, limit))+1, cap(body)+1))
			}
			if err := hold.Grow(int64(room - cap(body))); err != nil {
				return nil, err
			}
			body = append(make([]byte, 0, room), body...)
		}
		n, err := r.Body.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch {
		case int64(len(body)) > limit:
			return nil, httplimit.TooLarge("", "the body has more than %d bytes", limit)
		case err == io.EOF:
			if err := hold.Whole(); err != nil {
				return nil, err
			}
			return body, nil
		case err != nil:
			if err := hold.Whole(); err != nil { // it was cut off for others
				return nil, err
			}
			return nil, httplimit.Invalid("", "the body was cut off: %v", err)
		}
	}
}
