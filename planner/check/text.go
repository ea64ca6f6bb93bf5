package check

import (
	"cmp"
	"fmt"
	"slices"
)

// maxListedBlocks is the number of slower blocks of a model that are listed. More are summarised.
const fewBlocks = 3

// Explanation returns the reasons of the verdict, one per line: what does not hold, what became slower,
// what to do about it, and notes.
func (r *Result) Explanation() []string {
	var out []string
	for _, f := range r.Findings {
		out = append(out, f.String())
	}
	out = append(out, r.slower()...)
	out = append(out, r.Advice...)
	for _, n := range r.Notes {
		out = append(out, "note: "+n)
	}
	return out
}

// slowerBlocks returns lines about the slower blocks. Many blocks of one model on a device kind get a
// single line, since they have one cause.
func (r *Result) slower() []string {
	type place struct {
		model, device string
		share, batch  int
	}
	at := map[place][]*BlockChange{}
	var order []place
	for i := range r.Blocks {
		b := &r.Blocks[i]
		p := place{b.Model, b.Device, b.Share, b.Batch}
		if at[p] == nil {
			order = append(order, p)
		}
		at[p] = append(at[p], b)
	}

	// List a few blocks each, and summarise many in one line.
	var out []string
	for _, p := range order {
		list := at[p] // the slowest first
		if len(list) <= fewBlocks {
			for _, b := range list {
				out = append(out, "slower: "+b.String())
			}
			continue
		}
		least := slices.MinFunc(list, func(a, b *BlockChange) int { return cmp.Compare(a.Change, b.Change) })
		out = append(out, fmt.Sprintf("slower: %d blocks of %s on %s at batch %d, by %+.1f to %+.1f %%; most: %s",
			len(list), p.model, p.device, p.batch, 100*least.Change, 100*list[0].Change, list[0]))
	}
	return out
}

// FailureText says why a figure fails, on one line.
func (c *Comparison) Failure() string {
	old, now, unit := c.Shown()
	return fmt.Sprintf("%s of %s: %s %s, was %s (%+.2f %%, allowed %g %%)", c.Metric, c.What, now, unit, old, 100*c.Worse, 100*c.Tolerance)
}

// FormattedValues returns a figure as people read it. Times are in ms, as in all tables.
func (c *Comparison) Shown() (old, now, unit string) {
	in, unit := 1.0, c.Unit
	if unit == "us" {
		in, unit = 1e-3, "ms"
	}
	return fmt.Sprintf("%.6g", c.Old*in), fmt.Sprintf("%.6g", c.New*in), unit
}
