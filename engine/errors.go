package engine

import (
	"errors"
	"strings"
)

// Errors that callers distinguish with errors.Is.
var (
	// ErrNoLibrary is returned when the engine's library, or one that it needs, cannot be opened.
	ErrNoLibrary = errors.New("library missing")
	// ErrNoDevice is returned when the device does not exist or cannot be used on this machine.
	ErrNoDevice = errors.New("no such device")
	// ErrFallback is returned when the device cannot execute every node. Part of the model would then run
	// elsewhere, and every measured number would be wrong.
	ErrFallback = errors.New("part of the model would fall back to another device")
	// ErrModel is returned when the model cannot be loaded (unknown operator, wrong types).
	ErrModel = errors.New("model cannot be loaded")
	// ErrShape is returned when a tensor's type, shape or length differs from what the block declares.
	ErrShape = errors.New("wrong tensor")
	// ErrClosed is returned when something is used after its Close.
	ErrClosed = errors.New("already closed")
)

// MissingError lists what an engine or device needs and does not have.
type MissingError struct {
	Target  string   // the thing that the caller wanted, such as "device cuda:0"
	Missing []string // one entry per missing thing, with the places that were searched
	Hint    string   // the text to type
	Kind    error    // ErrNoLibrary or ErrNoDevice
}

// Error lists what is missing, with a hint what to do if there is one.
func (e *MissingError) Error() string {
	s := e.Target + ": missing " + strings.Join(e.Missing, "; ")
	if e.Hint != "" {
		s += "; " + e.Hint
	}
	return s
}

func (e *MissingError) Unwrap() error { return e.Kind }
