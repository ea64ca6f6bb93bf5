package diff

import (
	"fmt"
	"strings"

	"inferplan/formats"
	"inferplan/formats/document"
)

// Queues compares the sections of two plans of queues: the number of identical instances, classes, estimators and
// the first groups.
func Queues(a, b *formats.Plan, r *Recorder) {
	x, y := formats.QueueOf(a), formats.QueueOf(b)
	if x == nil || y == nil {
		return
	}
	r.section = "instances"
	for _, p := range union(alike(x), alike(y), func(s *servers) string { return s.name }) {
		r.count(p.name, orZero(p.a).count, orZero(p.b).count, neutral)
	}
	r.section = "classes"
	for n, p := range shared(x.Classes, y.Classes, func(c *formats.QueueClass) string { return c.Key().String() }) {
		c, d := p.a, p.b
		r.text(n+" judged by", c.Of, d.Of)
		r.figure(n+" attainment", c.Attainment, d.Attainment, "", moreIsBetter)
		r.count(n+" priority", c.Priority, d.Priority, neutral)
		r.figure(n+" mean prompt", c.PromptMean, d.PromptMean, "tokens", neutral)
		r.figure(n+" mean answer", c.OutputMean, d.OutputMean, "tokens", neutral)
	}
	r.section = "groups"
	r.count("first groups", len(x.Groups), len(y.Groups), neutral)
	r.span("last first group ends", lastGroup(x), lastGroup(y), lessIsBetter)
}

// serverGroup is a group of identical instances.
type servers struct {
	name  string
	count int
}

func alike(q *formats.QueuePlan) []servers {
	var out []servers
	for i := range q.Instances {
		in := &q.Instances[i]
		var models []string
		for k, m := range in.Models {
			models = append(models, fmt.Sprintf("%s:%d", m, in.Sequences[k]))
		}
		name := fmt.Sprintf("%d x %s %s", in.TensorParallel, in.Device, strings.Join(models, " "))
		for _, c := range in.Caps {
			name += fmt.Sprintf(" %s<=%d", c.Class, c.Sequences)
		}
		at := 0
		for at < len(out) && out[at].name != name {
			at++
		}
		if at == len(out) {
			out = append(out, servers{name: name})
		}
		out[at].count++
	}
	return out
}

// lastGroup returns when the last of the first groups is expected to end.
func lastGroup(q *formats.QueuePlan) document.Micros {
	last := document.Micros(0)
	for i := range q.Groups {
		last = max(last, q.Groups[i].CompletionUS)
	}
	return last
}
