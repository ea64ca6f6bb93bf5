package worker

import (
	"bytes"
	"errors"
	"testing"

	"pgregory.net/rapid"
)

func TestRunAndResultRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		run := RunCommand{
			ID: rapid.Uint64().Draw(t, "id"), Stage: rapid.Uint32().Draw(t, "stage"), Batch: rapid.Uint32Range(1, MaxBatch).Draw(t, "batch"),
			Segment: rapid.Uint32().Draw(t, "segment"), InputOffset: rapid.Uint64Range(0, 1<<63-1).Draw(t, "in"), OutputOffset: rapid.Uint64Range(0, 1<<63-1).Draw(t, "out"),
		}
		res := Result{
			ID: run.ID, Stage: run.Stage, Code: Code(rapid.Uint32Range(0, uint32(numCodes)-1).Draw(t, "code")), Start: rapid.Int64().Draw(t, "start"),
			End: rapid.Int64().Draw(t, "end"), CPU: rapid.Int64().Draw(t, "cpu"), Total: rapid.Int64().Draw(t, "total"), Text: rapid.String().Draw(t, "text"),
		}
		stream := AppendResult(AppendRun(nil, &run), &res)
		// However the stream is cut, the same frames come out.
		var d Decoder
		var types []Type
		for len(stream) > 0 || len(types) < 2 {
			typ, p, ok, err := d.NextFrame()
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				n := min(rapid.IntRange(1, 60).Draw(t, "read"), len(stream))
				n = copy(d.Space(), stream[:n])
				d.MarkFilled(n)
				stream = stream[n:]
				continue
			}
			types = append(types, typ)
			switch typ {
			case TypeRun:
				if got, err := ParseRun(p); err != nil || got != run {
					t.Fatalf("run: %+v, %v; want %+v", got, err, run)
				}
			case TypeResult:
				if got, err := ParseResult(p); err != nil || got != res {
					t.Fatalf("result: %+v, %v; want %+v", got, err, res)
				}
			}
		}
	})
}

func TestDecoderRefuses(t *testing.T) {
	ok := AppendFrame(nil, TypeBeat, make([]byte, 8))
	spoil := func(i int, v byte) []byte {
		b := bytes.Clone(ok)
		b[i] = v
		return b
	}
	for name, b := range map[string][]byte{
		"length": spoil(2, 0xff), "type 0": spoil(4, 0), "type": spoil(4, 99), "version": spoil(5, 2), "reserved": spoil(6, 1),
	} {
		var d Decoder
		d.MarkFilled(copy(d.Space(), b))
		if _, _, _, err := d.NextFrame(); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %v, want a protocol error", name, err)
		}
	}
}

func TestDecoderTakesTheLargestFrame(t *testing.T) {
	b := AppendFrame(nil, TypeLoad, bytes.Repeat([]byte{7}, MaxFrame))
	var d Decoder
	for len(b) > 0 {
		if _, _, ok, err := d.NextFrame(); ok || err != nil {
			t.Fatalf("frame before its end: %v %v", ok, err)
		}
		n := copy(d.Space(), b)
		d.MarkFilled(n)
		b = b[n:]
	}
	if _, p, ok, err := d.NextFrame(); !ok || err != nil || len(p) != MaxFrame {
		t.Fatalf("%d bytes, %v, %v", len(p), ok, err)
	}
}

// FuzzDecoder: whatever comes over the socket, the decoder and the parsers
// return, take no more memory than the limits allow, and what parses encodes
// to the same bytes.
func FuzzDecoder(f *testing.F) {
	f.Add(AppendRun(nil, &RunCommand{ID: 1, Batch: 2, InputOffset: 64, OutputOffset: 128}))
	f.Add(AppendResult(nil, &Result{ID: 1, Code: OtherFailure, Text: "x"}))
	load, _ := appendJSON(nil, TypeLoad, StageSpec{Model: "m", To: 1, Blocks: 1, MaxBatch: 1})
	f.Add(load)
	hello, _ := appendJSON(nil, TypeHello, Hello{Engine: "replay"})
	f.Add(append(hello, 0xff, 0xff, 0xff))
	f.Fuzz(func(t *testing.T, data []byte) {
		var d Decoder
		for {
			typ, p, ok, err := d.NextFrame()
			if err != nil {
				return
			}
			if !ok {
				if len(data) == 0 {
					return
				}
				n := copy(d.Space(), data)
				d.MarkFilled(n)
				data = data[n:]
				continue
			}
			switch typ {
			case TypeRun:
				if r, err := ParseRun(p); err == nil && !bytes.Equal(AppendRun(nil, &r)[HeaderSize:], p) {
					t.Errorf("run %+v encodes to other bytes", r)
				}
			case TypeResult:
				if r, err := ParseResult(p); err == nil && !bytes.Equal(AppendResult(nil, &r)[HeaderSize:], p) {
					t.Errorf("result %+v encodes to other bytes", r)
				}
			case TypeHello:
				parseJSON[Hello](typ, p)
			case TypeLoad:
				if s, err := parseJSON[StageSpec](typ, p); err == nil {
					s.check()
				}
			case TypeProbe:
				parseJSON[Probe](typ, p)
			case TypePrepare:
				parseJSON[Layout](typ, p)
			case TypeSegment:
				parseJSON[SegmentSpec](typ, p)
			case TypeError:
				parseJSON[Failure](typ, p)
			}
			if len(d.buf) > 4*(MaxFrame+HeaderSize) {
				t.Fatalf("decoder holds %d bytes", len(d.buf))
			}
		}
	})
}
