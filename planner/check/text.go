package check

import (
	"cmp"
	"fmt"
	"slices"
)

// fewBlocks of one model are named each; of more the range is told.
const fewBlocks = 3

// Explanation is what stands behind the verdict, a line each: what does not hold,
// what got slower, what to do about it, and notes.
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

// slower tells of the blocks that got slower: one line for all of a model on a kind
// of device where they are many, since they have one cause.
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
	var out []string
	for _, p := range order {
		list := at[p] // slowest first
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

// Failure is why a figure fails, on one line.
func (c *Comparison) Failure() string {
	old, now, unit := c.Shown()
	return fmt.Sprintf("%s of %s: %s %s, was %s (%+.2f %%, allowed %g %%)", c.Metric, c.What, now, unit, old, 100*c.Worse, 100*c.Tolerance)
}

// Shown is a figure as people read it: times in ms, as all tables have them.
func (c *Comparison) Shown() (old, now, unit string) {
	in, unit := 1.0, c.Unit
	if unit == "us" {
		in, unit = 1e-3, "ms"
	}
	return fmt.Sprintf("%.6g", c.Old*in), fmt.Sprintf("%.6g", c.New*in), unit
}
