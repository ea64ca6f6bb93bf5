package arrivals

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"

	"inferplan/formats/csvfile"
	"inferplan/formats/document"
)

// ReadLengths reads the tokens of prompts and answers from a CSV file, a pair for each row. A relative path is
// taken from dir.
func ReadLengths(dir, path string) (rows [][2]int, err error) {
	name := filepath.FromSlash(path)
	if !filepath.IsAbs(name) {
		name = filepath.Join(dir, name)
	}
	t, err := csvfile.OpenTable(name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	prompt, in := t.Column("prompt_tokens", "input_tokens", "prompt", "input")
	answer, out := t.Column("output_tokens", "completion_tokens", "generated_tokens", "output")
	if in < 0 || out < 0 {
		return nil, &document.Error{File: name, Line: 1, Found: fmt.Sprintf("the columns %v", t.Header), Expected: "prompt_tokens and output_tokens"}
	}
	if err := t.EachRow(func() error {
		rows = append(rows, [2]int{t.WholeNumber(prompt, 1, math.MaxInt32), t.WholeNumber(answer, 1, math.MaxInt32)})
		return nil
	}); err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, &document.Error{File: name, Found: "no rows", Expected: "lengths of requests"}
	}
	return rows, nil
}
