package deploy

import (
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strconv"

	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/formats/csvfile"
	"inferplan/formats/seeded"
	"inferplan/sim/llm"
)

// sampled is the number of lengths that are drawn of a class.
const sampled = 4000

// draw draws lengths of a class.
func draw(seed uint64, name string, prompt, output *formats.Lengths) []llm.Request {
	in := arrivals.Lengths(prompt, seeded.New(seed, "sample/prompt/"+name))
	out := arrivals.Lengths(output, seeded.New(seed, "sample/output/"+name))
	list := make([]llm.Request, sampled)
	for i := range list {
		list[i] = llm.Request{Prompt: in(), Output: out()}
	}
	return list
}

// moments are the means of prompts and answers, and the spread of answers.
func moments(list []llm.Request) (prompt, output, outputSD float64) {
	n := float64(len(list))
	for _, r := range list {
		prompt += float64(r.Prompt) / n
		output += float64(r.Output) / n
	}
	for _, r := range list {
		outputSD += (float64(r.Output) - output) * (float64(r.Output) - output) / n
	}
	return round(prompt), round(output), round(math.Sqrt(outputSD))
}

// Empirical is a distribution of the values of a list, at some hundred quantiles
// where there are more values.
func Empirical(values []int) *formats.Lengths {
	const most = 400
	slices.Sort(values)
	if len(values) > most {
		few := make([]int, most)
		for i := range few {
			few[i] = values[(2*i+1)*len(values)/(2*most)]
		}
		values = few
	}
	return &formats.Lengths{Distribution: formats.LengthsEmpirical, Tokens: values}
}

// Columns of a file of lengths, with the names that others use for them.
var (
	promptColumns = []string{"prompt_tokens", "input_tokens", "prompt", "input"}
	outputColumns = []string{"output_tokens", "completion_tokens", "generated_tokens", "output"}
)

// readLengths reads the lengths of a class, row by row, relative to the folder of
// the workload.
func readLengths(dir, path string) (prompt, output *formats.Lengths, err error) {
	name := filepath.FromSlash(path)
	if !filepath.IsAbs(name) {
		name = filepath.Join(dir, name)
	}
	f, err := csvfile.Open(name)
	if err != nil {
		return nil, nil, err
	}
	t, err := csvfile.NewTable(f)
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	find := func(names []string) int {
		return slices.IndexFunc(t.Header, func(h string) bool { return slices.Contains(names, h) })
	}
	in, out := find(promptColumns), find(outputColumns)
	if in < 0 || out < 0 {
		return nil, nil, &formats.Error{File: name, Line: 1, Found: fmt.Sprintf("the columns %v", t.Header), Expected: "prompt_tokens and output_tokens"}
	}
	var prompts, outputs []int
	for {
		if err := t.Next(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, nil, err
		}
		a, errA := strconv.Atoi(t.Row[in])
		b, errB := strconv.Atoi(t.Row[out])
		if errA != nil || a < 1 {
			return nil, nil, t.Cell(in, "1 or more tokens")
		}
		if errB != nil || b < 1 {
			return nil, nil, t.Cell(out, "1 or more tokens")
		}
		prompts, outputs = append(prompts, a), append(outputs, b)
	}
	if len(prompts) == 0 {
		return nil, nil, &formats.Error{File: name, Found: "no rows", Expected: "lengths of requests"}
	}
	return Empirical(prompts), Empirical(outputs), nil
}

// capped is a distribution cut at so many tokens.
func capped(l *formats.Lengths, most int) *formats.Lengths {
	out := *l
	if out.Max == 0 || out.Max > most {
		out.Max = most
	}
	return &out
}
