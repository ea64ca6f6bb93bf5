package httplimit

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// Key is a bearer token with what its holder may do.
type Key struct {
	Token string
	Name  string  // whose requests these are; holders of the same name are one client
	Class string  // SLO class of requests that name none; empty: the model's default
	RPS   float64 // requests a second; 0: no limit
	Burst int     // requests at once within RPS; 0: a second's worth, 1 at least
	Open  int     // requests that have not ended, of all keys of the name; 0: no limit
}

// ParseKeys reads a file of keys, one a line:
//
//	TOKEN [name=NAME] [class=CLASS] [rps=N] [burst=N] [open=N]
//
// A line that begins with # is a comment.
func ParseKeys(file []byte) ([]Key, error) {
	var out []Key
	lines := bufio.NewScanner(bytes.NewReader(file))
	for n := 1; lines.Scan(); n++ {
		words := strings.Fields(lines.Text())
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		k := Key{Token: words[0], Name: fmt.Sprintf("key-%d", n)}
		for _, w := range words[1:] {
			if err := k.set(w); err != nil {
				return nil, fmt.Errorf("keys, line %d: %w", n, err)
			}
		}
		out = append(out, k)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("keys: %w", err)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("keys: found none, expected one a line")
	}
	return out, checkKeys(out)
}

func (k *Key) set(word string) (err error) {
	name, value, _ := strings.Cut(word, "=")
	switch name {
	case "name":
		k.Name = value
	case "class":
		k.Class = value
	case "rps":
		k.RPS, err = strconv.ParseFloat(value, 64)
	case "burst":
		k.Burst, err = strconv.Atoi(value)
	case "open":
		k.Open, err = strconv.Atoi(value)
	default:
		return fmt.Errorf("found %q, expected name=, class=, rps=, burst= or open=", name)
	}
	if err != nil {
		return fmt.Errorf("%s: found %q, expected a number", name, value)
	}
	return nil
}

// shortestToken is what can still not be guessed.
const shortestToken = 16

func checkKeys(keys []Key) error {
	seen := map[string]bool{}
	for i, k := range keys {
		switch {
		case len(k.Token) < shortestToken:
			return fmt.Errorf("key %d (%s): a token has at least %d characters", i+1, k.Name, shortestToken)
		case seen[k.Token]:
			return fmt.Errorf("key %d (%s): the token was given twice", i+1, k.Name)
		case !(k.RPS >= 0) || k.RPS > 1e9 || k.Burst < 0 || k.Open < 0:
			return fmt.Errorf("key %d (%s): expected rps, burst and open of 0 or more", i+1, k.Name)
		case k.Burst > 0 && k.RPS == 0:
			return fmt.Errorf("key %d (%s): burst=%d says nothing without rps=", i+1, k.Name, k.Burst)
		}
		seen[k.Token] = true
	}
	return nil
}

// Keyring are the keys that a process takes, with what is left of their limits. All
// its servers share it. Nil: no key is asked for.
type Keyring struct {
	hashes  [][sha256.Size]byte
	holders []*Holder
}

// NewKeyring makes the keyring of some keys; nil where there are none.
func NewKeyring(keys ...Key) (*Keyring, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	if err := checkKeys(keys); err != nil {
		return nil, err
	}
	k := &Keyring{}
	open := map[string]*atomic.Int64{}
	for _, key := range keys {
		h := &Holder{Key: key, open: open[key.Name]}
		if h.open == nil {
			h.open = &atomic.Int64{}
			open[key.Name] = h.open
		}
		if h.RPS > 0 {
			if h.Burst == 0 {
				h.Burst = max(1, int(h.RPS))
			}
			h.limit = rate.NewLimiter(rate.Limit(h.RPS), h.Burst)
		}
		k.hashes, k.holders = append(k.hashes, sha256.Sum256([]byte(key.Token))), append(k.holders, h)
	}
	return k, nil
}

// Classes are the SLO classes that keys name.
func (k *Keyring) Classes() (out []string) {
	if k == nil {
		return nil
	}
	for _, h := range k.holders {
		if h.Class != "" && !slices.Contains(out, h.Class) {
			out = append(out, h.Class)
		}
	}
	return out
}

// Anybody is who sends a request where no key is asked for.
var Anybody = &Holder{}

// Find returns the holder of the key in an Authorization header. It takes the same time
// for all.
func (k *Keyring) Find(header string) (*Holder, *Error) {
	if k == nil {
		return Anybody, nil
	}
	scheme, token, _ := strings.Cut(header, " ")
	// Hashing first makes the comparison independent of the token's length.
	got := sha256.Sum256([]byte(token))
	at := -1
	for i := range k.hashes {
		if subtle.ConstantTimeCompare(got[:], k.hashes[i][:]) == 1 {
			at = i
		}
	}
	if !strings.EqualFold(scheme, "Bearer") || at < 0 {
		return nil, &Error{Code: CodeUnauthenticated, Reason: "unauthenticated", Msg: "a bearer token is needed"}
	}
	return k.holders[at], nil
}

// Holder is who sends a request, with what is left of the limits of its key.
type Holder struct {
	Key
	limit *rate.Limiter // nil: none
	open  *atomic.Int64 // requests of the name that have not ended; nil: nobody counts them
}

// Client is the name under which a request from an address is counted: that of its key,
// else the host.
func (h *Holder) Client(address string) string {
	if h.Name != "" {
		return h.Name
	}
	return Host(address)
}

// Take counts a request against the key's rate.
func (h *Holder) Take() *Error {
	if h.limit == nil {
		return nil
	}
	r := h.limit.Reserve()
	d := r.Delay()
	if d == 0 {
		return nil
	}
	r.Cancel()
	return &Error{Code: CodeDropped, Reason: "rate_limit_exceeded", RetryAfter: d,
		Msg: fmt.Sprintf("this key may send %v requests a second; come again in %v", h.RPS, d.Round(time.Millisecond))}
}

// Begin counts a request against the key's rate, and as open until End.
func (h *Holder) Begin() *Error {
	if h.open != nil {
		if n := h.open.Add(1); h.Open > 0 && n > int64(h.Open) {
			h.open.Add(-1)
			return &Error{Code: CodeDropped, Reason: "too_many_requests", RetryAfter: time.Second,
				Msg: fmt.Sprintf("%d requests of this key wait or run, at most %d are taken", n-1, h.Open)}
		}
	}
	if err := h.Take(); err != nil {
		h.End()
		return err
	}
	return nil
}

// End follows Begin where that gave no error.
func (h *Holder) End() {
	if h.open != nil {
		h.open.Add(-1)
	}
}
