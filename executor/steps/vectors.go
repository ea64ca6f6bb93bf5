package steps

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"inferplan/engine"
)

// WriteVectors reads passages, one per line, and writes each with the vector that a model computes from its word
// counts. The output is the file that the step passages reads. The model is bound for one text at a time.
// WriteVectors returns the number of passages.
func WriteVectors(ctx context.Context, model engine.Binding, passages io.Reader, out io.Writer) (n int, err error) {
	_, err = singleTensor("the model takes", specsOf(model.Inputs()), engine.F32, 2)
	if err == nil {
		_, err = singleTensor("the model gives", specsOf(model.Outputs()), engine.F32, 2)
	}
	if err != nil {
		return 0, fmt.Errorf("vectors of passages: %w", err)
	}

	// Compute the vector of each line and write both.
	input, output := model.Inputs()[0], model.Outputs()[0]
	words := make([]float32, input.Spec().BytesAt(1)/4)
	raw, vectorBytes := make([]byte, 4*len(words)), make([]byte, output.Spec().BytesAt(1))
	encoder, lines := json.NewEncoder(out), bufio.NewScanner(passages)
	lines.Buffer(nil, maxLineBytes/2) // the vector needs room in the line, too
	line := 0
	for lines.Scan() {
		line++
		text := strings.TrimSpace(lines.Text())
		if text == "" {
			continue
		}
		WordCounts([]byte(text), words)
		putFloats(raw, words)
		if err := errors.Join(input.Write(raw), model.Run(ctx), output.Read(vectorBytes)); err != nil {
			return n, fmt.Errorf("line %d: %w", line, err)
		}
		vector := make([]float32, len(vectorBytes)/4)
		for i := range vector {
			vector[i] = floatAt(vectorBytes, i)
		}
		if !(vectorLength(vector) > 0) {
			return n, fmt.Errorf("line %d: found no word of %d letters, which leaves a vector of zeros, expected a text", line, minWordLetters)
		}
		if err := encoder.Encode(passageLine{text, vector}); err != nil {
			return n, &WriteError{err}
		}
		n++
	}
	if err := lines.Err(); err != nil {
		return n, fmt.Errorf("line %d: %w", line+1, err)
	}
	return n, nil
}

// WriteError is an error of the output of WriteVectors, not of its input.
type WriteError struct{ Err error }

func (e *WriteError) Error() string { return e.Err.Error() }
func (e *WriteError) Unwrap() error { return e.Err }

// specsOf returns the forms of tensors.
func specsOf(tensors []engine.Tensor) (out []engine.Spec) {
	for _, t := range tensors {
		out = append(out, t.Spec())
	}
	return out
}
