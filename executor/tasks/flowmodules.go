package tasks

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"

	"inferplan/engine"
	"inferplan/executor/steps"
	"inferplan/executor/turn"
	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/seeded"
	flows "inferplan/policy/flow"
)

// applications are the applications of a plan as clients see them, and the steps before and behind the models of their
// modules (package steps). The zero value is for plans of other kinds, whose requests begin and end with the tensors of
// their pipelines.
type applications struct {
	c         *turn.Core
	list      []application              // by model; nil for plans of other kinds
	graphs    *flows.Tables              // nil if they are workflows
	workflows *flows.Workflows           // nil if they are graphs
	walk      *flows.Walk                // of workflows
	drawn     bool                       // conditions are not evaluated; requests follow the plan's chances
	judged    bool                       // outcomes are computed from the outputs of tasks
	broken    bool                       // a condition of the request in `advance` has no value
	of        []serviceStep              // by service
	draws     *rand.Rand                 // outcomes in graphs, for an engine without models
	passages  map[string]*steps.Passages // by path
	// Scratch: the tensors of a sample.
	client, read, made, dst [][]byte
}

// evaluatesConditions returns true if requests follow the outputs of models.
func (s *applications) evaluates() bool { return s.workflows != nil && !s.drawn }

// boundSteps are the steps of a service. Modules that share a model share the step behind it. The step before it belongs
// to the application.
type serviceStep struct {
	bound  bool
	post   string
	behind steps.Post
	gives  []turn.Tensor // outputs of its model, if there is a step behind it
	pres   []preStep     // by preStepIndex
}

// preStep is the step before a service's model in an application.
type preStep struct {
	bound    bool
	pre      string
	passages formats.Passages
	before   steps.Pre // nil if the module has no step before its model
	reads    []int     // bytes of the tensors that it reads
}

// moduleBinding is a module of an application while its steps are bound: a node of a graph, or a step of a segment.
type module struct {
	app      int
	path     string // field of the plan
	asked    *formats.Module
	services []int32                            // services one of which runs it
	reads    []int32                            // a service of each module that it reads
	fits     func(made, taken engine.Spec) bool // compares what it reads with its model's inputs; nil if that differs by request
	ways     int                                // outcomes of a node
	step     *flows.Step                        // nil for a graph
	entry    bool                               // it takes the client's inputs
}

// listModules lists the modules of all applications, the one where requests enter first, and records the ends of the
// applications.
func (s *applications) compile() (out []module) {
	for a, asked := range formats.FlowOf(s.c.Plan).Applications {
		app := application{name: asked.Model, parameters: asked.Parameters, values: map[string]declared{}}

		// Nodes of a graph.
		if s.graphs != nil {
			nodes := s.graphs.Apps[a].Nodes
			for i := range nodes {
				n := &nodes[i]
				m := module{app: a, path: fmt.Sprintf("flow.applications[%d].modules[%d]", a, i), asked: &asked.Modules[i], services: []int32{n.Service}, ways: len(n.Ways), entry: i == 0}
				for _, e := range n.In {
					m.reads = append(m.reads, nodes[e.From].Service)
				}
				if len(n.In) == 1 && i > 0 {
					m.fits = sameSample
				}
				if len(n.Out) == 0 {
					app.ends = append(app.ends, end{service: n.Service, module: n.Name, items: 1})
				}
				out = append(out, m)
			}
			s.list = append(s.list, app)
			continue
		}

		// Steps of the segments of a workflow.
		segments, names := s.workflows.Apps[a].Segments, s.workflows.Apps[a].Names
		for g := range segments {
			for k := range segments[g].Steps {
				step := &segments[g].Steps[k]
				m := module{app: a, path: fmt.Sprintf("flow.applications[%d].segments[%d].modules[%d]", a, g, k), asked: &asked.Segments[g].Modules[k], services: step.Services(), step: step, entry: g == 0 && k == 0, fits: holdsSample}
				for _, name := range step.Reads {
					from := stepOf(segments, name)
					m.reads = append(m.reads, from.Services()[0])
					if name != step.Each && (from.Counted || from.Each >= 0) {
						m.fits = nil
					}
				}
				if items := itemsAtEnd(segments, g, k); items > 0 {
					app.ends = append(app.ends, end{segment: int32(g), name: step.Name, service: step.Services()[0], module: names[step.Name], items: items})
				}
				out = append(out, m)
			}
		}
		s.list = append(s.list, app)
	}
	return out
}

// stepOf returns the first step with a name.
func stepOf(segments []flows.Segment, name int32) *flows.Step {
	for g := range segments {
		if k := slices.IndexFunc(segments[g].Steps, func(s flows.Step) bool { return s.Name == name }); k >= 0 {
			return &segments[g].Steps[k]
		}
	}
	return nil
}

// itemsAtEnd returns the number of items that the answer has space for, of a step that requests may end with. It is 1 if
// the step runs once. If requests do not end with the step, it is 0.
func itemsAtEnd(segments []flows.Segment, g, k int) int32 {
	segment, s := &segments[g], &segments[g].Steps[k]
	read := func(o flows.Step) bool { return o.Each == s.Name || slices.Contains(o.Reads, s.Name) }
	stays := func(to int32) bool { return to >= 0 && segments[to].Most == 0 }
	ends := slices.Contains(segment.To, -1) || !slices.ContainsFunc(segment.To, stays) // branches to segments with MaxVisits close
	switch {
	case !ends || slices.ContainsFunc(segment.Steps[k+1:], read):
		return 0
	case s.Each >= 0:
		i := slices.IndexFunc(segment.Steps, func(o flows.Step) bool { return o.Name == s.Each })
		return segment.Steps[i].MostItems()
	}
	return s.MostItems()
}

// Join gives applications the tensors that their requests begin and end with, and binds the steps of their modules and
// their conditions.
func (f *ensemble) Join() error {
	c, s := f.c, &f.made.Apps
	s.c, s.graphs, s.workflows = c, flows.Of(c.Tables), flows.WorkflowsOf(c.Tables)
	if s.workflows != nil {
		s.walk, _ = c.Control.(*flows.Walk)
	}

	// Plans of other kinds.
	if s.graphs == nil && s.walk == nil {
		s.workflows = nil
		c.Served.Join(c.Tables, c.Services)
		return nil
	}

	// Bind the steps before and behind the models, then the values of conditions.
	s.of = make([]serviceStep, len(c.Services))
	modules := s.compile()
	for _, bind := range []func(m *module) error{s.bindBehind, s.bindBefore, s.bindValues} {
		for i := range modules {
			m := &modules[i]
			if err := bind(m); err != nil {
				return &document.Error{Path: m.path, Found: fmt.Sprintf("application %s, module %s: %v", s.list[m.app].name, m.asked.Name, err)}
			}
		}
	}

	// Bind the answers.
	for a := range s.list {
		if err := s.bindAnswer(a); err != nil {
			return &document.Error{Path: fmt.Sprintf("flow.applications[%d]", a), Found: fmt.Sprintf("application %s: %v", s.list[a].name, err)}
		}
	}
	// With an engine without models, requests follow the plan's chances.
	s.drawn = c.Options.MadeUp()
	switch {
	case s.graphs != nil && c.Options.Engine == "replay":
		s.draws = seeded.New(c.Options.Seed, "executor/ways")
	case s.workflows != nil && s.drawn:
		s.walk.Choose(flows.NewDraws(s.workflows, c.Tables, c.Options.Seed))
	case s.workflows != nil:
		s.walk.Choose(flows.NewEvaluated(s.workflows, f.value, f.astray))
	}
	return nil
}

// bindPostStep binds the step behind a module's models, once for each model.
func (s *applications) bindBehind(m *module) error {
	app := &s.list[m.app]
	for _, service := range m.services {
		if !slices.Contains(app.services, service) {
			app.services = append(app.services, service)
		}
		own, to := s.c.Services[service], &s.of[service]
		gives := own.Outputs
		if to.gives != nil {
			gives = to.gives
		}
		made, behind, err := steps.BindPost(m.asked.Post, &steps.Tensors{Takes: turn.SpecsOf(own.Inputs), Gives: turn.SpecsOf(gives)})
		if err == nil && behind != nil && to.behind == nil {
			to.behind, to.gives = behind, own.Outputs
			own.Outputs, err = turn.TensorsOf(made)
		}
		if err != nil {
			return err
		}

		// All routes must have the same tensors.
		if first := s.c.Services[m.services[0]]; !sameShapes(first.Inputs, own.Inputs) || !sameShapes(first.Outputs, own.Outputs) {
			return fmt.Errorf("its routes %s and %s take or give other tensors", first.Name, own.Name)
		}
	}
	return nil
}

// sameShapes returns true if tensors can replace others, whatever their names.
func sameShapes(a, b []turn.Tensor) bool {
	return slices.EqualFunc(a, b, func(a, b turn.Tensor) bool { return a.Datatype == b.Datatype && slices.Equal(a.Shape, b.Shape) })
}

// bindPreSteps binds the step before a module's models, and sets the inputs of requests.
func (s *applications) bindBefore(m *module) error {
	served, pre := s.c.Served.Models[m.app], m.asked.Pre
	for _, service := range m.services {
		inputs := s.c.Services[service].Inputs
		t := steps.Tensors{Takes: turn.SpecsOf(inputs)}

		// The first module determines what clients send.
		if m.entry {
			sent, err := steps.Sent(pre, &t)
			if err == nil {
				served.Inputs, err = turn.TensorsOf(sent)
			}
			if err != nil {
				return err
			}
			if m.step != nil {
				served.Inputs[0].Text = steps.SendsText(pre) || pre == "" && inputs[0].Text
				served.Inputs = several(served.Inputs, m.step.MostItems())
			}
			served.Parameters = s.list[m.app].parameters
		}

		// What the module reads.
		t.Client = turn.SpecsOf(served.Inputs)
		takesText := inputs[0].Text
		texts, someText := len(m.reads) > 0 || served.Inputs[0].Text, takesText
		for _, from := range m.reads {
			made := s.c.Services[from].Outputs
			texts, someText = texts && len(made) == 1 && made[0].Text, someText || made[0].Text
			t.Reads = append(t.Reads, turn.SpecsOf(made)...)
		}
		reads := t.Reads
		if len(m.reads) == 0 {
			reads = t.Client
		}
		// Check that the tensors fit the model, or that a step makes them fit. A text may have any length. With random
		// outputs tensors need not fit.
		asText := texts && len(reads) == 1 && takesText || someText && s.c.Options.MadeUp()
		switch {
		case m.ways > int(steps.Ways(m.asked.Post)) && !s.judged && !s.c.Options.MadeUp():
			return fmt.Errorf("it has %d ways on, and no step behind its model that tells them apart", m.ways)
		case pre == "" && m.fits != nil && !asText && !slices.EqualFunc(reads, t.Takes, m.fits):
			return fmt.Errorf("it reads %v and its model takes %v: name a step before it (%v)", reads, t.Takes, formats.PreSteps)
		}

		// Bind the step.
		if err := s.readPassages(m.asked, &t); err != nil {
			return err
		}
		if err := s.before(service, m, &t); err != nil {
			return err
		}
	}
	return nil
}

// bindPreStep binds the step before a service's model, once for each index.
func (s *applications) before(service int32, m *module, t *steps.Tensors) (err error) {
	to, place, passages := &s.of[service], int32(m.app), formats.Passages{}
	if m.step != nil {
		place = s.place(place, m.step.Ask)
	}
	for len(to.pres) <= int(place) {
		to.pres = append(to.pres, preStep{})
	}
	own, asked := &to.pres[place], m.asked
	if asked.Passages != nil {
		passages = *asked.Passages
	}
	switch {
	case to.bound && to.post != asked.Post || own.bound && (own.pre != asked.Pre || own.passages != passages || asked.Pre != "" && len(own.reads) != len(t.Reads)):
		return fmt.Errorf("another module of the model %s has other steps or passages, or reads otherwise", s.c.Services[service].Name)
	case own.bound:
		return nil
	}

	// Bind it.
	to.bound, to.post, own.bound, own.pre, own.passages = true, asked.Post, true, asked.Pre, passages
	for i := range t.Reads {
		own.reads = append(own.reads, int(t.Reads[i].BytesAt(1)))
	}
	own.before, err = steps.BindPre(asked.Pre, t)
	return err
}

// preStepIndex returns the index of a step before a model among those of its service: one for each application, and one
// for each generation step.
func (s *applications) place(app, ask int32) int32 {
	if ask > 0 {
		return int32(len(s.list)) + ask - 1
	}
	return app
}

// preStepAt returns the step before a service's model at an index. If it has none, it returns nil.
func (s *applications) preOf(service, place int32) *preStep {
	if s.of == nil || int(place) >= len(s.of[service].pres) || s.of[service].pres[place].before == nil {
		return nil
	}
	return &s.of[service].pres[place]
}

// readPassages reads the passages of a module. The engine "replay" has none.
func (s *applications) readPassages(m *formats.Module, t *steps.Tensors) error {
	if m.Passages == nil {
		return nil
	}
	t.Nearest = m.Passages.Nearest
	if s.c.Options.Engine == "replay" {
		t.Passages = steps.NoPassages()
		return nil
	}
	path := filepath.Join(s.c.Options.ModelsDir, m.Passages.File)
	if t.Passages = s.passages[path]; t.Passages != nil {
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
	if s.passages == nil {
		s.passages = map[string]*steps.Passages{}
	}
	s.passages[path] = t.Passages
	return nil
}

// sameSample returns true if a sample of a tensor can replace one of another.
func sameSample(a, b engine.Spec) bool { return a.Type == b.Type && a.BytesAt(1) == b.BytesAt(1) }

// holdsSample returns true if a tensor holds one or several samples of another: a task on an item then takes its own.
func holdsSample(a, b engine.Spec) bool {
	return a.Type == b.Type && b.BytesAt(1) > 0 && a.BytesAt(1)%b.BytesAt(1) == 0
}

// withItems returns tensors with a dimension of items, if there may be more than one.
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

// outcomeOf returns the outcome of a task: what the step behind its model returned, or a drawn one for an engine without
// models.
func (u *Tasks) way(task, app int32) int32 {
	s := &u.Apps
	if s.draws == nil {
		return u.facts[task].way
	}
	for i := range s.graphs.Apps[app].Nodes {
		n := &s.graphs.Apps[app].Nodes[i]
		if n.Service == u.List[task].Service && len(n.Ways) > 0 {
			return n.Way(s.draws.Float64())
		}
	}
	return 0
}

// runPostStep runs the step behind a task's model. If there is none, it returns false.
func (s *applications) then(service int32, fa *facts, k int, out turn.Outputs, outs []turn.Tensor) bool {
	if s.of == nil || s.of[service].behind == nil {
		return false
	}
	own := &s.of[service]
	s.made, s.dst = s.made[:0], s.dst[:0]
	for i := range own.gives {
		n := own.gives[i].Bytes
		s.made = append(s.made, out.Output(i)[k*n:][:n])
	}
	to := fa.made
	for i := range outs {
		s.dst = append(s.dst, to[:outs[i].Bytes:outs[i].Bytes])
		to = to[outs[i].Bytes:]
	}
	fa.way = own.behind(s.dst, s.made)
	return true
}
