package steps

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"unicode"
	"unicode/utf8"

	"inferplan/engine"
)

// Passages are the texts from which questions are answered, each with its vector.
type Passages struct {
	texts     []string
	vectors   []float32 // one after the other, each of length 1
	dimension int       // numbers of a vector
}

// passageLine is a line of a file of passages.
type passageLine struct {
	Text   string    `json:"text"`
	Vector []float32 `json:"vector"`
}

// Bounds of a file of passages.
const (
	maxLineBytes = 1 << 20 // bytes of a line
	maxNumbers   = 1 << 22 // numbers of all vectors; so many are searched in 5 ms
	maxTextBytes = 1 << 28 // bytes of all texts
)

// ReadPassages reads passages from JSON lines with a text and a vector each. Errors name the line.
func ReadPassages(r io.Reader) (*Passages, error) {
	p, number, bytesOf := &Passages{}, 0, 0
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLineBytes)
	for lines.Scan() {
		if number++; len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		if err := p.add(lines.Bytes()); err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		if bytesOf += len(p.texts[len(p.texts)-1]); bytesOf > maxTextBytes || len(p.vectors) > maxNumbers {
			return nil, fmt.Errorf("line %d: found %d passages with vectors of %d numbers and texts of %d bytes, expected at most %d numbers and %d bytes in all", number, len(p.texts), p.dimension, bytesOf, maxNumbers, maxTextBytes)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("line %d: %w", number+1, err)
	}
	if len(p.texts) == 0 {
		return nil, errors.New("found no passage, expected JSON lines of text and vector")
	}
	return p, nil
}

// add adds the passage of one JSON line: a text and its vector. The vector is scaled to length 1, so that a product of
// two is their cosine, and must have as many numbers as the first one.
func (p *Passages) add(line []byte) error {
	var x passageLine
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&x); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("found more behind the JSON object, expected one object a line")
	}

	// Check it, and add it with its vector at length 1.
	p.dimension = cmp.Or(p.dimension, len(x.Vector))
	switch length := vectorLength(x.Vector); {
	case x.Text == "" || strings.IndexByte(x.Text, 0) >= 0:
		return errors.New("text: found nothing, or a zero byte, expected a text")
	case len(x.Vector) != p.dimension || p.dimension == 0:
		return fmt.Errorf("vector: found %d numbers, expected %d as in the first line, at least 1", len(x.Vector), p.dimension)
	case !(length > 0) || math.IsInf(length, 0):
		return fmt.Errorf("vector: found a length of %v, expected a finite one above 0", length)
	default:
		p.texts = append(p.texts, x.Text)
		for _, number := range x.Vector {
			p.vectors = append(p.vectors, float32(float64(number)/length))
		}
	}
	return nil
}

// vectorLength returns the Euclidean length of a vector.
func vectorLength(v []float32) float64 {
	sum := 0.0
	for _, x := range v {
		sum += float64(x) * float64(x)
	}
	return math.Sqrt(sum)
}

// nearest writes the indices of the passages whose vectors have the greatest cosine to vector into list, the best
// first, and their scores beside them. It returns their number, at most the length of list.
func (p *Passages) nearest(vector []float32, list []int32, scores []float32) int {
	n := 0
	for i := range p.texts {
		score := float32(0)
		for k, x := range p.vectors[i*p.dimension:][:len(vector)] {
			score += x * vector[k]
		}
		if n == len(list) && !(score > scores[n-1]) {
			continue
		}
		if n < len(list) {
			n++
		}
		rank := n - 1
		for ; rank > 0 && score > scores[rank-1]; rank-- {
			list[rank], scores[rank] = list[rank-1], scores[rank-1]
		}
		list[rank], scores[rank] = int32(i), score
	}
	return n
}

// TextBytes bounds the text that clients send to the step text-words.
const TextBytes = 2048

// textSpecs returns what the client sends to the step text-words: a text padded with zeros.
func textSpecs(*Tensors) ([]engine.Spec, error) {
	return []engine.Spec{{Name: "text", Type: engine.U8, Shape: []int64{engine.BatchDim, TextBytes}}}, nil
}

// bindWords binds the step text-words, which turns the client's text into the vector that the model behind it takes: how
// often each word occurs, at the place that the word's hash selects, scaled to length 1. It returns the function that
// computes this for a request into dst.
func bindWords(t *Tensors) (BoundPre, error) {
	in, err := singleTensor("the step text-words: the model takes", t.ModelInputs, engine.F32, 2)
	if err == nil {
		_, err = singleTensor("the step text-words: the client sends", t.ClientInputs, engine.U8, 2)
	}
	if err != nil {
		return nil, err
	}
	dimension := int(in.Shape[1])
	counts := make([]float32, dimension)
	return func(_ int, _ int64, dst []byte, client, _ [][]byte) {
		WordCounts(TrimPadding(client[0]), counts)
		putFloats(dst, counts)
	}, nil
}

// putFloats writes numbers into a tensor.
func putFloats(dst []byte, numbers []float32) {
	for i, x := range numbers {
		binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(x))
	}
}

// Words with fewer than minWordLetters letters are not counted. Words with the same first stemLetters letters are the
// same.
const (
	minWordLetters = 4
	stemLetters    = 6
)

// WordCounts sets counts to the counts of a text's words, by their hashes (Weinberger et al., ICML 2009), scaled to a
// vector of length 1. Words with fewer than four letters are not counted, and words with the same first six letters
// count as one. If a text has no words, all counts are 0.
func WordCounts(text []byte, counts []float32) {
	clear(counts)
	hash, letters := uint32(offset32), 0
	add := func() {
		if letters >= minWordLetters {
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
		case letters < stemLetters:
			hash = (hash ^ uint32(unicode.ToLower(r))) * prime32
		}
		letters++
	}
	add()

	// Scale to length 1.
	if length := vectorLength(counts); length > 0 {
		for i := range counts {
			counts[i] = float32(float64(counts[i]) / length)
		}
	}
}

// Constants of the 32-bit hash FNV-1a.
const (
	offset32 = 2166136261
	prime32  = 16777619
)

// TrimPadding returns the bytes of a text before the zeros that pad it.
func TrimPadding(data []byte) []byte {
	data, _, _ = bytes.Cut(data, []byte{0})
	return data
}

// Parts of a prompt with passages.
const (
	promptHead     = "Answer the question from these passages.\n\n"
	promptQuestion = "Question: "
	promptAnswer   = "\nAnswer:"
)

// bindPassages binds the step that makes a prompt of the client's question and the passages nearest to the vector
// that the module reads. Passages for which the prompt has no room are left out.
func bindPassages(t *Tensors) (BoundPre, error) {
	vector, err := singleTensor("the step passages: the module reads", t.ModuleInputs, engine.F32, 2)
	if err == nil {
		_, err = singleTensor("the step passages: the client sends", t.ClientInputs, engine.U8, 2)
	}
	if err == nil {
		_, err = singleTensor("the step passages: the model takes", t.ModelInputs, engine.U8, 2)
	}
	switch {
	case err != nil:
		return nil, err
	case t.Passages == nil:
		return nil, fmt.Errorf("the step passages: the module names no passages")
	case t.Passages.dimension > 0 && t.Passages.dimension != int(vector.Shape[1]):
		return nil, fmt.Errorf("the step passages: the module reads vectors of %d numbers, the passages have %d", vector.Shape[1], t.Passages.dimension)
	}
	if freeBytes, question := t.ModelInputs[0].BytesAt(1), t.ClientInputs[0].BytesAt(1); freeBytes < int64(len(promptHead)+len(promptQuestion)+len(promptAnswer))+question {
		return nil, fmt.Errorf("the step passages: a prompt has room for %d bytes, and a question of %d bytes alone needs more: a larger max of the module's prompt gives it more", freeBytes, question)
	}
	list, scores, question := make([]int32, t.PassageCount), make([]float32, t.PassageCount), make([]float32, vector.Shape[1])
	if t.Passages.dimension == 0 {
		question = nil
	}

	// Find the passages, and add them while they fit.
	return func(_ int, _ int64, dst []byte, client, read [][]byte) {
		for i := range question {
			question[i] = floatAt(read[0], i)
		}
		prompt, text := append(dst[:0:len(dst)], promptHead...), TrimPadding(client[0])
		freeBytes := len(dst) - len(promptHead) - len(promptQuestion) - len(text) - len(promptAnswer)
		for _, i := range list[:t.Passages.nearest(question, list, scores)] {
			if passage := t.Passages.texts[i]; len(passage)+2 <= freeBytes {
				prompt = append(append(prompt, passage...), "\n\n"...)
				freeBytes -= len(passage) + 2
			}
		}
		prompt = append(append(append(prompt, promptQuestion...), text...), promptAnswer...)
		clear(dst[len(prompt):])
	}, nil
}

// SendsText reports whether clients send a text to the step.
func SendsText(name string) bool { return preSteps[name].clientText }

// NoPassages returns passages for an engine without models: prompts contain only the question.
func NoPassages() *Passages { return &Passages{} }
