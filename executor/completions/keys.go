package completions

import (
	"bufio"
	"bytes"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"inferplan/executor/httplimit"
)

// Key is a bearer token with what its holder may do.
type Key struct {
	Token string
	Name  string  // whose requests these are; holders of the same name see each other's
	Class string  // SLO class of requests that name none; empty: the model's default
	RPS   float64 // requests a second; 0: no limit
	Burst int     // requests at once within RPS; 0: a second's worth, 1 at least
	Open  int     // requests that have not ended; 0: no limit
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
		}
		seen[k.Token] = true
	}
	return nil
}

// holder is who sends a request, with what is left of the key's limits.
type holder struct {
	Key
	limit *rate.Limiter // nil: none
}

// holders are those that the keys name; without keys there is one, for all.
func holders(keys []Key) (httplimit.Tokens, []*holder) {
	var tokens []string
	out := []*holder{{}} // the last one is nobody in particular
	for i := len(keys) - 1; i >= 0; i-- {
		h := &holder{Key: keys[i]}
		if h.RPS > 0 {
			set(&h.Burst, max(1, int(h.RPS)))
			h.limit = rate.NewLimiter(rate.Limit(h.RPS), h.Burst)
		}
		out = append([]*holder{h}, out...)
	}
	for _, k := range keys {
		tokens = append(tokens, k.Token)
	}
	return httplimit.NewTokens(tokens...), out
}

// take counts a request against the key's rate.
func (h *holder) take() *httplimit.Error {
	if h.limit == nil {
		return nil
	}
	r := h.limit.Reserve()
	d := r.Delay()
	if d == 0 {
		return nil
	}
	r.Cancel()
	return &httplimit.Error{Code: httplimit.CodeDropped, Reason: "rate_limit_exceeded", RetryAfter: d,
		Msg: fmt.Sprintf("this key may send %v requests a second; come again in %v", h.RPS, d.Round(time.Millisecond))}
}

// who finds the sender of a request, or why it may not pass.
func (f *api) who(w http.ResponseWriter, r *http.Request) (*holder, *httplimit.Error) {
	if err := httplimit.CheckCaller(r, f.opt.Hosts, len(f.tokens) > 0); err != nil {
		return nil, err
	}
	at, err := f.tokens.Check(r.Header.Get("Authorization"))
	if err != nil {
		w.Header().Set("WWW-Authenticate", "Bearer")
		return nil, err
	}
	if at < 0 {
		at = len(f.holders) - 1
	}
	return f.holders[at], nil
}
