package deploy

import (
	"math"
	"slices"

	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/formats/seeded"
	"inferplan/planner/lists"
	"inferplan/sim/llm"
)

// sampleSize is the number of requests whose lengths are drawn for a class.
const sampleSize = 4000

// drawLengths draws sampleSize requests of a class, with the lengths of prompt and answer in tokens, independently of each other. The
// random streams are named by the class, so a class has the same sample whatever the other classes are.
func drawLengths(seed uint64, name string, prompt, output *formats.Lengths) []llm.Request {
	nextPrompt := arrivals.Lengths(prompt, seeded.New(seed, "sample/prompt/"+name))
	nextOutput := arrivals.Lengths(output, seeded.New(seed, "sample/output/"+name))
	return lists.Filled(sampleSize, func(int) llm.Request { return llm.Request{Prompt: nextPrompt(), Output: nextOutput()} })
}

// lengthMoments returns the mean prompt, the mean answer and the standard deviation of the answers of a list of requests, in tokens,
// rounded to thousandths as in a plan.
func lengthMoments(list []llm.Request) (prompt, output, outputSD float64) {
	n := float64(len(list))
	for _, r := range list {
		prompt += float64(r.Prompt) / n
		output += float64(r.Output) / n
	}
	outputVariance := lists.Sum(len(list), func(i int) float64 {
		return (float64(list[i].Output) - output) * (float64(list[i].Output) - output) / n
	})
	return roundToThousandths(prompt), roundToThousandths(output), roundToThousandths(math.Sqrt(outputVariance))
}

// EmpiricalLengths returns the distribution of a list of values. It keeps at most 400 of them, at evenly
// spread quantiles.
func EmpiricalLengths(values []int) *formats.Lengths {
	const maxValues = 400
	slices.Sort(values)
	if len(values) > maxValues {
		quantiles := lists.Filled(maxValues, func(i int) int { return values[(2*i+1)*len(values)/(2*maxValues)] })
		values = quantiles
	}
	return &formats.Lengths{Distribution: formats.LengthsEmpirical, Tokens: values}
}

// readLengths reads the lengths of a class from the rows of a file. The path is relative to the folder of
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
	return EmpiricalLengths(prompts), EmpiricalLengths(outputs), nil
}

// capLengths returns a distribution of lengths that is cut at maxTokens, or earlier if it is so already. A Max of 0 stands for
// no cut.
func capLengths(l *formats.Lengths, maxTokens int) *formats.Lengths {
	cut := *l
	if cut.Max == 0 || cut.Max > maxTokens {
		cut.Max = maxTokens
	}
	return &cut
}
