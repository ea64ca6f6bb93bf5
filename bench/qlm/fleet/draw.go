package fleet

import (
	"fmt"

	"inferplan/formats/arrivals"
)

// Draw draws the requests of the first rows of the conversations, compressed to a
// rate: models by their popularity, classes by their shares, both with one generator.
// A request's model is the index of model and class, models first.
func (d *Data) Draw(popularity []float64, rows int, rps float64, seed uint64) ([]arrivals.Request, error) {
	if rows > len(d.Conversations) {
		return nil, fmt.Errorf("rows 0 to %d: the trace has %d", rows, len(d.Conversations))
	}
	rng := splitMix(seed)
	out := make([]arrivals.Request, rows)
	for i, row := range d.Conversations[:rows] {
		model := pick(popularity, rng.float())
		class := pick(shares, rng.float())
		out[i] = arrivals.Request{ArrivedAt: row.ArrivedAt - d.Conversations[0].ArrivedAt, Model: int32(model*len(Classes) + class), PromptTokens: row.Prompt, OutputTokens: row.Output}
	}
	compress(out, rps)
	return out, nil
}

// Shares are those of the classes.
func Shares() []float64 { return shares }
