package main

import (
	"encoding/json"
	"fmt"
	"runtime/debug"
	"sync"

	"inferplan/bench/kept"
)

// store keeps results by key, in memory and in a file of JSON lines that grows
// with every result.
type store struct {
	mu       sync.Mutex
	values   map[string]json.RawMessage
	lines    *kept.Lines // nil if results are in memory only
	revision string      // of the program that wrote the file's first line
}

// header is the first line of the file, entry every other one.
type header struct {
	Format   string `json:"format"`
	Revision string `json:"revision"`
}

type entry struct {
	Key   string          `json:"key"`
	Value json.RawMessage `json:"value"`
}

const storeFormat = "inferplan.bench-gear/v1"

// openStore reads what an earlier run left; fresh leaves that out.
func openStore(path string, fresh bool) (*store, error) {
	s := &store{values: map[string]json.RawMessage{}, revision: revision()}
	begun := false
	var err error
	s.lines, err = kept.Open(path, fresh, func(line []byte) error {
		if !begun {
			var h header
			if err := json.Unmarshal(line, &h); err != nil || h.Format != storeFormat {
				return fmt.Errorf("found %.60q, expected the format %s (-fresh measures all again)", line, storeFormat)
			}
			s.revision, begun = h.Revision, true
			return nil
		}
		var e entry
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("%w (-fresh measures all again)", err)
		}
		s.values[e.Key] = e.Value
		return nil
	})
	if err == nil && !begun {
		err = s.lines.Add(header{storeFormat, s.revision})
	}
	return s, err
}

func (s *store) close() error { return s.lines.Close() }

// get fills v with the result of a key.
func (s *store) get(key string, v any) (bool, error) {
	s.mu.Lock()
	text, ok := s.values[key]
	s.mu.Unlock()
	if !ok {
		return false, nil
	}
	if err := json.Unmarshal(text, v); err != nil {
		return false, fmt.Errorf("reading the earlier result %s: %w (-fresh measures all again)", key, err)
	}
	return true, nil
}

// put keeps a result.
func (s *store) put(key string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("keeping the result %s: %w", key, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values[key] = text
	return s.lines.Add(entry{key, text})
}

// revision is the commit that this program was built from, "+" where the tree had
// changes; a hash of the program where the build does not say.
func revision() string {
	rev, changed := "", ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				rev = s.Value[:min(12, len(s.Value))]
			case s.Key == "vcs.modified" && s.Value == "true":
				changed = "+"
			}
		}
	}
	if rev != "" {
		return rev + changed
	}
	program, err := kept.Program()
	if err != nil {
		return "unknown"
	}
	return "program " + program[:12]
}
