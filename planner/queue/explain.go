package queue

import (
	"fmt"
	"slices"
	"strings"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/kind"
)

// explainPlan returns lines of text on a plan's instances, classes, first groups and operations.
func explain(p *formats.Plan) []string {
	q := formats.QueueOf(p)
	if q == nil {
		return nil
	}
	out := instances(q)
	for i := range q.Classes {
		c := &q.Classes[i]
		line := fmt.Sprintf("%s: %s rps, %s within %v for %s of them", c.Key(), kind.Number(c.RPS), c.Of, c.SLOUS.D(), c.Percentile)
		if c.Attainment > 0 {
			line += ", " + kind.Percent(c.Attainment) + " in the runs of the plan"
		}
		out = append(out, line)
	}
	out = append(out, hosts(q)...)
	for i := range q.Operations {
		out = append(out, operation(&q.Operations[i]))
	}
	return append(out, groups(q)...)
}

// instanceLines returns a line for each sort of identical instances, with their number.
func instances(q *formats.QueuePlan) []string {
	var out []string
	var counts []int
	for i := range q.Instances {
		in := &q.Instances[i]

		// Describe the instance: devices, models, caps of classes.
		var runs []string
		for k, m := range in.Models {
			runs = append(runs, fmt.Sprintf("%s (%d at once)", m, in.Sequences[k]))
		}
		line := fmt.Sprintf("%d x %s for %s", in.TensorParallel, in.Device, strings.Join(runs, ", "))
		for _, c := range in.Caps {
			if c.Sequences == 0 {
				line += ", without " + c.Class
			} else {
				line += fmt.Sprintf(", at most %d of %s", c.Sequences, c.Class)
			}
		}

		// Count instances with the same description.
		if at := slices.Index(out, line); at >= 0 {
			counts[at]++
		} else {
			out, counts = append(out, line), append(counts, 1)
		}
	}
	for i := range out {
		out[i] = fmt.Sprintf("instances: %d of %s", counts[i], out[i])
	}
	return out
}

// hostLines returns a line for each kind of devices on which models wait in the host's memory.
func hosts(q *formats.QueuePlan) []string {
	var out []string
	for _, h := range q.Hosts {
		largest := int64(0)
		for i := range q.Models {
			largest = max(largest, q.Models[i].WeightBytes)
		}
		if largest > 0 {
			out = append(out, fmt.Sprintf("models beside %s: active on the instance, warm in %s of a node's memory (%d of the largest) by the order of use, cold beyond that", h.Device, document.Bytes(h.MemoryBytes), h.MemoryBytes/largest))
		}
	}
	return out
}

// operationLine returns a line on how a model's evicted requests go on and how the model is loaded on a
// device.
func operation(o *formats.QueueOperation) string {
	line := fmt.Sprintf("%s on %s: an evicted request goes on by %s (its KV moved: %s, computed again: %s); the model comes in %s warm, %s cold",
		o.Model, o.Device, o.Resume, span(o.SwapUS), span(o.RecomputeUS), span(o.WarmUS), span(o.ColdUS))
	var lacks []string
	for _, l := range o.Lacks {
		switch l {
		case "state_swap":
			lacks = append(lacks, "keep the KV of a request that it evicts (it computes it again)")
		case "warm_start":
			lacks = append(lacks, "keep a model warm (no sleep or wake was measured: it starts cold)")
		}
	}
	if len(lacks) > 0 {
		line += "; a server as it comes cannot " + strings.Join(lacks, " nor ")
	}
	return line
}

// durationText returns a duration as text. 0 stands for unknown.
func span(d document.Micros) string {
	if d == 0 {
		return "not known"
	}
	return d.D().String()
}

// groupLines returns a line on the first request groups, if the plan has any.
func groups(q *formats.QueuePlan) []string {
	if len(q.Groups) == 0 {
		return nil
	}
	late, last := 0, document.Micros(0)
	requests := 0
	for i := range q.Groups {
		g := &q.Groups[i]
		requests += g.Requests
		if g.CompletionUS > g.DeadlineUS {
			late++
		}
		last = max(last, g.CompletionUS)
	}
	return []string{fmt.Sprintf("first groups: %d of %d requests, the last expected to end after %v; %d end after their most urgent deadline", len(q.Groups), requests, last.D(), late)}
}
