package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
)

// store keeps results by key, in memory and in a file of JSON lines that grows
// with every result.
type store struct {
	mu       sync.Mutex
	values   map[string]json.RawMessage
	file     *os.File // nil: memory only
	revision string   // of the program that wrote the file's first line
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
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("making the folder of results: %w", err)
	}
	whole := int64(0) // length of the lines that are whole
	if !fresh {
		text, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("reading earlier results: %w", err)
		}
		if whole, err = s.read(text); err != nil {
			return nil, fmt.Errorf("reading earlier results: %s: %w (-fresh measures all again)", path, err)
		}
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening the results: %w", err)
	}
	if s.file = f; whole == 0 {
		err = errors.Join(f.Truncate(0), s.line(header{storeFormat, s.revision}))
	} else {
		err = f.Truncate(whole)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("opening the results: %w", err), f.Close())
	}
	return s, nil
}

// read takes lines; a last one without its end, of a run that was killed, is
// left out. It returns the length of what it took.
func (s *store) read(text []byte) (int64, error) {
	r := bufio.NewReader(bytes.NewReader(text))
	whole := int64(0)
	for n := 1; ; n++ {
		line, err := r.ReadBytes('\n')
		if err == io.EOF {
			return whole, nil
		}
		if err != nil {
			return 0, err
		}
		if n == 1 {
			var h header
			if err := json.Unmarshal(line, &h); err != nil || h.Format != storeFormat {
				return 0, fmt.Errorf("line 1: found %.60q, expected the format %s", line, storeFormat)
			}
			s.revision = h.Revision
		} else {
			var e entry
			if err := json.Unmarshal(line, &e); err != nil {
				return 0, fmt.Errorf("line %d: %w", n, err)
			}
			s.values[e.Key] = e.Value
		}
		whole += int64(len(line))
	}
}

func (s *store) line(v any) error {
	if s.file == nil {
		return nil
	}
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = s.file.Write(append(text, '\n'))
	return err
}

func (s *store) close() error {
	if s.file == nil {
		return nil
	}
	return s.file.Close()
}

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
	if err := s.line(entry{key, text}); err != nil {
		return fmt.Errorf("keeping the result %s: %w", key, err)
	}
	return nil
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
	path, err := os.Executable()
	if err != nil {
		return "unknown"
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "unknown"
	}
	sum := sha256.Sum256(text)
	return "program " + hex.EncodeToString(sum[:6])
}
