package instrument

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"inferplan/cputime"
)

// results are what a program has measured so far, by key: in memory, and in a file of JSON lines that grows with each.
type results struct {
	mu      sync.Mutex
	program string // hash of the program whose results are read and kept
	file    *os.File
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

// openResults reads the results of a program; of this one if the hash is empty. fresh forgets all that the file has. A line that an
// interruption cut off is ended and left out, then and later. Several processes may add lines to one file.
func openResults(path, program string, fresh bool) (*results, error) {
	k := &results{program: program, values: map[string]result{}}
	var err error
	if program == "" {
		if k.program, err = programHash(); err != nil {
			return nil, fmt.Errorf("reading this program, whose results are kept: %w", err)
		}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("making the folder of results: %w", err)
	}
	mode := os.O_RDWR | os.O_CREATE | os.O_APPEND
	if fresh {
		mode |= os.O_TRUNC
	}
	if k.file, err = os.OpenFile(path, mode, 0o644); err != nil {
		return nil, fmt.Errorf("opening the results: %w", err)
	}
	text, err := io.ReadAll(k.file)
	if err == nil && len(text) > 0 && text[len(text)-1] != '\n' {
		_, err = k.file.WriteString("\n")
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("reading earlier results: %s: %w", path, err), k.file.Close())
	}
	for line := range bytes.Lines(text) {
		var l result
		if json.Unmarshal(line, &l) == nil && l.Program == k.program {
			k.values[l.Key] = l
		}
	}
	return k, nil
}

// programHash returns a hash of the running program, for results that depend on all of it.
func programHash() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", err
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil))[:20], nil
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
	if text, err = json.Marshal(line); err == nil {
		_, err = k.file.Write(append(text, '\n'))
	}
	if err != nil {
		return out, fmt.Errorf("keeping the result %s: %w", key, err)
	}
	return out, nil
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
