package samples

import (
	"bufio"
	"compress/gzip"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"inferplan/formats"
)

// Prompts are labelled questions for language models: the label is the answer
// that is right.
type Prompts struct {
	Labels []string
	Texts  []string
}

// maxPrompt bounds a prompt, in bytes.
const maxPrompt = 1 << 20

// ReadPromptsFile reads a file.
func ReadPromptsFile(path string) (*Prompts, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading prompts: %w", err)
	}
	defer f.Close()
	return ReadPrompts(f, path)
}

// ReadPrompts reads CSV, plain or gzip, with the header label,prompt; name is
// what errors call the source.
func ReadPrompts(r io.Reader, name string) (*Prompts, error) {
	b := bufio.NewReader(r)
	r = b
	if magic, err := b.Peek(2); err == nil && magic[0] == 0x1f && magic[1] == 0x8b {
		z, err := gzip.NewReader(b)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", name, err)
		}
		r = z
	}
	c := csv.NewReader(r)
	c.ReuseRecord = true
	row, err := c.Read()
	if errors.Is(err, io.EOF) {
		return nil, &formats.Error{File: name, Line: 1, Found: "an empty file", Expected: "the header label,prompt and a question per row"}
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	if len(row) != 2 || row[0] != "label" || row[1] != "prompt" {
		return nil, &formats.Error{File: name, Line: 1, Found: strconv.Quote(strings.Join(row[:min(len(row), 4)], ",")), Expected: "the header label,prompt"}
	}
	p := &Prompts{}
	for {
		row, err := c.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", name, err)
		}
		label := strings.TrimSpace(row[0])
		fail := func(column int, path, found, expected string) (*Prompts, error) {
			e := &formats.Error{File: name, Path: path, Found: found, Expected: expected}
			e.Line, e.Column = c.FieldPos(column)
			return nil, e
		}
		switch {
		case label == "":
			return fail(0, "label", "nothing", "the answer that is right")
		case strings.TrimSpace(row[1]) == "":
			return fail(1, "prompt", "nothing", "a question")
		case len(row[1]) > maxPrompt:
			return fail(1, "prompt", fmt.Sprintf("%d bytes", len(row[1])), fmt.Sprintf("at most %d", maxPrompt))
		}
		p.Labels, p.Texts = append(p.Labels, label), append(p.Texts, row[1])
	}
	if len(p.Labels) == 0 {
		return nil, &formats.Error{File: name, Found: "no row below the header", Expected: "a question per row"}
	}
	return p, nil
}
