package httplimit

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// AddressOff as an address means that nothing listens.
const AddressOff = "off"

// Door checks every request before its handler, whatever the protocol. The servers of a process share one. Each
// field's comment says what its zero value stands for; WithDefaults sets the defaults.
type Door struct {
	// Keys are the keys that are accepted. If it is nil, no key is required.
	Keys *Keyring
	// Hosts are the names under which clients reach the server, in addition to localhost and addresses; "*" allows
	// any. Without a key, requests to other names are refused, because a web page may have pointed such a name at
	// this server.
	Hosts []string
	// Budget is the memory for requests. The default has DefaultMemory bytes.
	Budget *Budget
	// TLS, if set, is used by Serve. It must have a certificate.
	TLS *tls.Config
	// MaxHeaderBytes bounds HTTP headers and gRPC metadata. The default is 64 KiB.
	MaxHeaderBytes int
	// ReadTimeout bounds the time to read a request or message, IdleTimeout an unused connection, and WriteTimeout an
	// HTTP request from its head to the end of its answer, unless its handler sets another. The defaults are 1
	// minute, 5 minutes and 5 minutes.
	ReadTimeout, IdleTimeout, WriteTimeout time.Duration
	// Log receives panics and failures of the transport. The default is slog.Default.
	Log *slog.Logger
	// Leaving, if set, reports whether clients should connect elsewhere: each answer over HTTP then closes its
	// connection, which a load balancer would leave where it is.
	Leaving func() bool
	// Access receives a line for every request that was answered. If it is nil, there is no log of accesses.
	Access *slog.Logger
}

// WithDefaults returns a copy of the door with defaults in place of zero fields. For a nil door it returns one that
// requires no key.
func (d *Door) WithDefaults() *Door {
	var door Door
	if d != nil {
		door = *d
	}
	door.MaxHeaderBytes = cmp.Or(door.MaxHeaderBytes, 64<<10)
	door.ReadTimeout = cmp.Or(door.ReadTimeout, time.Minute)
	door.IdleTimeout = cmp.Or(door.IdleTimeout, 5*time.Minute)
	door.WriteTimeout = cmp.Or(door.WriteTimeout, 5*time.Minute)
	if door.Log == nil {
		door.Log = slog.Default()
	}
	if door.Budget == nil {
		door.Budget = NewBudget(0, door.Log)
	}
	return &door
}

// Server returns an HTTP server for handler h with the door's time limits, header limit and TLS. The server's log goes
// to the door's at the level debug.
func (d *Door) Server(h http.Handler) *http.Server {
	if d.Leaving != nil {
		h = closingConnections(h, d.Leaving)
	}
	s := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: d.ReadTimeout,
		ReadTimeout:       d.ReadTimeout,
		WriteTimeout:      d.WriteTimeout,
		IdleTimeout:       d.IdleTimeout,
		MaxHeaderBytes:    d.MaxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(d.Log.Handler(), slog.LevelDebug),
	}
	if d.TLS != nil {
		s.TLSConfig = d.TLS.Clone()
	}
	return s
}

// closingConnections returns a handler that asks clients to close their connections while isLeaving returns true.
func closingConnections(h http.Handler, isLeaving func() bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isLeaving() {
			w.Header().Set("Connection", "close")
		}
		h.ServeHTTP(w, r)
	})
}

// Serve accepts connections of a server until it is shut down; it then returns nil. protocol names the server in
// errors.
func Serve(s *http.Server, l net.Listener, protocol string) error {
	var err error
	if s.TLSConfig != nil {
		err = s.ServeTLS(l, "", "")
	} else {
		err = s.Serve(l)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serving %s on %s: %w", protocol, l.Addr(), err)
}

// HolderHandler answers a request of a holder. If it returns an error, the protocol's ErrorWriter answers that.
type HolderHandler func(w http.ResponseWriter, r *http.Request, holder *Holder) error

// ErrorWriter answers an error in the form of a protocol.
type ErrorWriter func(w http.ResponseWriter, err error)

// Handler returns an http.HandlerFunc that lets requests pass that the door admits (key, origin) to next, with the
// holder of their key. Errors, of the door or of next, are written by refuse, in the form of the protocol. A panic fails
// only its own request.
func (d *Door) Handler(refuse ErrorWriter, next HolderHandler) http.HandlerFunc {
	return d.handler(refuse, next, false)
}

// PageHandler is like Handler for pages that people read: their browsers ask them for a name, which may be any, and the token as
// its password (the scheme Basic). Such a page changes nothing, because a browser sends the password again by itself.
func (d *Door) PageHandler(refuse ErrorWriter, next HolderHandler) http.HandlerFunc {
	return d.handler(refuse, next, true)
}

// handler returns the handler of Handler, or of PageHandler if the token may also come as a password.
func (d *Door) handler(refuse ErrorWriter, next HolderHandler, takesPassword bool) http.HandlerFunc {
	return d.Probe(refuse, func(w http.ResponseWriter, r *http.Request, _ *Holder) error {
		holder, err := d.checkSender(r, takesPassword)
		if err == nil {
			return next(w, r, holder)
		}
		if err.Code == CodeUnauthenticated {
			w.Header().Set("WWW-Authenticate", "Bearer")
			if takesPassword {
				w.Header().Add("WWW-Authenticate", `Basic realm="inferplan", charset="UTF-8"`)
			}
		}
		CloseIfUnread(w, r)
		return err
	})
}

// Probe is like Handler for paths that need no key, such as those of health checks: next gets the holder AnyClient. It
// also writes each request to the log of accesses, if there is one.
func (d *Door) Probe(refuse ErrorWriter, next HolderHandler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if d.Access != nil {
			counted := &countedWriter{ResponseWriter: w}
			w = counted
			defer d.logHTTPAccess(r, counted, time.Now())
		}
		defer func() {
			if p := recover(); p != nil {
				LogPanic(p, r, d.Log)
				refuse(w, Internal(nil, "internal error"))
			}
		}()
		if err := next(w, r, AnyClient); err != nil {
			refuse(w, err)
		}
	}
}

// checkSender returns the holder of a request's key, or an error if the request may not pass. If takesPassword is true, the key's token may
// also come as a password.
func (d *Door) checkSender(r *http.Request, takesPassword bool) (*Holder, *Error) {
	if err := CheckCaller(r, d.Hosts, d.Keys != nil); err != nil {
		return nil, err
	}
	if _, password, isBasic := r.BasicAuth(); isBasic && takesPassword {
		return d.Keys.Find("Bearer " + password)
	}
	return d.Keys.Find(r.Header.Get("Authorization"))
}

// CloseIfUnread closes the connection after the answer if the request was answered before its body was read and the
// body is long or its length unknown. So the server need not wait for the rest.
func CloseIfUnread(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength < 0 || r.ContentLength > 256<<10 {
		w.Header().Set("Connection", "close")
	}
}
