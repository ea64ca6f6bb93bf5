package deploy

import (
	"math"
	"slices"

	"inferplan/formats"
	"inferplan/formats/arrivals"
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

// readLengths reads the lengths of a class, row by row, relative to the folder of
// the workload.
func readLengths(dir, path string) (prompt, output *formats.Lengths, err error) {
	rows, err := arrivals.ReadLengths(dir, path)
	if err != nil {
		return nil, nil, err
	}
	var prompts, outputs []int
	for _, row := range rows {
		prompts, outputs = append(prompts, row[0]), append(outputs, row[1])
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
