package main

import (
	"fmt"
	"io"
	"sync"
	"time"

	"inferplan/cputime"
)

// progress reports the work to be done, before and meanwhile. Costs are in CPU
// seconds as guessed from the number of requests; the guess is corrected by what
// the runs so far took.
type progress struct {
	mu           sync.Mutex
	out          io.Writer
	total, done  float64 // guessed CPU seconds
	runs, ended  int
	started, cpu float64 // wall and CPU at the start
	last         time.Time
	every        time.Duration
}

// perRequest is the cost of a simulated request in CPU seconds, and perPlan that of
// a plan, on this machine, roughly.
const (
	perRequest = 1.1e-6
	perPlan    = .4
)

// expect adds work to come.
func (p *progress) expect(cost float64) {
	p.total += cost
	p.runs++
}

func (p *progress) begin(kept int, where string) {
	p.started, p.cpu, p.last = float64(time.Now().UnixNano())/1e9, cputime.Used().Seconds(), time.Now()
	fmt.Fprintf(p.out, "about %d results to measure, %v of CPU; %d are kept in %s\n", p.runs, seconds(p.total), kept, where)
}

// end counts a result.
func (p *progress) end(key, shown string, cost float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done += cost
	p.ended++
	if time.Since(p.last) < p.every {
		return
	}
	p.last = time.Now()
	wall := float64(p.last.UnixNano())/1e9 - p.started
	left := max(0, p.total-p.done) / p.done * wall
	fmt.Fprintf(p.out, "%d of about %d, %v of CPU, about %v left: %s %s\n", p.ended, max(p.runs, p.ended), seconds(cputime.Used().Seconds()-p.cpu), seconds(left), key, shown)
}

func seconds(s float64) time.Duration {
	return time.Duration(s * float64(time.Second)).Round(time.Second)
}
