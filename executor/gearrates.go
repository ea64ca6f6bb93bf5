package executor

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// rates are the requests of every second in their order, of the last day. Their
// order matters to a plan: how long rates stay on one side of an edge between two
// ranges decides which gear answers.
type rates struct {
	mu      sync.Mutex // rounds write, servers read
	seconds []float32  // a ring once it is as long as it may be
	at      int        // where the next second goes, in a full ring
	idle    int        // seconds without a request before now
}

const (
	ratesKept = 24 * 3600
	// idleKept is how much of a time without requests is kept: by then every
	// gear but the slowest has been left.
	idleKept = 30
)

// add takes the requests of a window, which is about a second; what took longer
// was as many seconds at its mean rate.
func (r *rates) add(n int64, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rate := float32(float64(n) / took.Seconds())
	for range max(1, min(ratesKept, int(took.Seconds()+.5))) {
		if n > 0 {
			r.idle = 0
		} else if r.idle++; r.idle > idleKept {
			return
		}
		if len(r.seconds) < ratesKept {
			r.seconds = append(r.seconds, rate)
		} else {
			r.seconds[r.at] = rate
			r.at = (r.at + 1) % ratesKept
		}
	}
}

// last are the newest n seconds, the oldest first; 0: all.
func (r *rates) last(n int) []float32 {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := append(append(make([]float32, 0, len(r.seconds)), r.seconds[r.at:]...), r.seconds[:r.at]...)
	if n > 0 && n < len(out) {
		out = out[len(out)-n:]
	}
	return out
}

// ErrNoRates tells that the plan in force has no gears, so that rates are not
// kept.
var ErrNoRates = errors.New("the plan in force has no gears: rates are kept for gear plans")

// WriteRates writes the requests of the last seconds (0: of all that are kept)
// since the gear plan came into force, as CSV that `cascade.qps.measured` of a
// workload names.
func (x *Executor) WriteRates(w io.Writer, seconds int) error {
	c := x.core.Load()
	if c == nil {
		return ErrNoRates
	}
	kept, ok := c.answers.(interface{ kept() *rates })
	if !ok {
		return ErrNoRates
	}
	return writeRates(w, kept.kept().last(seconds))
}

// serveRates answers with the rates, of the last N seconds with ?last=N.
func (x *Executor) serveRates(w http.ResponseWriter, r *http.Request) {
	seconds := 0
	if text := r.FormValue("last"); text != "" {
		var err error
		if seconds, err = strconv.Atoi(text); err != nil || seconds < 1 {
			http.Error(w, fmt.Sprintf("last=%q: expected a number of seconds, 1 or more", text), http.StatusBadRequest)
			return
		}
	}
	var text bytes.Buffer
	if err := x.WriteRates(&text, seconds); err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	w.Write(text.Bytes())
}

func writeRates(w io.Writer, list []float32) error {
	out := bufio.NewWriter(w)
	out.WriteString("second,count\n")
	for i, rate := range list {
		out.WriteString(strconv.Itoa(i) + "," + strconv.FormatFloat(float64(rate), 'g', 6, 32) + "\n")
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("writing the rates: %w", err)
	}
	return nil
}
