package drift

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"
)

// Rates are the requests of every second in their order, of the last day. Their
// order matters to a plan: how long rates stay on one side of an edge between two
// ranges decides which gear answers.
type Rates struct {
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

// Add takes the requests of a window, which is about a second; what took longer
// was as many seconds at its mean rate.
func (r *Rates) Add(n int64, took time.Duration) {
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
func (r *Rates) last(n int) []float32 {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := append(append(make([]float32, 0, len(r.seconds)), r.seconds[r.at:]...), r.seconds[:r.at]...)
	if n > 0 && n < len(out) {
		out = out[len(out)-n:]
	}
	return out
}

// WriteCSV writes the newest seconds (0: all that are kept), the oldest first, as CSV that
// `cascade.qps.measured` of a workload names.
func (r *Rates) WriteCSV(w io.Writer, seconds int) error {
	out := bufio.NewWriter(w)
	out.WriteString("second,count\n")
	for i, rate := range r.last(seconds) {
		out.WriteString(strconv.Itoa(i) + "," + strconv.FormatFloat(float64(rate), 'g', 6, 32) + "\n")
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("writing the rates: %w", err)
	}
	return nil
}
