package llmserver

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"inferplan/formats/document"
)

// Subject says which model on which devices samples are about.
type Subject struct {
	Model          string `json:"model"` // the model's name in the profile
	Device         string `json:"device"`
	TensorParallel int    `json:"tensor_parallel"`
	Engine         string `json:"engine,omitempty"`
}

// Sample is one measurement of a point.
type Sample struct {
	TookUS     document.Micros `json:"took_us"`
	Prompt     int             `json:"prompt_tokens,omitempty"`  // prompt tokens as the server counted them
	Context    float64         `json:"context_tokens,omitempty"` // mean of a sequence over the iterations
	Iterations int             `json:"iterations,omitempty"`     // iterations in the time, for points of kind beside
	Chunks     int             `json:"chunks,omitempty"`         // number of them with a part of the prompt
}

// sampleLine is a line of the file of samples.
type sampleLine struct {
	Subject
	Point
	Sample
}

// PointsFile returns the file that stores the samples of a profile.
func PointsFile(profile string) string {
	return strings.TrimSuffix(profile, filepath.Ext(profile)) + ".points.jsonl"
}

// samplesByPoint are the samples of one subject.
type samplesByPoint map[Point][]Sample

// readSamples reads the samples of a subject (a model on its devices) from the lines of a file. name is the file's,
// for errors. A last line that an interruption cut off is left out. It is called when a run begins, so that an
// interrupted run continues.
func readSamples(data []byte, name string, subject Subject) (samplesByPoint, error) {
	out := samplesByPoint{}
	lines := bufio.NewReader(bytes.NewReader(data))
	for n := 1; ; n++ {
		text, err := lines.ReadBytes('\n')
		if err != nil { // at the end, perhaps inside a line
			return out, nil
		}
		if len(bytes.TrimSpace(text)) == 0 {
			continue
		}
		var l sampleLine
		d := json.NewDecoder(bytes.NewReader(text))
		d.DisallowUnknownFields()
		if err := d.Decode(&l); err != nil || !l.isGood() {
			return nil, &document.Error{File: name, Line: n, Found: "a line that is no sample", Expected: `what, took_us and counts of tokens, as plan profile --llm writes them`, Hint: "delete the file to measure anew"}
		}
		if l.Subject == subject {
			out[l.Point] = append(out[l.Point], l.Sample)
		}
	}
}

// isGood reports whether the numbers of a line are possible.
func (l *sampleLine) isGood() bool {
	for _, n := range []int{l.Point.Sequences, l.Point.Context, l.Point.Prompt, l.Sample.Prompt, l.Iterations, l.Chunks} {
		if n < 0 || n > 1<<30 {
			return false
		}
	}
	return l.Kind != "" && l.TookUS > 0 && l.Sample.Context >= 0 && l.Chunks <= l.Iterations
}

// openSamples reads the samples that earlier runs took of a subject (a model on its devices), and opens the file to
// append more. With discardOld, the subject's samples are removed from the file first.
func openSamples(path string, subject Subject, discardOld bool) (samplesByPoint, *os.File, error) {
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("reading samples: %w", err)
	}
	known, err := readSamples(data, path, subject)
	if err != nil {
		return nil, nil, err
	}
	// Keep whole lines only: a last one without its end was cut off by an interruption.
	remainingLines := data[:bytes.LastIndexByte(data, '\n')+1]
	if discardOld && len(known) > 0 {
		known, remainingLines = samplesByPoint{}, otherSubjects(remainingLines, subject)
	}
	if len(remainingLines) < len(data) {
		if err := os.WriteFile(path, remainingLines, 0o644); err != nil {
			return nil, nil, fmt.Errorf("keeping samples: %w", err)
		}
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, nil, fmt.Errorf("keeping samples: %w", err)
	}
	return known, f, nil
}

// otherSubjects returns the lines of a file of samples that are about other subjects (models on devices) than this
// one.
func otherSubjects(data []byte, subject Subject) []byte {
	var out []byte
	for text := range bytes.Lines(data) {
		var l sampleLine
		if json.Unmarshal(text, &l) != nil || l.Subject != subject {
			out = append(out, text...)
		}
	}
	return out
}
