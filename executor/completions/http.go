package completions

import (
	"errors"
	"net/http"
	"sync/atomic"

	"inferplan/executor/httplimit"
	"inferplan/executor/tracing"
)

// HeaderClass is the header that names the SLO class of a request.
const HeaderClass = "X-SLO-Class"

const (
	headerIdempotencyKey = "Idempotency-Key" // a repeated request with the same key gets the first one's answer
	headerRequestID      = "X-Request-Id"
)

// apiHandlers has the handlers of the clients' requests.
type apiHandlers struct {
	front   *Front
	files   fileService
	batches batchService
	// forwarded is the number of requests that pass through to servers now.
	forwarded atomic.Int64
}

func newAPI(f *Front) *apiHandlers {
	return &apiHandlers{front: f, files: f.files, batches: batchService{opt: &f.opt, files: f.files, running: &f.batches}}
}

// apiRequest is an HTTP request whose sender is known.
type apiRequest struct {
	w      http.ResponseWriter
	r      *http.Request
	holder *httplimit.Holder
	trace  *tracing.Request // nil if it has no span
}

// newMux returns the routes of the OpenAI API: completions, models, files and batches, and what passes
// through to servers. All but the health check go
// through the door, which checks keys and limits, and are refused while the front end drains.
func (f *apiHandlers) newMux() *http.ServeMux {
	mux := http.NewServeMux()
	refuse := func(w http.ResponseWriter, err error) {
		if !errors.Is(err, errClientGone) {
			writeError(w, toClientError(err))
		}
	}

	mux.HandleFunc("GET /health", f.front.opt.Door.Probe(refuse, f.serveHealth))

	// handle registers a handler behind the door, and refuses requests while the front end drains.
	handle := func(pattern string, serve func(*apiRequest) error) {
		mux.HandleFunc(pattern, f.front.opt.Door.Handler(refuse, func(w http.ResponseWriter, r *http.Request, holder *httplimit.Holder) error {
			err := error(errClosed)
			if f.front.gate.Enter() {
				defer f.front.gate.Leave()
				err = serve(&apiRequest{w: w, r: r, holder: holder})
			}
			if err != nil {
				httplimit.CloseIfUnread(w, r)
			}
			return err
		}))
	}
	for path, chat := range map[string]bool{"/v1/completions": false, "/v1/chat/completions": true} {
		handle("POST "+path, func(req *apiRequest) error { return f.serveCompletion(req, chat) })
		handle("GET "+path+"/{id}", f.getRequest)
		handle("POST "+path+"/{id}/cancel", f.cancelByID)
	}
	for _, path := range forwardedPaths {
		handle("POST "+path, func(req *apiRequest) error { return f.forward(req, path) })
	}
	handle("GET /v1/models", f.listModels)
	handle("GET /v1/models/{id...}", f.getModel)
	handle("POST /v1/files", f.files.upload)
	handle("GET /v1/files", f.files.listFiles)
	handle("GET /v1/files/{id}", f.files.getFile)
	handle("GET /v1/files/{id}/content", f.files.serveContent)
	handle("DELETE /v1/files/{id}", f.files.removeFile)
	handle("POST /v1/batches", f.batches.createBatch)
	handle("GET /v1/batches", f.batches.listBatches)
	handle("GET /v1/batches/{id}", f.batches.getBatch)
	handle("POST /v1/batches/{id}/cancel", f.batches.cancelBatch)
	handle("/", func(req *apiRequest) error {
		return httplimit.NotFound("no such path: %s %s", httplimit.Clip(req.r.Method), httplimit.Clip(req.r.URL.Path))
	})
	return mux
}

// serveHealth answers the health check: status ok if the front end takes requests. Otherwise it returns an error: the
// front end is not ready, drains, or the disk of its store is full.
func (f *apiHandlers) serveHealth(w http.ResponseWriter, _ *http.Request, _ *httplimit.Holder) error {
	if f.front.notReady.Load() || f.front.gate.IsClosed() {
		return errClosed
	}
	if f.front.StoreFull() {
		return errStoreFull
	}
	writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
	return nil
}

// ServeHTTP answers one request.
func (f *Front) ServeHTTP(w http.ResponseWriter, r *http.Request) { f.routes.ServeHTTP(w, r) }

// readBody reads a whole body, whose memory counts in memoryHold against the limit for requests. The caller closes
// the hold. A body that is too large or no JSON is an error.
func readBody(opt *Options, req *apiRequest, memoryHold *httplimit.MemoryHold) ([]byte, error) {
	if err := httplimit.CheckBody(req.r, opt.MaxBodyBytes, "application/json"); err != nil {
		return nil, err
	}
	body, err := opt.Door.ReadBody(req.w, req.r, req.holder.Client(req.r.RemoteAddr), memoryHold, opt.MaxBodyBytes)
	if err != nil {
		return nil, err
	}
	return body.TakeBytes(), nil
}
