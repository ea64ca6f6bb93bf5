package arrivals

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"

	"inferplan/formats"
	"inferplan/formats/csvfile"
)

// Columns of a file of lengths, with the names that others use for them.
var (
	promptColumns = []string{"prompt_tokens", "input_tokens", "prompt", "input"}
	outputColumns = []string{"output_tokens", "completion_tokens", "generated_tokens", "output"}
)

// ReadLengths reads the tokens of prompts and answers from a CSV, row by row. Its path is relative to a folder.
func ReadLengths(dir, path string) (rows [][2]int, err error) {
	name := filepath.FromSlash(path)
	if !filepath.IsAbs(name) {
		name = filepath.Join(dir, name)
	}
	f, err := csvfile.Open(name)
	if err != nil {
		return nil, err
	}
	t, err := csvfile.NewTable(f)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	find := func(names []string) int {
		return slices.IndexFunc(t.Header, func(h string) bool { return slices.Contains(names, h) })
	}
	in, out := find(promptColumns), find(outputColumns)
	if in < 0 || out < 0 {
		return nil, &formats.Error{File: name, Line: 1, Found: fmt.Sprintf("the columns %v", t.Header), Expected: "prompt_tokens and output_tokens"}
	}
	for {
		if err := t.Next(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		prompt, errA := strconv.Atoi(t.Row[in])
		answer, errB := strconv.Atoi(t.Row[out])
		if errA != nil || prompt < 1 {
			return nil, t.Cell(in, "1 or more tokens")
		}
		if errB != nil || answer < 1 {
			return nil, t.Cell(out, "1 or more tokens")
		}
		rows = append(rows, [2]int{prompt, answer})
	}
	if len(rows) == 0 {
		return nil, &formats.Error{File: name, Found: "no rows", Expected: "lengths of requests"}
	}
	return rows, nil
}
