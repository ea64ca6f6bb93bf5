package engine

import (
	"errors"
	"strings"
)

// Errors that callers tell apart with errors.Is.
var (
	// ErrNoLibrary: the engine's library, or one it needs, cannot be opened.
	ErrNoLibrary = errors.New("library missing")
	// ErrNoDevice: the device does not exist or cannot be used here.
	ErrNoDevice = errors.New("no such device")
	// ErrFallback: the device cannot execute every node, so that part of the
	// model would run elsewhere and every number measured would be wrong.
	ErrFallback = errors.New("part of the model would fall back to another device")
	// ErrModel: the model cannot be loaded (unknown operator, wrong types).
	ErrModel = errors.New("model cannot be loaded")
	// ErrShape: a tensor's type, shape or length is not what the block declares.
	ErrShape = errors.New("wrong tensor")
	// ErrClosed: use after Close.
	ErrClosed = errors.New("already closed")
)

// MissingError lists what must be there before an engine or device works.
type MissingError struct {
	What    string   // what was asked for: "device cuda:0"
	Missing []string // one entry per missing thing, with where it was looked for
	Hint    string   // what to type
	Kind    error    // ErrNoLibrary or ErrNoDevice
}

func (e *MissingError) Error() string {
	s := e.What + ": missing " + strings.Join(e.Missing, "; ")
	if e.Hint != "" {
		s += "; " + e.Hint
	}
	return s
}

func (e *MissingError) Unwrap() error { return e.Kind }
