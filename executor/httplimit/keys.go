package httplimit

import (
	"bufio"
	"bytes"
	"cmp"
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

// Key is a bearer token with the limits of its holder.
type Key struct {
	Token   string
	Name    string  // the owner of the requests; holders of the same name are one client
	Class   string  // SLO class of requests that name none; if empty, the model's default
	RPS     float64 // requests per second; 0 for no limit
	Burst   int     // most requests at once within RPS; 0 stands for those of a second, at least 1
	MaxOpen int     // most requests that have not ended, over all keys of the name; 0 for no limit
}

// ParseKeys reads a file of keys, one per line:
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
			if err := k.setOption(w); err != nil {
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

// setOption sets a field of a key from a word such as rps=10.
func (k *Key) setOption(word string) (err error) {
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
		k.MaxOpen, err = strconv.Atoi(value)
	default:
		return fmt.Errorf("found %q, expected name=, class=, rps=, burst= or open=", name)
	}
	if err != nil {
		return fmt.Errorf("%s: found %q, expected a number", name, value)
	}
	return nil
}

// minTokenLength is the shortest token that cannot be guessed.
const minTokenLength = 16

// checkKeys returns an error if a token is short or occurs twice, or a limit is invalid.
func checkKeys(keys []Key) error {
	seenTokens := map[string]bool{}
	for i, k := range keys {
		switch {
		case len(k.Token) < minTokenLength:
			return fmt.Errorf("key %d (%s): a token has at least %d characters", i+1, k.Name, minTokenLength)
		case seenTokens[k.Token]:
			return fmt.Errorf("key %d (%s): the token was given twice", i+1, k.Name)
		case !(k.RPS >= 0) || k.RPS > 1e9 || k.Burst < 0 || k.MaxOpen < 0:
			return fmt.Errorf("key %d (%s): expected rps, burst and open of 0 or more", i+1, k.Name)
		case k.Burst > 0 && k.RPS == 0:
			return fmt.Errorf("key %d (%s): burst=%d says nothing without rps=", i+1, k.Name, k.Burst)
		}
		seenTokens[k.Token] = true
	}
	return nil
}

// Keyring holds the keys that a process accepts, and their use. All its servers share it. If it is nil, no key is
// required.
type Keyring struct {
	hashes  [][sha256.Size]byte
	holders []*Holder
}

// NewKeyring returns the keyring by which tokens of clients are checked. It stores hashes of them. Keys of the same name
// share their count of open requests, but not their rates. Without keys it returns nil, which admits everybody.
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
		h := &Holder{Key: key, openRequests: open[key.Name]}
		if h.openRequests == nil {
			h.openRequests = &atomic.Int64{}
			open[key.Name] = h.openRequests
		}
		if h.RPS > 0 {
			h.Burst = cmp.Or(h.Burst, max(1, int(h.RPS)))
			h.limiter = rate.NewLimiter(rate.Limit(h.RPS), h.Burst)
		}
		k.hashes, k.holders = append(k.hashes, sha256.Sum256([]byte(key.Token))), append(k.holders, h)
	}
	return k, nil
}

// Classes returns the SLO classes that the keys name.
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

// AnyClient is the holder of requests if no key is required.
var AnyClient = &Holder{}

// Find returns the holder of the key in an Authorization header ("Bearer TOKEN"), or an error if no key has the token. A
// nil keyring returns AnyClient. It takes the same time for all tokens, so that none can be guessed by time.
func (k *Keyring) Find(header string) (*Holder, *Error) {
	if k == nil {
		return AnyClient, nil
	}
	scheme, token, _ := strings.Cut(header, " ")
	// The hash makes the comparison independent of the token's length.
	hash := sha256.Sum256([]byte(token))
	found := -1
	for i := range k.hashes {
		if subtle.ConstantTimeCompare(hash[:], k.hashes[i][:]) == 1 {
			found = i
		}
	}
	if !strings.EqualFold(scheme, "Bearer") || found < 0 {
		return nil, &Error{Code: CodeUnauthenticated, Reason: "unauthenticated", Msg: "a bearer token is needed"}
	}
	return k.holders[found], nil
}

// Holder is the sender of requests with a key, with the use of its limits.
type Holder struct {
	Key
	limiter      *rate.Limiter // nil if the rate is unlimited
	openRequests *atomic.Int64 // number of requests of the name that have not ended; nil for AnyClient
}

// Client returns the name under which a request from an address is counted: the name of its key, else the host.
func (h *Holder) Client(address string) string {
	if h.Name != "" {
		return h.Name
	}
	return HostOf(address)
}

// CountRequest counts a request against the rate (requests a second) of the holder's key. If the rate is exceeded, it
// returns an error with the time to wait, and the request is not counted.
func (h *Holder) CountRequest() *Error {
	if h.limiter == nil {
		return nil
	}
	r := h.limiter.Reserve()
	d := r.Delay()
	if d == 0 {
		return nil
	}
	r.Cancel()
	return &Error{Code: CodeDropped, Reason: "rate_limit_exceeded", RetryAfter: d,
		Msg: fmt.Sprintf("this key may send %v requests a second; come again in %v", h.RPS, d.Round(time.Millisecond))}
}

// BeginRequest counts a request against the rate of the holder's key, and as open until the caller calls EndRequest. If
// a limit is exceeded, it returns an error, and the request is not open.
func (h *Holder) BeginRequest() *Error {
	if h.openRequests != nil {
		if n := h.openRequests.Add(1); h.MaxOpen > 0 && n > int64(h.MaxOpen) {
			h.openRequests.Add(-1)
			return &Error{Code: CodeDropped, Reason: "too_many_requests", RetryAfter: time.Second,
				Msg: fmt.Sprintf("%d requests of this key wait or run, at most %d are taken", n-1, h.MaxOpen)}
		}
	}
	if err := h.CountRequest(); err != nil {
		h.EndRequest()
		return err
	}
	return nil
}

// EndRequest must follow BeginRequest if that returned no error.
func (h *Holder) EndRequest() {
	if h.openRequests != nil {
		h.openRequests.Add(-1)
	}
}
