package gguf

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"

	"inferplan/engine"
	"inferplan/formats/seeded"
)

// Model is a network to write. Head sizes are even: Width / Heads.
type Model struct {
	Name    string
	Width   int // of the residual stream
	Layers  int
	Hidden  int // of the feed-forward part
	Heads   int
	Context int // tokens
	Seed    uint64
}

// Tiny and Small are sizes that two CPU cores run at more than a thousand and a
// hundred tokens a second: 5 and 21 MB.
func Tiny(name string, seed uint64) Model {
	return Model{Name: name, Width: 128, Layers: 10, Hidden: 512, Heads: 4, Context: 4096, Seed: seed}
}

// Small is four times as large as Tiny.
func Small(name string, seed uint64) Model {
	return Model{Name: name, Width: 256, Layers: 12, Hidden: 768, Heads: 8, Context: 4096, Seed: seed}
}

// The vocabulary: bytes as GPT-2 writes them, and control tokens.
const (
	tokenBegin = 256 + iota
	tokenEnd
	tokenUnknown
	tokenPad
	vocabulary
)

// Weights that make the answers what the package promises. Channel 0 of the
// residual stream is a constant, so that column 0 of the output is a bias per token.
// A channel per letter says which one came last. No layer changes these channels.
const (
	letters  = 27 // a to z and space
	kept     = 1 + letters
	constant = 4.0  // of channel 0, and of the channel of the last letter
	never    = 30.0 // below the bias of letters, of what shall not be said
	dislike  = 20.0 // of a letter to follow itself
	spread   = 3.0  // standard deviation of the output, of what is left to chance
	sharp    = 2.0  // of queries and keys: attention looks at few tokens, so that texts do not soon repeat
	added    = 3.0  // by all layers together, beside the last token's 1
)

// Write writes the model's file.
func (m *Model) Write(out io.Writer) error {
	if err := m.check(); err != nil {
		return err
	}
	if err := write(out, m.fields(), m.tensors()); err != nil {
		return fmt.Errorf("writing the model %s: %w", m.Name, err)
	}
	return nil
}

// WriteFile writes DIR/NAME.gguf, whole or not at all, and gives its path.
func (m *Model) WriteFile(dir string) (string, error) {
	f, err := os.CreateTemp(dir, m.Name+".*.part")
	if err != nil {
		return "", err
	}
	defer os.Remove(f.Name())
	err = m.Write(f)
	if closed := f.Close(); err == nil {
		err = closed
	}
	path := filepath.Join(dir, m.Name+".gguf")
	if err == nil {
		err = os.Chmod(f.Name(), 0o644)
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	return path, err
}

func (m *Model) check() error {
	for _, v := range []struct {
		name string
		n    int
	}{{"width", m.Width}, {"layers", m.Layers}, {"hidden", m.Hidden}, {"heads", m.Heads}, {"context", m.Context}} {
		if v.n < 1 || v.n > 1<<16 {
			return fmt.Errorf("model %s: %s %d: expected 1 to %d", m.Name, v.name, v.n, 1<<16)
		}
	}
	if m.Width%(2*m.Heads) != 0 || m.Width <= kept {
		return fmt.Errorf("model %s: width %d and %d heads: expected heads of an even size, and more than %d", m.Name, m.Width, m.Heads, kept)
	}
	return nil
}

func (m *Model) fields() []field {
	tokens, kinds := make([]string, vocabulary), make([]int32, vocabulary)
	for b := range 256 {
		tokens[b], kinds[b] = string(written(b)), 1 // normal
	}
	for i, name := range []string{"<|begin|>", "<|end|>", "<|unknown|>", "<|pad|>"} {
		tokens[256+i], kinds[256+i] = name, 3 // control
	}
	u := func(n int) uint32 { return uint32(n) }
	return []field{
		{"general.architecture", "llama"}, {"general.name", m.Name}, {"general.alignment", u(alignment)}, {"general.file_type", u(1)}, // mostly float16
		{"llama.block_count", u(m.Layers)}, {"llama.context_length", u(m.Context)}, {"llama.embedding_length", u(m.Width)}, {"llama.feed_forward_length", u(m.Hidden)},
		{"llama.attention.head_count", u(m.Heads)}, {"llama.attention.head_count_kv", u(m.Heads)}, {"llama.attention.layer_norm_rms_epsilon", float32(1e-5)},
		{"llama.rope.dimension_count", u(m.Width / m.Heads)}, {"llama.rope.freq_base", float32(10000)}, {"llama.vocab_size", u(vocabulary)},
		{"tokenizer.ggml.model", "gpt2"}, {"tokenizer.ggml.pre", "default"}, {"tokenizer.ggml.tokens", tokens}, {"tokenizer.ggml.token_type", kinds},
		// The list must be there. This pair of bytes is in no text.
		{"tokenizer.ggml.merges", []string{string(written(0)) + " " + string(written(1))}},
		{"tokenizer.ggml.bos_token_id", u(tokenBegin)}, {"tokenizer.ggml.eos_token_id", u(tokenEnd)}, {"tokenizer.ggml.unknown_token_id", u(tokenUnknown)}, {"tokenizer.ggml.padding_token_id", u(tokenPad)},
		{"tokenizer.ggml.add_bos_token", false},
		{"tokenizer.chat_template", "{% for message in messages %}{{ message['content'] }}{% endfor %}"},
	}
}

// written is the character that GPT-2 writes a byte as: itself where it prints, else
// one above U+0100, in order.
func written(b int) rune {
	prints := func(b int) bool { return b >= '!' && b <= '~' || b >= 0xa1 && b <= 0xac || b >= 0xae }
	if prints(b) {
		return rune(b)
	}
	n := 0
	for i := range b {
		if !prints(i) {
			n++
		}
	}
	return rune(256 + n)
}

func (m *Model) tensors() []tensor {
	d := m.Width
	list := []tensor{half("token_embd.weight", d, vocabulary, func() []float32 {
		w := m.random("token_embd.weight", vocabulary, d, 1)
		for t := range vocabulary {
			clear(w[t*d : t*d+kept])
			w[t*d] = constant
			if c := channel(t); c > 0 {
				w[t*d+c] = constant
			}
		}
		return w
	})}
	add := added / math.Sqrt(float64(2*m.Layers))
	for l := range m.Layers {
		name := func(s string) string { return fmt.Sprintf("blk.%d.%s.weight", l, s) }
		matrix := func(s string, in, out int, scale float64) {
			list = append(list, half(name(s), in, out, func() []float32 {
				return m.random(name(s), out, in, scale/math.Sqrt(float64(in)))
			}))
		}
		into := func(s string, in int, scale float64) { // the residual stream
			list = append(list, half(name(s), in, d, func() []float32 {
				w := m.random(name(s), d, in, scale/math.Sqrt(float64(in)))
				clear(w[:kept*in])
				return w
			}))
		}
		list = append(list, ones(name("attn_norm"), d))
		matrix("attn_q", d, d, sharp)
		matrix("attn_k", d, d, sharp)
		matrix("attn_v", d, d, 1)
		into("attn_output", d, add)
		list = append(list, ones(name("ffn_norm"), d))
		matrix("ffn_gate", d, m.Hidden, 1)
		matrix("ffn_up", d, m.Hidden, 1)
		into("ffn_down", m.Hidden, add)
	}
	return append(list, ones("output_norm.weight", d), half("output.weight", d, vocabulary, func() []float32 {
		w := m.random("output.weight", vocabulary, d, spread/math.Sqrt(float64(d)))
		for t := range vocabulary {
			row := w[t*d : t*d+kept]
			clear(row)
			row[0] = -never / constant
			if c := channel(t); c > 0 {
				row[0], row[c] = 0, -dislike/constant
			}
		}
		return w
	}))
}

// channel returns the channel of a letter. Other characters have channel 0.
func channel(token int) int {
	switch {
	case token >= 'a' && token <= 'z':
		return 1 + token - 'a'
	case token == ' ':
		return letters
	}
	return 0
}

// random are rows of numbers around 0, the same for a name and a seed.
func (m *Model) random(name string, rows, columns int, deviation float64) []float32 {
	r := seeded.New(m.Seed, name)
	out := make([]float32, rows*columns)
	for i := range out {
		out[i] = float32(deviation * r.NormFloat64())
	}
	return out
}

// half is a matrix in float16.
func half(name string, in, out int, numbers func() []float32) tensor {
	return tensor{name: name, dims: []int{in, out}, kind: tensorFloat16, fill: func() []byte {
		list := numbers()
		data := make([]byte, 0, 2*len(list))
		for _, x := range list {
			data = binary.LittleEndian.AppendUint16(data, engine.ToFP16(x))
		}
		return data
	}}
}

// ones is a vector in float32, as norms must be.
func ones(name string, n int) tensor {
	return tensor{name: name, dims: []int{n}, kind: tensorFloat32, fill: func() []byte {
		var data []byte
		for range n {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(1))
		}
		return data
	}}
}
