package tasks

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"inferplan/engine"
	"inferplan/executor/steps"
	"inferplan/executor/turn"
	"inferplan/formats"
	flows "inferplan/policy/flow"
)

// segmented are the workflows of a plan as clients see them: what their requests
// bring and are answered, and what conditions ask of.
type segmented struct {
	own    *flows.Workflows
	walk   *flows.Walk
	Apps   []segmentApp // by model
	drawn  bool         // conditions are not evaluated: requests go by the plan's chances
	broken bool         // a condition of the request that is being led on has no value
}

// evaluates tells whether requests go by what models put out. Nil: they are no
// workflows.
func (w *segmented) evaluates() bool { return w != nil && !w.drawn }

// segmentApp is an application of segments.
type segmentApp struct {
	asked    *formats.FlowApplication
	services []int32
	values   map[string]declared // by MODULE.OUTPUT
	Ends     []SegmentEnd
	alike    bool // the ends give the same tensors, so that each is the whole answer
}

// SegmentEnd is a module that nothing reads in a segment in which requests may end.
// What it gives is part of the answer, from the output first on.
type SegmentEnd struct {
	Segment, Name, Service int32
	module                 string
	first, count           int
	Items                  int32 // that the answer has room for; 1: it runs once
}

// joinSegments gives workflows the tensors of what their requests begin and end
// with, and binds their conditions and the steps of their modules.
func (f *ensemble) joinSegments(own *flows.Workflows) error {
	c, s := f.c, &f.made.Steps
	walk, ok := c.Control.(*flows.Walk)
	if !ok {
		c.Served.Join(c.Tables, c.Services)
		return nil
	}
	s.of = make([]serviceStep, len(c.Services))
	s.Flows = &segmented{own: own, walk: walk}
	list := formats.FlowOf(c.Plan).Applications
	for a := range own.Apps {
		s.Flows.Apps = append(s.Flows.Apps, segmentApp{asked: &list[a], values: map[string]declared{}})
	}
	for _, bind := range []func(a int, seg, step int) error{f.bindBehind, f.bindBefore, f.bindValues, f.bindEnd} {
		for a := range own.Apps {
			for g := range own.Apps[a].Segments {
				for k := range own.Apps[a].Segments[g].Steps {
					if err := bind(a, g, k); err != nil {
						return atModule(fmt.Sprintf("flow.applications[%d].segments[%d].modules[%d]", a, g, k), list[a].Model, list[a].Segments[g].Modules[k].Name, err)
					}
				}
			}
		}
	}
	for a := range own.Apps {
		if err := f.bindAnswer(a); err != nil {
			return atModule(fmt.Sprintf("flow.applications[%d]", a), list[a].Model, "", err)
		}
	}
	// An engine without models has nothing to tell: requests go by the plan's chances.
	if s.Flows.drawn = c.Options.MadeUp(); s.Flows.drawn {
		walk.Choose(flows.NewDraws(own, c.Tables, c.Options.Seed))
	} else {
		walk.Choose(flows.NewEvaluated(own, f.value, f.astray))
	}
	return nil
}

// ServicesOfStep are the services that may run a step.
func ServicesOfStep(s *flows.Step) []int32 {
	if s.Service >= 0 {
		return []int32{s.Service}
	}
	return s.Routes
}

// bindBehind binds the step behind a module's models.
func (f *ensemble) bindBehind(a, g, k int) error {
	app := &f.made.Steps.Flows.Apps[a]
	m, s := &app.asked.Segments[g].Modules[k], &f.made.Steps.Flows.own.Apps[a].Segments[g].Steps[k]
	for _, service := range ServicesOfStep(s) {
		own := f.c.Services[service]
		if !slices.Contains(app.services, service) {
			app.services = append(app.services, service)
		}
		gives := own.Outputs
		if to := &f.made.Steps.of[service]; to.gives != nil {
			gives = to.gives
		}
		if err := f.behind(service, m, &steps.Tensors{Takes: turn.SpecsOf(own.Inputs), Gives: turn.SpecsOf(gives)}); err != nil {
			return err
		}
		if first := f.c.Services[ServicesOfStep(s)[0]]; !sameShapes(first.Inputs, own.Inputs) || !sameShapes(first.Outputs, own.Outputs) {
			return fmt.Errorf("its routes %s and %s take or give other tensors", first.Name, own.Name)
		}
	}
	return nil
}

// sameShapes tells whether tensors can stand in the place of others, whatever their
// names.
func sameShapes(a, b []turn.Tensor) bool {
	return slices.EqualFunc(a, b, func(a, b turn.Tensor) bool { return a.Datatype == b.Datatype && slices.Equal(a.Shape, b.Shape) })
}

// bindBefore binds the step before a module's models, and says what requests bring.
func (f *ensemble) bindBefore(a, g, k int) error {
	own, app, served := &f.made.Steps.Flows.own.Apps[a], &f.made.Steps.Flows.Apps[a], f.c.Served.Models[a]
	m, s := &app.asked.Segments[g].Modules[k], &own.Segments[g].Steps[k]
	for _, service := range ServicesOfStep(s) {
		t := steps.Tensors{Takes: turn.SpecsOf(f.c.Services[service].Inputs)}
		if g == 0 && k == 0 {
			sent, err := steps.Sent(m.Pre, &t)
			if err == nil {
				served.Inputs, err = turn.TensorsOf(sent)
			}
			if err != nil {
				return err
			}
			served.Inputs[0].Text = steps.SendsText(m.Pre) || m.Pre == "" && f.c.Services[service].Inputs[0].Text
			served.Inputs = several(served.Inputs, s.MostItems())
			served.Parameters = app.asked.Parameters
		}
		t.Client = turn.SpecsOf(served.Inputs)
		takesText := f.c.Services[service].Inputs[0].Text
		once, texts, someText := true, len(s.Reads) > 0 || served.Inputs[0].Text, takesText
		for _, name := range s.Reads {
			i := slices.IndexFunc(own.Segments, func(o flows.Segment) bool {
				return slices.ContainsFunc(o.Steps, func(p flows.Step) bool { return p.Name == name })
			})
			j := slices.IndexFunc(own.Segments[i].Steps, func(p flows.Step) bool { return p.Name == name })
			from := &own.Segments[i].Steps[j]
			once = once && (name == s.Each || !from.Counted && from.Each < 0)
			made := f.c.Services[ServicesOfStep(from)[0]].Outputs
			texts, someText = texts && len(made) == 1 && made[0].Text, someText || made[0].Text
			t.Reads = append(t.Reads, turn.SpecsOf(made)...)
		}
		reads := t.Reads
		if len(s.Reads) == 0 {
			reads = t.Client
		}
		// A text may have any length. An engine that makes answers up knows no tensors of others.
		asText := texts && len(reads) == 1 && takesText || someText && f.c.Options.MadeUp()
		if m.Pre == "" && once && !asText && !slices.EqualFunc(reads, t.Takes, holdsSample) {
			return fmt.Errorf("it reads %v and its model takes %v: name a step before it (%v)", reads, t.Takes, formats.PreSteps)
		}
		if err := f.readPassages(m, &t); err != nil {
			return err
		}
		if err := f.before(service, int(f.made.Steps.place(int32(a), s.Ask)), m, &t); err != nil {
			return err
		}
	}
	return nil
}

// readPassages reads the passages of a module. An engine that makes answers up has none.
func (f *ensemble) readPassages(m *formats.Module, t *steps.Tensors) error {
	if m.Passages == nil {
		return nil
	}
	t.Nearest = m.Passages.Nearest
	if f.c.Options.Engine == "replay" {
		t.Passages = steps.NoPassages()
		return nil
	}
	path := filepath.Join(f.c.Options.ModelsDir, m.Passages.File)
	read := f.made.Steps.passages
	if t.Passages = read[path]; t.Passages != nil {
		return nil
	}
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("passages: %w", err)
	}
	defer file.Close()
	if t.Passages, err = steps.ReadPassages(file); err != nil {
		return fmt.Errorf("passages: %s: %w", path, err)
	}
	if read == nil {
		f.made.Steps.passages = map[string]*steps.Passages{}
	}
	f.made.Steps.passages[path] = t.Passages
	return nil
}

// holdsSample tells whether a tensor holds a sample of another, or several: a task
// on an item then takes its own.
func holdsSample(a, b engine.Spec) bool {
	return a.Type == b.Type && b.BytesAt(1) > 0 && a.BytesAt(1)%b.BytesAt(1) == 0
}

// several are tensors with a dimension of items, where there may be more than one.
func several(list []turn.Tensor, items int32) []turn.Tensor {
	if items <= 1 {
		return list
	}
	list = slices.Clone(list)
	for i := range list {
		list[i].Shape = slices.Insert(slices.Clone(list[i].Shape), 1, int64(items))
		list[i].Bytes *= int(items)
	}
	return list
}

// bindEnd notes a module that requests may end with.
func (f *ensemble) bindEnd(a, g, k int) error {
	own, app := &f.made.Steps.Flows.own.Apps[a], &f.made.Steps.Flows.Apps[a]
	segment, s := &own.Segments[g], &own.Segments[g].Steps[k]
	read := func(o flows.Step) bool { return o.Each == s.Name || slices.Contains(o.Reads, s.Name) }
	stays := func(to int32) bool { return to >= 0 && own.Segments[to].Most == 0 }
	ends := slices.Contains(segment.To, -1) || !slices.ContainsFunc(segment.To, stays) // a way to where one was often enough is closed
	if !ends || slices.ContainsFunc(segment.Steps[k+1:], read) {
		return nil
	}
	e := SegmentEnd{Segment: int32(g), Name: s.Name, Service: ServicesOfStep(s)[0], module: own.Names[s.Name], Items: s.MostItems()}
	if s.Each >= 0 {
		i := slices.IndexFunc(segment.Steps, func(o flows.Step) bool { return o.Name == s.Each })
		e.Items = segment.Steps[i].MostItems()
	}
	app.Ends = append(app.Ends, e)
	return nil
}

// bindAnswer finds what a workflow answers. Where all ends give the same tensors and
// no segment has two of them, the one that a request comes to is the answer. Else the
// answer has a part for each, whose names begin with the module's.
func (f *ensemble) bindAnswer(a int) error {
	app, m := &f.made.Steps.Flows.Apps[a], f.c.Served.Models[a]
	if len(app.Ends) > 64 {
		return fmt.Errorf("%d modules at its ends, expected at most 64", len(app.Ends))
	}
	gives := func(e *SegmentEnd) []turn.Tensor { return several(f.c.Services[e.Service].Outputs, e.Items) }
	app.alike = true
	for i := range app.Ends {
		e := &app.Ends[i]
		same := slices.EqualFunc(gives(e), gives(&app.Ends[0]), func(a, b turn.Tensor) bool { return a.Name == b.Name })
		app.alike = app.alike && same && sameShapes(gives(e), gives(&app.Ends[0])) && (i == 0 || e.Segment != app.Ends[i-1].Segment)
	}
	m.Outputs = nil
	for i := range app.Ends {
		e := &app.Ends[i]
		list := gives(e)
		if e.count = len(list); app.alike && i > 0 {
			continue
		}
		e.first = len(m.Outputs)
		for _, o := range list {
			if !app.alike {
				o.Name = e.module + "." + o.Name
			}
			m.Outputs = append(m.Outputs, o)
		}
	}
	return nil
}

// conclude completes the answer of a workflow: what the modules gave at the end that
// the request came to. Other parts are left out, and named in the response.
func (f *ensemble) conclude(slot int32, q *turn.Request) {
	w := f.made.Steps.Flows
	app, at := &w.Apps[q.Job.Model.Index], w.walk.Segment(slot)
	for i := range app.Ends {
		e := &app.Ends[i]
		if e.Segment != at {
			if !app.alike {
				told(q).passedOver.add(q, e.module)
				for k := range e.count {
					f.lack(q, e.first+k)
				}
			}
			continue
		}
		tasks := w.walk.Latest(slot, e.Name)
		for k := range e.count {
			size := f.c.Services[e.Service].Outputs[k].Bytes
			whole := q.Job.Model.Outputs[e.first+k].Bytes
			to := q.Job.Outputs[e.first+k][int(q.Sample)*whole:][:whole]
			clear(to)
			for item, t := range tasks {
				copy(to[item*size:], f.made.output(t, k))
			}
		}
		if app.alike && len(app.Ends) > 1 {
			told(q).answeredBy.add(q, e.module)
		}
		if e.Items > 1 {
			told(q).items.add(q, e.module+"="+strconv.Itoa(len(tasks)))
		}
	}
}

// astray ends a request of which a condition has no value.
func (f *ensemble) astray(req int32, err error) {
	f.made.Steps.Flows.broken = true
	if q := f.c.Ledger.At(req); q != nil && !q.Job.Answered {
		f.c.Ledger.Fail(q.Job, err)
	}
}

// lead has the control say what comes next of a request. Where a condition has no
// value nothing does: the request has been answered, and its policy hears of that.
func (f *ensemble) lead(say func()) {
	w, out := f.made.Steps.Flows, &f.made.Reveals
	tasks, over := len(out.Tasks), len(out.Over)
	say()
	if w != nil && w.broken {
		w.broken = false
		out.Tasks, out.Over = out.Tasks[:tasks], out.Over[:over]
	}
}
