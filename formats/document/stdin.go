package document

import (
	"io"
	"os"
	"sync"
)

// Stdin as the name of a file stands for standard input where a file is read, and for standard output where one is
// written.
const Stdin = "-"

// sharedInput keeps what was read of standard input, so that it can be opened again: at most maxBytes.
type sharedInput struct {
	mu       sync.Mutex
	maxBytes int
	text     []byte
	err      error // the error that ended reading, io.EOF at the end
}

var stdin = sharedInput{maxBytes: 1 << 30}

// sharedReader reads standard input from its beginning.
type sharedReader struct {
	input  *sharedInput
	offset int
}

// Read reads what other readers have read already, then from standard input itself.
func (r *sharedReader) Read(p []byte) (int, error) {
	in := r.input
	in.mu.Lock()
	defer in.mu.Unlock()
	if r.offset == len(in.text) && in.err == nil {
		n, err := os.Stdin.Read(p)
		in.text, in.err = append(in.text, p[:n]...), err
		if len(in.text) > in.maxBytes {
			in.text = in.text[:in.maxBytes]
			in.err = &Error{File: nameOf(Stdin), Found: "more than " + Bytes(in.maxBytes).String(), Expected: "less to keep in memory", Hint: "write it to a file, and name that"}
		}
	}
	n := copy(p, in.text[r.offset:])
	r.offset += n
	if n == 0 {
		return 0, in.err
	}
	return n, nil
}

// Open opens a file to read. Standard input (-) may be opened several times: what was read of it is kept in memory.
func Open(path string) (io.ReadCloser, error) {
	if path == Stdin {
		return io.NopCloser(&sharedReader{input: &stdin}), nil
	}
	return os.Open(path)
}

// ReadFile returns the content of a file, or of standard input (-).
func ReadFile(path string) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}

// nameOf returns the name of a file in errors.
func nameOf(path string) string {
	if path == Stdin {
		return "standard input"
	}
	return path
}
