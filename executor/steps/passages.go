package steps

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"unicode"
	"unicode/utf8"

	"inferplan/engine"
)

// Passages are texts that questions are answered from, each with its vector.
type Passages struct {
	texts   []string
	vectors []float32 // one after the other, each of length 1
	size    int       // of a vector
}

// passage is a line of a file of passages.
type passage struct {
	Text   string    `json:"text"`
	Vector []float32 `json:"vector"`
}

// Bounds of a file of passages.
const (
	longestPassage = 1 << 20 // bytes of a line
	mostPassages   = 1 << 20
)

// ReadPassages reads passages from JSON lines of a text and its vector. Errors name the line.
func ReadPassages(r io.Reader) (*Passages, error) {
	p := &Passages{}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, longestPassage)
	for number := 1; lines.Scan(); number++ {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		var line passage
		d := json.NewDecoder(bytes.NewReader(lines.Bytes()))
		d.DisallowUnknownFields()
		if err := d.Decode(&line); err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		if p.size == 0 {
			p.size = len(line.Vector)
		}
		switch length := norm(line.Vector); {
		case line.Text == "":
			return nil, fmt.Errorf("line %d: text: found nothing, expected a text", number)
		case len(line.Vector) != p.size || p.size == 0:
			return nil, fmt.Errorf("line %d: vector: found %d numbers, expected %d as in the first line, at least 1", number, len(line.Vector), p.size)
		case !(length > 0) || math.IsInf(length, 0):
			return nil, fmt.Errorf("line %d: vector: found a length of %v, expected a finite one above 0", number, length)
		case len(p.texts) == mostPassages:
			return nil, fmt.Errorf("line %d: more than %d passages", number, mostPassages)
		default:
			p.texts = append(p.texts, line.Text)
			for _, x := range line.Vector {
				p.vectors = append(p.vectors, float32(float64(x)/length))
			}
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("line %d: %w", len(p.texts)+1, err)
	}
	if len(p.texts) == 0 {
		return nil, fmt.Errorf("found no passage, expected JSON lines of text and vector")
	}
	return p, nil
}

func norm(v []float32) float64 {
	sum := 0.0
	for _, x := range v {
		sum += float64(x) * float64(x)
	}
	return math.Sqrt(sum)
}

// nearest writes the numbers of the passages with the greatest cosine to a vector (little
// endian) into list, the best first, and returns how many there are.
func (p *Passages) nearest(vector []byte, list []int32, scores []float32) int {
	n := 0
	for i := range p.texts {
		score := float32(0)
		for k, x := range p.vectors[i*p.size:][:p.size] {
			score += x * float(vector, k)
		}
		if n == len(list) && !(score > scores[n-1]) {
			continue
		}
		if n < len(list) {
			n++
		}
		at := n - 1
		for ; at > 0 && score > scores[at-1]; at-- {
			list[at], scores[at] = list[at-1], scores[at-1]
		}
		list[at], scores[at] = int32(i), score
	}
	return n
}

// TextBytes is the longest text that clients send to the step text-words.
const TextBytes = 2048

// sentText is a text that zeros fill up.
func sentText(*Tensors) ([]engine.Spec, error) {
	return []engine.Spec{{Name: "text", Type: engine.U8, Shape: []int64{engine.BatchDim, TextBytes}}}, nil
}

// bindWords counts the words of the client's text: what the model takes has length 1.
func bindWords(t *Tensors) (Pre, error) {
	in, err := one("the step text-words: the model takes", t.Takes, engine.F32, 2)
	if err == nil {
		_, err = one("the step text-words: the client sends", t.Client, engine.U8, 2)
	}
	if err != nil {
		return nil, err
	}
	size := int(in.Shape[1])
	counts := make([]float32, size)
	return func(_ int, _ int64, dst []byte, client, _ [][]byte) {
		WordCounts(text(client[0]), counts)
		for i, x := range counts {
			binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(x))
		}
	}, nil
}

// shortestWord is the least letters of a word that counts, stem the first ones by which
// words are told apart.
const (
	shortestWord = 4
	stem         = 6
)

// WordCounts sets counts to the words of a text by their hashes (Weinberger et al., ICML
// 2009), as a vector of length 1. Words with fewer than four letters do not count, and words
// with the same first six letters count as one. A text without words has zeros.
func WordCounts(text []byte, counts []float32) {
	clear(counts)
	hash, letters := uint32(offset32), 0
	add := func() {
		if letters >= shortestWord {
			counts[hash%uint32(len(counts))]++
		}
		hash, letters = offset32, 0
	}
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		text = text[n:]
		switch {
		case !unicode.IsLetter(r) && !unicode.IsDigit(r):
			add()
			continue
		case letters < stem:
			hash = (hash ^ uint32(unicode.ToLower(r))) * prime32
		}
		letters++
	}
	add()
	if length := norm(counts); length > 0 {
		for i := range counts {
			counts[i] = float32(float64(counts[i]) / length)
		}
	}
}

// Constants of the hash FNV-1a with 32 bits.
const (
	offset32 = 2166136261
	prime32  = 16777619
)

// text returns the bytes of a text before the zeros that fill it up.
func text(data []byte) []byte {
	data, _, _ = bytes.Cut(data, []byte{0})
	return data
}

// Parts of a prompt with passages.
const (
	promptHead     = "Answer the question from these passages.\n\n"
	promptQuestion = "Question: "
	promptAnswer   = "\nAnswer:"
)

// bindPassages makes a prompt of the client's question and of the passages that are nearest
// to the vector that the module reads. If a passage has no room in the prompt, it is left out.
func bindPassages(t *Tensors) (Pre, error) {
	vector, err := one("the step passages: the module reads", t.Reads, engine.F32, 2)
	if err == nil {
		_, err = one("the step passages: the client sends", t.Client, engine.U8, 2)
	}
	if err == nil {
		_, err = one("the step passages: the model takes", t.Takes, engine.U8, 2)
	}
	switch {
	case err != nil:
		return nil, err
	case t.Passages == nil:
		return nil, fmt.Errorf("the step passages: the module names no passages")
	case t.Passages.size > 0 && t.Passages.size != int(vector.Shape[1]):
		return nil, fmt.Errorf("the step passages: the module reads vectors of %d numbers, the passages have %d", vector.Shape[1], t.Passages.size)
	}
	list, scores := make([]int32, t.Nearest), make([]float32, t.Nearest)
	return func(_ int, _ int64, dst []byte, client, read [][]byte) {
		dst, question := dst[:len(dst):len(dst)], text(client[0])
		rest := len(dst) - len(promptHead) - len(promptQuestion) - len(question) - len(promptAnswer)
		out := append(dst[:0], promptHead...)
		for _, i := range list[:t.Passages.nearest(read[0], list, scores)] {
			passage := t.Passages.texts[i]
			if rest -= len(passage) + 2; rest < 0 {
				break
			}
			out = append(append(out, passage...), "\n\n"...)
		}
		out = append(append(append(out, promptQuestion...), question...), promptAnswer...)
		if len(out) > len(dst) { // the question alone is too long
			copy(dst, out)
			return
		}
		clear(dst[len(out):])
	}, nil
}

// SendsText returns true if clients send a text to a step before a model.
func SendsText(name string) bool { return pres[name].text }

// NoPassages are passages of an engine without models: prompts hold the question alone.
func NoPassages() *Passages { return &Passages{} }
