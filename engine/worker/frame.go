package worker

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
)

// Limits of the protocol.
const (
	Version    = 1
	HeaderSize = 8
	MaxFrame   = 1 << 20 // bytes of a payload
	MaxBatch   = 1 << 16
	maxStages  = 1 << 12
)

// Type is the type of a frame.
type Type uint8

// The frame types, as the package comment describes them.
const (
	TypeHello Type = 1 + iota
	TypeWelcome
	TypeLoad
	TypeLoaded
	TypeSegment
	TypePrepare
	TypeReady
	TypeRun
	TypeResult
	_ // 10 to 12: formerly unload, ping and pong
	_
	_
	TypeShutdown
	TypeError
	// Between hosts only, see link.
	TypeChallenge
	TypeOffer
	TypeProof
	TypePush
	TypeDone
	TypeBeat
	// Inside a machine again.
	TypeShare
	TypeProbe
	TypeKeep
	TypeKept
	TypeSwap
	TypeSwapped
	numTypes
)

var typeNames = [numTypes]string{
	"", "hello", "welcome", "load", "loaded", "segment", "prepare", "ready", "run", "result", "", "", "",
	"shutdown", "error", "challenge", "offer", "proof", "push", "done", "beat", "share", "probe",
	"keep", "kept", "swap", "swapped",
}

// String returns the type's name, such as run.
func (t Type) String() string {
	if t < numTypes && typeNames[t] != "" {
		return typeNames[t]
	}
	return fmt.Sprintf("type %d", uint8(t))
}

// ErrProtocol is returned when bytes on the control socket do not follow this protocol.
var ErrProtocol = errors.New("control protocol")

const (
	runSize    = 40
	resultSize = 48
)

// RunCommand is the command to run a stage once.
type RunCommand struct {
	ID           uint64 // echoed in the Result
	Stage        uint32
	Batch        uint32
	Segment      uint32 // number of the segment that the input lies in
	InputOffset  uint64 // offset of the input in that segment
	OutputOffset uint64 // offset of the output in the worker's own segment
	// InputOnDevice and OutputOnDevice say that the tensors lie at their offsets in the device's memory beside the
	// segment, rather than in the segment.
	InputOnDevice, OutputOnDevice bool
}

// The bits of a run's flags.
const (
	flagInputOnDevice = 1 << iota
	flagOutputOnDevice
	allFlags = 1<<iota - 1
)

// flags returns the bits that say which tensors lie in the device's memory.
func (r *RunCommand) flags() (f uint32) {
	if r.InputOnDevice {
		f |= flagInputOnDevice
	}
	if r.OutputOnDevice {
		f |= flagOutputOnDevice
	}
	return f
}

// Result says whether a run succeeded, and how long it took.
type Result struct {
	ID    uint64
	Stage uint32
	Code  Code
	Start int64 // CLOCK_MONOTONIC, nanoseconds
	End   int64
	CPU   int64  // CPU time inside the engine, nanoseconds
	Total int64  // CPU time of the worker process since its start, nanoseconds
	Text  string // the error, if Code is not OK
}

// Code says which kind of failure a Result or a Failure reports.
type Code uint32

// The codes. All but the first are failures.
const (
	OK Code = iota
	OtherFailure
	NoLibrary
	NoDevice
	CPUFallback
	BadModel
	BadShape
	BadHash
	EngineClosed
	NoMemory
	numCodes
)

// AppendFrame appends a frame with the given payload.
func AppendFrame(dst []byte, t Type, payload []byte) []byte {
	dst = appendHeader(dst, t, len(payload))
	return append(dst, payload...)
}

// appendHeader appends the header of a frame whose payload has n bytes.
func appendHeader(dst []byte, t Type, n int) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(n))
	return append(dst, byte(t), Version, 0, 0)
}

// AppendRun appends a run frame to dst, which the parent sends to have the worker run a stage (a range of a model's
// blocks) once. Segment is the shared memory with the input; offsets are in bytes. The package comment has the
// layout.
func AppendRun(dst []byte, r *RunCommand) []byte {
	dst = appendHeader(dst, TypeRun, runSize)
	dst = binary.LittleEndian.AppendUint64(dst, r.ID)
	dst = binary.LittleEndian.AppendUint32(dst, r.Stage)
	dst = binary.LittleEndian.AppendUint32(dst, r.Batch)
	dst = binary.LittleEndian.AppendUint32(dst, r.Segment)
	dst = binary.LittleEndian.AppendUint32(dst, r.flags())
	dst = binary.LittleEndian.AppendUint64(dst, r.InputOffset)
	return binary.LittleEndian.AppendUint64(dst, r.OutputOffset)
}

// ParseRun reads the payload of a run frame, the parent's command to run a stage once, and returns an error if it
// breaks the protocol.
func ParseRun(p []byte) (RunCommand, error) {
	if len(p) != runSize {
		return RunCommand{}, fmt.Errorf("%w: run frame of %d bytes, expected %d", ErrProtocol, len(p), runSize)
	}
	flags := binary.LittleEndian.Uint32(p[20:])
	r := RunCommand{
		InputOnDevice: flags&flagInputOnDevice != 0, OutputOnDevice: flags&flagOutputOnDevice != 0,
		ID: binary.LittleEndian.Uint64(p), Stage: binary.LittleEndian.Uint32(p[8:]), Batch: binary.LittleEndian.Uint32(p[12:]),
		Segment: binary.LittleEndian.Uint32(p[16:]), InputOffset: binary.LittleEndian.Uint64(p[24:]), OutputOffset: binary.LittleEndian.Uint64(p[32:]),
	}
	switch {
	case flags&^allFlags != 0:
		return RunCommand{}, fmt.Errorf("%w: run frame with reserved bits set", ErrProtocol)
	case r.Batch == 0 || r.Batch > MaxBatch:
		return RunCommand{}, fmt.Errorf("%w: run of batch %d, expected 1 to %d", ErrProtocol, r.Batch, MaxBatch)
	case r.InputOffset > math.MaxInt64 || r.OutputOffset > math.MaxInt64:
		return RunCommand{}, fmt.Errorf("%w: run with offsets %d and %d", ErrProtocol, r.InputOffset, r.OutputOffset)
	}
	return r, nil
}

// AppendResult appends a result frame, which the worker sends. The error's text is cut if the frame would be too
// large. Times are nanoseconds.
func AppendResult(dst []byte, r *Result) []byte {
	text := r.Text
	if len(text) > MaxFrame-resultSize {
		text = text[:MaxFrame-resultSize]
	}
	dst = appendHeader(dst, TypeResult, resultSize+len(text))
	dst = binary.LittleEndian.AppendUint64(dst, r.ID)
	dst = binary.LittleEndian.AppendUint32(dst, r.Stage)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(r.Code))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(r.Start))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(r.End))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(r.CPU))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(r.Total))
	return append(dst, text...)
}

// ParseResult reads the payload of a result frame, the worker's answer to a run, and returns an error if it breaks
// the protocol.
func ParseResult(p []byte) (Result, error) {
	if len(p) < resultSize {
		return Result{}, fmt.Errorf("%w: result frame of %d bytes, expected at least %d", ErrProtocol, len(p), resultSize)
	}
	r := Result{
		ID: binary.LittleEndian.Uint64(p), Stage: binary.LittleEndian.Uint32(p[8:]), Code: Code(binary.LittleEndian.Uint32(p[12:])),
		Start: int64(binary.LittleEndian.Uint64(p[16:])), End: int64(binary.LittleEndian.Uint64(p[24:])),
		CPU: int64(binary.LittleEndian.Uint64(p[32:])), Total: int64(binary.LittleEndian.Uint64(p[40:])),
	}
	if r.Code >= numCodes {
		return Result{}, fmt.Errorf("%w: result with code %d", ErrProtocol, r.Code)
	}
	if len(p) > resultSize {
		r.Text = string(p[resultSize:])
	}
	return r, nil
}

// appendJSON appends a frame whose payload is a JSON document. A document of more than MaxFrame bytes is an error.
func appendJSON(dst []byte, t Type, doc any) ([]byte, error) {
	p, err := json.Marshal(doc)
	if err != nil {
		return nil, fmt.Errorf("encode %s frame: %w", t, err)
	}
	if len(p) > MaxFrame {
		return nil, fmt.Errorf("%w: %s frame of %d bytes, at most %d", ErrProtocol, t, len(p), MaxFrame)
	}
	return AppendFrame(dst, t, p), nil
}

// parseJSON reads a JSON payload strictly: one document, no unknown field.
func parseJSON[T any](t Type, p []byte) (doc T, err error) {
	err = decodeJSON(t, p, &doc)
	return doc, err
}

// decodeJSON reads a JSON payload into doc, strictly: one document, no unknown field.
func decodeJSON(t Type, p []byte, doc any) error {
	d := json.NewDecoder(bytes.NewReader(p))
	d.DisallowUnknownFields()
	if err := d.Decode(doc); err != nil {
		return fmt.Errorf("%w: %s frame: %v", ErrProtocol, t, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return fmt.Errorf("%w: %s frame: more than one document", ErrProtocol, t)
	}
	return nil
}

// Decoder cuts a byte stream into frames. The caller reads bytes into Space, says with MarkFilled how many it
// read, and calls NextFrame until that returns no more frames.
type Decoder struct {
	buf        []byte
	start, end int // the bytes that were read and not yet returned as frames
}

const decoderSize = 16 << 10

// Space returns memory to read into, behind the bytes that wait for the rest of their frame. It is never empty.
func (d *Decoder) Space() []byte {
	if d.buf == nil {
		d.buf = make([]byte, decoderSize)
	}
	if d.start == d.end {
		d.start, d.end = 0, 0
	}
	if d.end == len(d.buf) {
		if d.start > 0 {
			copy(d.buf, d.buf[d.start:d.end])
			d.start, d.end = 0, d.end-d.start
		} else {
			// One frame fills the buffer. NextFrame has checked its length, so the buffer stops growing at MaxFrame.
			larger := make([]byte, 2*len(d.buf))
			copy(larger, d.buf)
			d.buf = larger
		}
	}
	return d.buf[d.end:]
}

// MarkFilled says that the caller has written n bytes to Space.
func (d *Decoder) MarkFilled(n int) { d.end += n }

// NextFrame returns the next whole frame. If more bytes are needed, ok is false. The payload is valid until the next
// call of Space. A frame is a message between processes: a header and a payload.
func (d *Decoder) NextFrame() (t Type, payload []byte, ok bool, err error) {
	b := d.buf[d.start:d.end]
	if len(b) < HeaderSize {
		return 0, nil, false, nil
	}
	n := binary.LittleEndian.Uint32(b)
	t = Type(b[4])
	switch {
	case b[5] != Version:
		return 0, nil, false, fmt.Errorf("%w: frame of version %d, expected %d: parent and worker are different builds", ErrProtocol, b[5], Version)
	case t == 0 || t >= numTypes:
		return 0, nil, false, fmt.Errorf("%w: frame of unknown %s", ErrProtocol, t)
	case b[6] != 0 || b[7] != 0:
		return 0, nil, false, fmt.Errorf("%w: %s frame with reserved bytes set", ErrProtocol, t)
	case n > MaxFrame:
		return 0, nil, false, fmt.Errorf("%w: %s frame of %d bytes, at most %d", ErrProtocol, t, n, MaxFrame)
	}
	if len(b) < HeaderSize+int(n) {
		return t, nil, false, nil
	}
	d.start += HeaderSize + int(n)
	return t, b[HeaderSize : HeaderSize+n : HeaderSize+n], true, nil
}
