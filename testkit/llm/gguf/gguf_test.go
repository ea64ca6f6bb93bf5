package gguf

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The container is read back by the letter of the format's description.
func TestWrite(t *testing.T) {
	m := Model{Name: "m", Width: 32, Layers: 2, Hidden: 24, Heads: 2, Context: 64, Seed: 1}
	var file bytes.Buffer
	if err := m.Write(&file); err != nil {
		t.Fatal(err)
	}
	r := &reading{t: t, data: file.Bytes()}
	if string(r.take(4)) != "GGUF" || r.u32() != 3 {
		t.Fatal("no GGUF of version 3")
	}
	tensors, fields := r.u64(), r.u64()
	values := map[string]any{}
	for range fields {
		key := r.text()
		values[key] = r.value(r.u32())
	}
	for key, want := range map[string]any{"general.architecture": "llama", "llama.block_count": uint32(2), "llama.embedding_length": uint32(32), "llama.feed_forward_length": uint32(24),
		"llama.attention.head_count": uint32(2), "llama.rope.dimension_count": uint32(16), "llama.context_length": uint32(64), "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.eos_token_id": uint32(tokenEnd)} {
		if values[key] != want {
			t.Errorf("%s: %v, want %v", key, values[key], want)
		}
	}
	names := values["tokenizer.ggml.tokens"].([]any)
	if len(names) != vocabulary || names['a'] != "a" || names[' '] != "Ġ" || names['\n'] != "Ċ" || names[0xad] != "Ń" || names[tokenEnd] != "<|end|>" {
		t.Errorf("%q", names)
	}
	type placed struct {
		name   string
		dims   []uint64
		kind   uint32
		offset uint64
	}
	var list []placed
	for range tensors {
		p := placed{name: r.text()}
		for range r.u32() {
			p.dims = append(p.dims, r.u64())
		}
		p.kind, p.offset = r.u32(), r.u64()
		list = append(list, p)
	}
	start := aligned(r.at)
	at, seen := uint64(0), 0
	for _, p := range list {
		n := uint64(2)
		if p.kind == tensorFloat32 {
			n = 4
		}
		for _, d := range p.dims {
			n *= d
		}
		if p.offset != at {
			t.Errorf("%s at %d, expected %d", p.name, p.offset, at)
		}
		content := r.data[uint64(start)+p.offset:][:n]
		at += uint64(aligned(int(n)))
		switch p.name {
		case "token_embd.weight", "output.weight":
			if fmt.Sprint(p.dims) != fmt.Sprint([]int{32, vocabulary}) {
				t.Errorf("%s: %v", p.name, p.dims)
			}
			seen++
		case "blk.1.attn_output.weight", "blk.0.ffn_down.weight":
			silent := content[:2*kept*p.dims[0]]
			if !bytes.Equal(silent, make([]byte, len(silent))) || bytes.Count(content, []byte{0, 0}) == len(content)/2 {
				t.Errorf("%s: expected %d rows of zeros, and others", p.name, kept)
			}
			seen++
		case "output_norm.weight":
			if math.Float32frombits(binary.LittleEndian.Uint32(content)) != 1 {
				t.Errorf("%s: % x", p.name, content[:4])
			}
			seen++
		}
	}
	if seen != 5 || start+int(at) != len(r.data) || tensors != 3+2*9 {
		t.Errorf("%d of 5 tensors, %d in all, %d bytes of %d", seen, tensors, start+int(at), len(r.data))
	}
}

// The same seed gives the same bytes, another one others.
func TestSeeds(t *testing.T) {
	sum := func(m Model) string {
		h := sha256.New()
		if err := m.Write(h); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%x", h.Sum(nil))
	}
	m := Model{Name: "m", Width: 32, Layers: 2, Hidden: 24, Heads: 2, Context: 64, Seed: 1}
	other := m
	other.Seed = 2
	if again := sum(m); again != sum(m) || again == sum(other) {
		t.Error("seeds do not decide")
	}
	const want = "bbc95a63b0bc7c303c73f94753807198a29d194b6e4b22d381386d51dc323063"
	if got := sum(m); got != want {
		t.Errorf("%s, want %s: models that were made before differ now", got, want)
	}
}

func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	m := Tiny("tiny", 1)
	path, err := m.WriteFile(dir)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Size() < 5e6 || info.Size() > 6e6 {
		t.Errorf("%+v, %v", info, err)
	}
	if list, _ := filepath.Glob(filepath.Join(dir, "*")); len(list) != 1 {
		t.Errorf("%q", list)
	}
	for _, bad := range []Model{{Name: "x"}, {Name: "x", Width: 30, Layers: 1, Hidden: 1, Heads: 2, Context: 1}} {
		if _, err := bad.WriteFile(dir); err == nil || !strings.Contains(err.Error(), "width") {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

// reading reads what writer wrote.
type reading struct {
	t    *testing.T
	data []byte
	at   int
}

func (r *reading) take(n int) []byte {
	if r.at+n > len(r.data) {
		r.t.Fatalf("%d bytes at %d of %d", n, r.at, len(r.data))
	}
	r.at += n
	return r.data[r.at-n : r.at]
}

func (r *reading) u32() uint32  { return binary.LittleEndian.Uint32(r.take(4)) }
func (r *reading) u64() uint64  { return binary.LittleEndian.Uint64(r.take(8)) }
func (r *reading) text() string { return string(r.take(int(r.u64()))) }

func (r *reading) value(kind uint32) any {
	switch kind {
	case typeUint32, typeInt32:
		return r.u32()
	case typeFloat32:
		return math.Float32frombits(r.u32())
	case typeBool:
		return r.take(1)[0] == 1
	case typeString:
		return r.text()
	case typeArray:
		kind := r.u32()
		out := make([]any, r.u64())
		for i := range out {
			out[i] = r.value(kind)
		}
		return out
	}
	r.t.Fatalf("a field of type %d", kind)
	return nil
}
