package instrument

import (
	"cmp"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"inferplan/bench/kept"
	"inferplan/cputime"
)

// results are what a program has measured so far, by key: in memory, and in a file of JSON lines that grows with each.
type results struct {
	mu      sync.Mutex
	program string // hash of the program whose results are read and kept
	lines   *kept.Lines
	values  map[string]result
	spent   float64 // seconds of CPU of the results that were asked for, measured now or before
	said    time.Time
}

// result is a line of the file.
type result struct {
	Program string          `json:"program"`
	Key     string          `json:"key"`
	CPU     float64         `json:"cpu_s"`
	Value   json.RawMessage `json:"value"`
}

// openResults reads the results of a program; of this one if the hash is empty. fresh forgets all that the file has.
func openResults(path, program string, fresh bool) (*results, error) {
	k := &results{program: program, values: map[string]result{}}
	var err error
	if program == "" {
		if k.program, err = kept.Program(); err != nil {
			return nil, fmt.Errorf("reading this program, whose results are kept: %w", err)
		}
	}
	k.lines, err = kept.Open(path, fresh, func(line []byte) error {
		var l result
		if json.Unmarshal(line, &l) == nil && l.Program == k.program {
			k.values[l.Key] = l
		}
		return nil
	})
	return k, err
}

// sayEvery is the least time between two lines about progress.
const sayEvery = 5 * time.Second

// Measured returns the result that is kept under a key; if there is none, it measures and keeps it. The instrument must have Keeps set. A key holds all that the result
// depends on, but for the program. What ends after the run was cancelled is not kept. Several goroutines may call it with different keys.
func Measured[T any](r *Run, key string, measure func() (T, error)) (T, error) {
	var out T
	k := r.results
	k.mu.Lock()
	line, ok := k.values[key]
	k.mu.Unlock()
	if ok {
		if err := json.Unmarshal(line.Value, &out); err != nil {
			return out, fmt.Errorf("reading the earlier result %s (-fresh measures all again): %w", key, err)
		}
		k.add(line.CPU)
		return out, nil
	}
	before := cputime.Used()
	out, err := measure()
	spent := (cputime.Used() - before).Seconds()
	if err = cmp.Or(err, r.Ctx.Err()); err != nil { // what was cut short is no result
		return out, fmt.Errorf("%s: %w", key, err)
	}
	text, err := json.Marshal(out)
	if err != nil {
		return out, fmt.Errorf("keeping the result %s: %w", key, err)
	}
	k.add(spent)
	k.mu.Lock()
	defer k.mu.Unlock()
	line = result{k.program, key, spent, text}
	k.values[key] = line
	if now := time.Now(); now.Sub(k.said) >= sayEvery {
		k.said = now
		fmt.Fprintf(r.Log, "%s: %d results, the last %s\n", r.part, len(k.values), key)
	}
	return out, k.lines.Add(line)
}

// add counts CPU time.
func (k *results) add(seconds float64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.spent += seconds
}

// Spent returns the seconds of CPU that the results took that were asked for so far, in this run or an earlier one.
func (r *Run) Spent() float64 {
	r.results.mu.Lock()
	defer r.results.mu.Unlock()
	return r.results.spent
}

// Program returns the hash of the program whose results are kept.
func (r *Run) Program() string { return r.results.program }
