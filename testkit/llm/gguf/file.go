package gguf

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
)

// The format is described in ggml's docs/gguf.md.
const (
	magic     = 0x46554747 // "GGUF"
	version   = 3
	alignment = 32
)

// Types of fields.
const (
	typeUint32  = 4
	typeInt32   = 5
	typeFloat32 = 6
	typeBool    = 7
	typeString  = 8
	typeArray   = 9
)

// Types of tensors.
const (
	tensorFloat32 = 0
	tensorFloat16 = 1
)

// field is a key with a value: uint32, float32, bool, string, []string or []int32.
type field struct {
	key   string
	value any
}

// tensor is an array of numbers. The first dimension is the one whose neighbours
// lie side by side.
type tensor struct {
	name string
	dims []int
	kind uint32
	fill func() []byte // its content, when it is written
}

func (t *tensor) bytes() int {
	n := 4
	if t.kind == tensorFloat16 {
		n = 2
	}
	for _, d := range t.dims {
		n *= d
	}
	return n
}

// writer keeps the first error and counts bytes.
type writer struct {
	out *bufio.Writer
	at  int
	err error
}

func (w *writer) put(data []byte) {
	if w.err == nil {
		_, w.err = w.out.Write(data)
		w.at += len(data)
	}
}

func (w *writer) number(v any) {
	if w.err == nil {
		w.err = binary.Write(w.out, binary.LittleEndian, v)
		w.at += binary.Size(v)
	}
}

func (w *writer) text(s string) {
	w.number(uint64(len(s)))
	w.put([]byte(s))
}

func (w *writer) pad() { w.put(make([]byte, aligned(w.at)-w.at)) }

func aligned(n int) int { return (n + alignment - 1) / alignment * alignment }

func (w *writer) field(f field) {
	w.text(f.key)
	switch v := f.value.(type) {
	case uint32:
		w.number(uint32(typeUint32))
		w.number(v)
	case float32:
		w.number(uint32(typeFloat32))
		w.number(v)
	case bool:
		w.number(uint32(typeBool))
		w.number(v)
	case string:
		w.number(uint32(typeString))
		w.text(v)
	case []string:
		w.number([]uint32{typeArray, typeString})
		w.number(uint64(len(v)))
		for _, s := range v {
			w.text(s)
		}
	case []int32:
		w.number([]uint32{typeArray, typeInt32})
		w.number(uint64(len(v)))
		w.number(v)
	default:
		panic(fmt.Sprintf("gguf: field %s of type %T", f.key, f.value))
	}
}

// write writes a file.
func write(out io.Writer, fields []field, tensors []tensor) error {
	w := &writer{out: bufio.NewWriterSize(out, 1<<16)}
	w.number([]uint32{magic, version})
	w.number([]uint64{uint64(len(tensors)), uint64(len(fields))})
	for _, f := range fields {
		w.field(f)
	}
	offset := 0
	for i := range tensors {
		t := &tensors[i]
		w.text(t.name)
		w.number(uint32(len(t.dims)))
		for _, d := range t.dims {
			w.number(uint64(d))
		}
		w.number(t.kind)
		w.number(uint64(offset))
		offset += aligned(t.bytes())
	}
	w.pad()
	for i := range tensors {
		w.put(tensors[i].fill())
		w.pad()
	}
	if w.err == nil {
		w.err = w.out.Flush()
	}
	return w.err
}
