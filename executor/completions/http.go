package completions

import (
	"errors"
	"net/http"

	"inferplan/executor/httplimit"
)

// HeaderClass is the header that names the SLO class of a request.
const HeaderClass = "X-SLO-Class"

const (
	headerKey = "Idempotency-Key" // a repeated request with the same key gets the first one's answer
	headerID  = "X-Request-Id"
)

// api has the handlers of the clients' requests.
type api struct {
	*Front
	files   files
	batches batches
}

func newAPI(f *Front) *api { return &api{f, files{f}, batches{f}} }

// apiRequest is an HTTP request whose sender is known.
type inside struct {
	w    http.ResponseWriter
	r    *http.Request
	from *httplimit.Holder
}

// newMux returns the routes of all paths.
func (f *api) paths() *http.ServeMux {
	mux := http.NewServeMux()
	refuse := func(w http.ResponseWriter, err error) {
		if !errors.Is(err, errGone) {
			fail(w, failed(err))
		}
	}

	// The health check.
	mux.HandleFunc("GET /health", f.opt.Door.Probe(refuse, func(w http.ResponseWriter, _ *http.Request, _ *httplimit.Holder) error {
		if f.hidden.Load() || f.gate.Closed() {
			return errLeaves
		}
		if f.Full() {
			return errFull
		}
		answer(w, http.StatusOK, map[string]string{"status": "ok"})
		return nil
	}))

	// handle registers a handler behind the door, and refuses requests while the front end drains.
	on := func(pattern string, serve func(*inside) error) {
		mux.HandleFunc(pattern, f.opt.Door.Handler(refuse, func(w http.ResponseWriter, r *http.Request, from *httplimit.Holder) error {
			err := error(errLeaves)
			if f.gate.Enter() {
				defer f.gate.Leave()
				err = serve(&inside{w, r, from})
			}
			if err != nil {
				httplimit.Unread(w, r)
			}
			return err
		}))
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

// readBody reads a whole body into memoryHold, within the memory for requests. The caller closes the hold.
func (f *api) readBody(x *inside, hold *httplimit.Hold) ([]byte, error) {
	if err := httplimit.CheckBody(x.r, f.opt.MaxBodyBytes, "application/json"); err != nil {
		return nil, err
	}
	body, err := f.opt.Door.ReadBody(x.w, x.r, x.from.Client(x.r.RemoteAddr), hold, f.opt.MaxBodyBytes)
	if err != nil {
		return nil, err
	}
	return body.Own(), nil
}
