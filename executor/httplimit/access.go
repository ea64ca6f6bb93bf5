package httplimit

import (
	"cmp"
	"net/http"
	"time"
)

// countedWriter is an http.ResponseWriter that records the status and counts the bytes of an answer.
type countedWriter struct {
	http.ResponseWriter
	status int
	bytes  int64
}

// Unwrap lets an http.ResponseController reach the connection.
func (a *countedWriter) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (a *countedWriter) WriteHeader(status int) {
	a.status = cmp.Or(a.status, status)
	a.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (a *countedWriter) Write(p []byte) (int, error) {
	n, err := a.ResponseWriter.Write(p)
	a.bytes += int64(n)
	return n, err
}

// logHTTPAccess writes a request over HTTP to the log of accesses.
func (d *Door) logHTTPAccess(r *http.Request, a *countedWriter, began time.Time) {
	a.status = cmp.Or(a.status, http.StatusOK)
	holder := AnyClient
	if h, err := d.Keys.Find(r.Header.Get("Authorization")); err == nil {
		holder = h
	}
	d.LogAccess(holder.Client(r.RemoteAddr), r.Method+" "+Clip(r.URL.Path), a.status, a.bytes, began)
}

// LogAccess writes a request to the log of accesses, if there is one. action names the request, such as its method
// and path.
func (d *Door) LogAccess(client, action string, status any, bytes int64, startedAt time.Time) {
	if d.Access != nil {
		d.Access.Info("request", "client", client, "what", action, "status", status, "bytes", bytes, "ms", float64(time.Since(startedAt).Microseconds())/1e3)
	}
}
