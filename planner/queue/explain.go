package queue

import (
	"fmt"
	"slices"
	"strings"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/kind"
	"inferplan/planner/lists"
)

// explainPlan returns the lines that `plan explain` prints about a plan of LLM servers: its instances, classes of
// requests, models in host memory, and first request groups.
func explainPlan(p *formats.Plan) []string {
	q := formats.QueueOf(p)
	if q == nil {
		return nil
	}
	lines := instanceLines(q)
	for i := range q.Classes {
		c := &q.Classes[i]
		line := fmt.Sprintf("%s: %s rps, %s within %v for %s of them", c.Key(), kind.FormatNumber(c.RPS), c.Figure, c.SLOUS.D(), c.Percentile)
		if c.Attainment > 0 {
			line += ", " + kind.FormatPercent(c.Attainment) + " in the runs of the plan"
		}
		lines = append(lines, line)
	}
	lines = append(lines, hostLines(q)...)
	lines = append(lines, lists.Map(len(q.Operations), func(i int) string { return operationLine(&q.Operations[i]) })...)
	return append(lines, groupLines(q)...)
}

// instanceLines returns a line for each sort of identical instances, with their number.
func instanceLines(q *formats.QueuePlan) []string {
	var lines []string
	var counts []int
	for i := range q.Instances {
		in := &q.Instances[i]

		// Describe the instance: devices, models, caps of classes.
		modelTexts := lists.Map(len(in.Models), func(k int) string { return fmt.Sprintf("%s (%d at once)", in.Models[k], in.Sequences[k]) })
		line := fmt.Sprintf("%d x %s for %s", in.TensorParallel, in.Device, strings.Join(modelTexts, ", "))
		for _, c := range in.Caps {
			if c.Sequences == 0 {
				line += ", without " + c.Class
			} else {
				line += fmt.Sprintf(", at most %d of %s", c.Sequences, c.Class)
			}
		}

		// Count instances with the same description.
		if index := slices.Index(lines, line); index >= 0 {
			counts[index]++
		} else {
			lines, counts = append(lines, line), append(counts, 1)
		}
	}
	for i := range lines {
		lines[i] = fmt.Sprintf("instances: %d of %s", counts[i], lines[i])
	}
	return lines
}

// hostLines returns a line for each kind of devices whose hosts have memory in which models wait (warm), from where they load faster than
// from disk (cold). The number of warm models is given in models of the largest size.
func hostLines(q *formats.QueuePlan) []string {
	var lines []string
	for _, h := range q.Hosts {
		largest := lists.Max(int64(0), len(q.Models), func(i int) int64 { return q.Models[i].WeightBytes })
		if largest > 0 {
			lines = append(lines, fmt.Sprintf("models beside %s: active on the instance, warm in %s of a node's memory (%d of the largest) by the order of use, cold beyond that", h.Device, document.Bytes(h.MemoryBytes), h.MemoryBytes/largest))
		}
	}
	return lines
}

// operationLine returns a line on how a model's evicted requests go on and how the model is loaded on a
// device.
func operationLine(o *formats.QueueOperation) string {
	line := fmt.Sprintf("%s on %s: an evicted request goes on by %s (its KV moved: %s, computed again: %s); the model comes in %s warm, %s cold",
		o.Model, o.Device, o.Resume, durationText(o.SwapUS), durationText(o.RecomputeUS), durationText(o.WarmUS), durationText(o.ColdUS))
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
func durationText(d document.Micros) string {
	if d == 0 {
		return "not known"
	}
	return document.ShortDuration(d.D())
}

// groupLines returns a line on the plan's first request groups (requests of one model and class that are scheduled as one): how many
// there are, when the last one is expected to end, and how many end after their deadlines. Without groups it returns nil.
func groupLines(q *formats.QueuePlan) []string {
	if len(q.Groups) == 0 {
		return nil
	}
	lateGroups, lastEnd := 0, document.Micros(0)
	requests := 0
	for i := range q.Groups {
		g := &q.Groups[i]
		requests += g.Requests
		if g.CompletionUS > g.DeadlineUS {
			lateGroups++
		}
		lastEnd = max(lastEnd, g.CompletionUS)
	}
	return []string{fmt.Sprintf("first groups: %d of %d requests, the last expected to end after %v; %d end after their most urgent deadline", len(q.Groups), requests, document.ShortDuration(lastEnd.D()), lateGroups)}
}
