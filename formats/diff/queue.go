package diff

import (
	"fmt"
	"strings"

	"inferplan/formats"
	"inferplan/formats/document"
)

// Queues records what changed between two plans of LLM servers: the number of identical instances, classes of
// requests, and the first request groups. An instance is a server of language models on a number of devices.
func Queues(a, b *formats.Plan, r *Recorder) {
	x, y := formats.QueueOf(a), formats.QueueOf(b)
	if x == nil || y == nil {
		return
	}
	r.section = "instances"
	for _, p := range pairByName(identicalServers(x), identicalServers(y), func(s *serverGroup) string { return s.name }) {
		r.addCount(p.name, orZero(p.a).count, orZero(p.b).count, neutral)
	}
	r.section = "classes"
	for n, p := range commonNames(x.Classes, y.Classes, func(c *formats.QueueClass) string { return c.Key().String() }) {
		c, d := p.a, p.b
		r.addText(n+" judged by", c.Figure, d.Figure)
		r.addFigure(n+" attainment", c.Attainment, d.Attainment, "", moreIsBetter)
		r.addCount(n+" priority", c.Priority, d.Priority, neutral)
		r.addFigure(n+" mean prompt", c.PromptMean, d.PromptMean, "tokens", neutral)
		r.addFigure(n+" mean answer", c.OutputMean, d.OutputMean, "tokens", neutral)
	}
	r.section = "groups"
	r.addCount("first groups", len(x.Groups), len(y.Groups), neutral)
	r.addTime("last first group ends", lastGroup(x), lastGroup(y), lessIsBetter)
}

// serverGroup is a group of identical instances.
type serverGroup struct {
	name  string
	count int
}

// identicalServers counts the instances of a queue plan that are the same: on equal devices, with the same models,
// limits and caps. The groups are in the order of their first instance.
func identicalServers(q *formats.QueuePlan) []serverGroup {
	var out []serverGroup
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
		group := document.First(out, func(g *serverGroup) bool { return g.name == name })
		if group == nil {
			out = append(out, serverGroup{name: name})
			group = &out[len(out)-1]
		}
		group.count++
	}
	return out
}

// lastGroup returns when the last of the first groups is expected to end.
func lastGroup(q *formats.QueuePlan) document.Micros {
	latest := document.Micros(0)
	for i := range q.Groups {
		latest = max(latest, q.Groups[i].CompletionUS)
	}
	return latest
}
