package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"inferplan/bench/kept"
	"inferplan/formats"
	"inferplan/formats/document"
)

// store keeps what was simulated and solved in a folder, so that a bench that
// was interrupted goes on where it was. Simulated runs are lines of a file,
// plans are files of their own. Keys hold all that a result depends on: for a
// run that is a fingerprint of what the plan, policy and simulator do, for what
// was solved a hash of this program, so that results of other code are not taken
// for this one's. An empty folder name keeps nothing beyond the process.
type store struct {
	mu      sync.Mutex
	dir     string
	program string // hash of what runs
	runs    map[string]runResult
	lines   *kept.Lines
}

// runResult holds the results of one simulated run.
type runResult struct {
	Models    []modelResult      `json:"models"`
	Use       map[string]float64 `json:"use"` // by device kind
	Transfers [3]float64         `json:"transfers"`
	Events    int64              `json:"events"`
}

// modelResult counts a model's requests: all, and those dropped or late.
type modelResult struct {
	Requests int64 `json:"n"`
	Lost     int64 `json:"lost"`
}

type storedRun struct {
	Key string `json:"key"`
	runResult
}

func openStore(dir, keptBy string) (*store, error) {
	s := &store{dir: dir, runs: map[string]runResult{}}
	if dir == "" {
		return s, nil
	}
	if err := os.MkdirAll(filepath.Join(dir, "plans"), 0o755); err != nil {
		return nil, fmt.Errorf("making the folder of results: %w", err)
	}
	var err error
	if s.program = keptBy; keptBy == "" {
		if s.program, err = kept.Program(); err != nil {
			return nil, fmt.Errorf("reading this program, whose results are kept: %w", err)
		}
	}
	s.lines, err = kept.Open(filepath.Join(dir, "runs.jsonl"), false, func(line []byte) error {
		var r storedRun
		if json.Unmarshal(line, &r) == nil && r.Key != "" {
			s.runs[r.Key] = r.runResult
		}
		return nil
	})
	return s, err
}

// has returns the result that is kept under a key.
func (s *store) has(key string) (runResult, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.runs[key]
	return r, ok
}

func (s *store) run(key string, simulate func() (runResult, error)) (runResult, error) {
	r, ok := s.has(key)
	if ok {
		return r, nil
	}
	r, err := simulate()
	if err != nil {
		return r, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs[key] = r
	return r, s.lines.Add(storedRun{key, r})
}

// plan is a plan kept under what it was made from, made where there is none.
func (s *store) plan(key string, make func() (*formats.Plan, error)) (*formats.Plan, error) {
	if s.dir == "" {
		return make()
	}
	path := filepath.Join(s.dir, "plans", keyOf(key, s.program)+".json")
	p, err := formats.ReadPlan(path)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return p, err
	}
	if p, err = make(); err != nil {
		return nil, err
	}
	_, err = document.WriteFile(path, p, document.Force(true))
	return p, err
}

// storedPlan is a plan within a kept value, written and read as plan files are: the kind of
// a plan says what its section is.
type storedPlan struct{ *formats.Plan }

// MarshalJSON writes the plan.
func (d storedPlan) MarshalJSON() ([]byte, error) { return document.Marshal(d.Plan) }

// UnmarshalJSON reads the plan.
func (d *storedPlan) UnmarshalJSON(data []byte) (err error) {
	d.Plan, err = formats.DecodePlan(data, "a kept plan")
	return err
}

// keep is a value of a table, kept like a plan under what it was made from.
func keep[T any](s *store, key string, make func() (T, error)) (T, error) {
	if s.dir == "" {
		return make()
	}
	path := filepath.Join(s.dir, "plans", keyOf(key, s.program)+".value")
	var v T
	data, err := os.ReadFile(path)
	if err == nil {
		if err = json.Unmarshal(data, &v); err != nil {
			err = fmt.Errorf("reading %s: %w", path, err)
		}
		return v, err
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return v, err
	}
	if v, err = make(); err != nil {
		return v, err
	}
	if data, err = json.Marshal(v); err != nil {
		return v, fmt.Errorf("keeping a result: %w", err)
	}
	if err := os.WriteFile(path+".part", data, 0o644); err != nil {
		return v, fmt.Errorf("keeping a result: %w", err)
	}
	return v, os.Rename(path+".part", path)
}

func (s *store) close() error { return s.lines.Close() }

// keyOf is a short hash of documents and values.
func keyOf(parts ...any) string {
	h := sha256.New()
	for _, p := range parts {
		data, err := document.Marshal(p)
		if err != nil {
			data = fmt.Appendf(nil, "%+v", p)
		}
		h.Write(data)
		h.Write([]byte{0})
	}
	return hex.EncodeToString(h.Sum(nil))[:20]
}
