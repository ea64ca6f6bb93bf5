package httplimit

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Off as an address says that nothing listens.
const Off = "off"

// Door is what every request passes before its handler, whatever the protocol: keys,
// callers, memory and times. The servers of a process share one. The zero value of a
// field means what its comment says; Open fills it in.
type Door struct {
	// Keys are the keys that are taken; nil: none is asked for.
	Keys *Keyring
	// Hosts are names under which clients reach the server, beside localhost and
	// addresses. Without a key a request to another name is refused, for a web
	// page may have pointed that name at this server; "*": any name.
	Hosts []string
	// Budget is the memory for requests; nil: one of DefaultMemory.
	Budget *Budget
	// TLS, when set, is used by Serve; it must hold a certificate.
	TLS *tls.Config
	// MaxHeaderBytes bounds HTTP headers and gRPC metadata; 0: 64 KiB.
	MaxHeaderBytes int
	// ReadTimeout bounds reading a request or message, IdleTimeout an unused connection,
	// WriteTimeout an HTTP request from its head to the end of its answer, where its
	// handler does not say otherwise; 0: 1 minute, 5 minutes, 5 minutes.
	ReadTimeout, IdleTimeout, WriteTimeout time.Duration
	// Log receives panics and failures of the transport; nil: slog.Default.
	Log *slog.Logger
	// Access receives a line for every request that was answered; nil: none.
	Access *slog.Logger
}

// Open returns a door with every field filled in. A nil door is one that asks for
// nothing.
func (d *Door) Open() *Door {
	var out Door
	if d != nil {
		out = *d
	}
	setDefault(&out.MaxHeaderBytes, 64<<10)
	setDefault(&out.ReadTimeout, time.Minute)
	setDefault(&out.IdleTimeout, 5*time.Minute)
	setDefault(&out.WriteTimeout, 5*time.Minute)
	if out.Log == nil {
		out.Log = slog.Default()
	}
	if out.Budget == nil {
		out.Budget = NewBudget(0, out.Log)
	}
	return &out
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Server is an HTTP server behind the door.
func (d *Door) Server(h http.Handler) *http.Server {
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

// Serve accepts connections of a server until it is shut down; it then returns nil. what
// names the server in errors.
func Serve(s *http.Server, l net.Listener, what string) error {
	var err error
	if s.TLSConfig != nil {
		err = s.ServeTLS(l, "", "")
	} else {
		err = s.Serve(l)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serving %s on %s: %w", what, l.Addr(), err)
}

// Serving answers a request of a known sender. An error of its own is answered by the
// protocol's Refuse.
type Serving func(w http.ResponseWriter, r *http.Request, from *Holder) error

// Refuse answers an error in the words of a protocol.
type Refuse func(w http.ResponseWriter, err error)

// Handler lets requests in whose senders may pass. A panic stays with its own request.
func (d *Door) Handler(refuse Refuse, next Serving) http.HandlerFunc {
	return d.Probe(refuse, func(w http.ResponseWriter, r *http.Request, _ *Holder) error {
		from, err := d.pass(r)
		if err == nil {
			return next(w, r, from)
		}
		if err.Code == CodeUnauthenticated {
			w.Header().Set("WWW-Authenticate", "Bearer")
		}
		Unread(w, r)
		return err
	})
}

// Probe is Handler for paths that are open to everybody, such as those of health.
func (d *Door) Probe(refuse Refuse, next Serving) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if d.Access != nil {
			seen := &answered{ResponseWriter: w}
			w = seen
			defer d.accessed(r, seen, time.Now())
		}
		defer func() {
			if p := recover(); p != nil {
				Panicked(p, r, d.Log)
				refuse(w, Internal(nil, "internal error"))
			}
		}()
		if err := next(w, r, Anybody); err != nil {
			refuse(w, err)
		}
	}
}

// pass finds who sends a request, or why it may not pass.
func (d *Door) pass(r *http.Request) (*Holder, *Error) {
	if err := CheckCaller(r, d.Hosts, d.Keys != nil); err != nil {
		return nil, err
	}
	return d.Keys.Find(r.Header.Get("Authorization"))
}

// Unread has the connection of a request closed that is answered before its body was
// read, where that is long: its bytes are not waited for.
func Unread(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength < 0 || r.ContentLength > 256<<10 {
		w.Header().Set("Connection", "close")
	}
}
