package drift

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"
)

// RateHistory holds the requests of every second of the last day, in order. The order matters to a plan: which gear
// answers depends on how long rates stay on one side of the edge between two ranges.
type RateHistory struct {
	mu          sync.Mutex // held by rounds that write and servers that read
	seconds     []float32  // requests per second; a ring once there are maxRates
	nextSlot    int        // where the next second goes in a full ring
	idleSeconds int        // seconds without a request before now
}

const (
	maxRates = 24 * 3600
	// maxIdleSeconds is how much of a time without requests is kept. After that time every gear but the slowest has
	// been left.
	maxIdleSeconds = 30
)

// Add adds a window of n requests, which lasted about a second, to the history of rates (requests a second). A longer
// window counts as several seconds at its mean rate. The last maxRates seconds are stored in a ring; of a long time
// without requests only the first maxIdleSeconds.
func (r *RateHistory) Add(n int64, duration time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rate := float32(float64(n) / duration.Seconds())
	for range max(1, min(maxRates, int(duration.Seconds()+.5))) {
		if n > 0 {
			r.idleSeconds = 0
		} else if r.idleSeconds++; r.idleSeconds > maxIdleSeconds {
			return
		}
		if len(r.seconds) < maxRates {
			r.seconds = append(r.seconds, rate)
		} else {
			r.seconds[r.nextSlot] = rate
			r.nextSlot = (r.nextSlot + 1) % maxRates
		}
	}
}

// latest returns the last n seconds, the oldest first, or all if n is 0.
func (r *RateHistory) latest(n int) []float32 {
	r.mu.Lock()
	defer r.mu.Unlock()
	rates := append(append(make([]float32, 0, len(r.seconds)), r.seconds[r.nextSlot:]...), r.seconds[:r.nextSlot]...)
	if n > 0 && n < len(rates) {
		rates = rates[len(rates)-n:]
	}
	return rates
}

// WriteCSV writes the number of requests that arrived in each of the last `seconds` full seconds (0 stands for all that
// are stored), the oldest first, as CSV that a workload reads as `cascade.qps.measured`.
func (r *RateHistory) WriteCSV(w io.Writer, seconds int) error {
	out := bufio.NewWriter(w)
	out.WriteString("second,count\n")
	for i, rate := range r.latest(seconds) {
		out.WriteString(strconv.Itoa(i) + "," + strconv.FormatFloat(float64(rate), 'g', 6, 32) + "\n")
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("writing the rates: %w", err)
	}
	return nil
}
