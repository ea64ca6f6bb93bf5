package kept

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Lines is an open file. Lines are only added, each at once, so that several
// processes may share one. A nil *Lines keeps nothing.
type Lines struct{ file *os.File }

// Open reads the lines that are there and leaves the file open for more; fresh
// forgets them. A line that was cut off by an interruption is ended and left out,
// then and later.
func Open(path string, fresh bool, take func(line []byte) error) (_ *Lines, err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("making the folder of results: %w", err)
	}
	mode := os.O_RDWR | os.O_CREATE | os.O_APPEND
	if fresh {
		mode |= os.O_TRUNC
	}
	f, err := os.OpenFile(path, mode, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening the results: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("reading earlier results: %s: %w", path, err), f.Close())
		}
	}()
	r := bufio.NewReader(f)
	for n := 1; ; n++ {
		line, err := r.ReadBytes('\n')
		switch {
		case err == io.EOF && len(line) == 0:
			return &Lines{f}, nil
		case err == io.EOF:
			_, err = f.WriteString("\n")
			return &Lines{f}, err
		case err != nil:
			return nil, err
		case !json.Valid(line):
			continue
		}
		if err := take(line); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
}

// Add adds a line.
func (l *Lines) Add(v any) error {
	if l == nil {
		return nil
	}
	line, err := json.Marshal(v)
	if err == nil {
		_, err = l.file.Write(append(line, '\n'))
	}
	if err != nil {
		return fmt.Errorf("keeping a result: %w", err)
	}
	return nil
}

// Close closes the file.
func (l *Lines) Close() error {
	if l == nil {
		return nil
	}
	return l.file.Close()
}

// Program is a hash of the running program, for results that depend on all of it.
func Program() (string, error) {
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
