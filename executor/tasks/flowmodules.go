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
	core             *turn.Core
	apps             []application              // by model; nil for plans of other kinds
	graphs           *flows.GraphTables         // nil if they are workflows
	workflows        *flows.WorkflowTables      // nil if they are graphs
	control          *flows.WorkflowControl     // of workflows
	drawsPaths       bool                       // conditions are not evaluated; requests follow the plan's chances
	computesOutcomes bool                       // outcomes are computed from the outputs of tasks
	conditionFailed  bool                       // a condition of the request in `advance` has no value
	serviceSteps     []boundSteps               // by service
	outcomeDraws     *rand.Rand                 // outcomes in graphs, for an engine without models
	passages         map[string]*steps.Passages // by path
	// Scratch: the tensors of a sample.
	clientTensors, readTensors, modelOutputs, stepOutputs [][]byte
}

// evaluatesConditions returns true if requests follow the outputs of models.
func (s *applications) evaluatesConditions() bool { return s.workflows != nil && !s.drawsPaths }

// boundSteps are the steps of a service. Modules that share a model share the step behind it. The step before it belongs
// to the application.
type boundSteps struct {
	isBound      bool
	postName     string
	postStep     steps.BoundPost
	modelOutputs []turn.Tensor // outputs of its model, if there is a step behind it
	preSteps     []preStep     // by preStepIndex
}

// preStep is the step before a service's model in an application.
type preStep struct {
	isBound   bool
	name      string
	passages  formats.Passages
	run       steps.BoundPre // nil if the module has no step before its model
	readBytes []int          // bytes of the tensors that it reads
}

// moduleBinding is a module of an application while its steps are bound: a node of a graph, or a step of a segment.
type moduleBinding struct {
	app          int
	path         string // field of the plan
	declaration  *formats.Module
	services     []int32                            // services one of which runs it
	readServices []int32                            // a service of each module that it reads
	fitsInput    func(made, taken engine.Spec) bool // compares what it reads with its model's inputs; nil if that differs by request
	outcomes     int                                // outcomes of a node
	step         *flows.Step                        // nil for a graph
	isEntry      bool                               // it takes the client's inputs
}

// listModules returns the modules of all applications, in each the one where requests enter first, and adds the
// applications to s.apps with their answer parts: the modules that their requests may end with. A graph's modules are
// its nodes; a workflow's are the steps of its segments.
func (s *applications) listModules() (out []moduleBinding) {
	for a, declaration := range formats.FlowOf(s.core.Plan).Applications {
		app := application{name: declaration.Model, parameters: declaration.Parameters, values: map[string]declaredValue{}}

		// Nodes of a graph.
		if s.graphs != nil {
			nodes := s.graphs.Apps[a].Nodes
			for i := range nodes {
				n := &nodes[i]
				m := moduleBinding{app: a, path: fmt.Sprintf("flow.applications[%d].modules[%d]", a, i), declaration: &declaration.Modules[i], services: []int32{n.Service}, outcomes: len(n.OutcomeChances), isEntry: i == 0}
				for _, e := range n.Inputs {
					m.readServices = append(m.readServices, nodes[e.From].Service)
				}
				if len(n.Inputs) == 1 && i > 0 {
					m.fitsInput = sameSample
				}
				if len(n.Outputs) == 0 {
					app.answerParts = append(app.answerParts, answerPart{service: n.Service, module: n.Name, maxItems: 1})
				}
				out = append(out, m)
			}
			s.apps = append(s.apps, app)
			continue
		}

		// Steps of the segments of a workflow.
		segments, names := s.workflows.Apps[a].Segments, s.workflows.Apps[a].Names
		for g := range segments {
			for k := range segments[g].Steps {
				step := &segments[g].Steps[k]
				m := moduleBinding{app: a, path: fmt.Sprintf("flow.applications[%d].segments[%d].modules[%d]", a, g, k), declaration: &declaration.Segments[g].Modules[k], services: step.Services(), step: step, isEntry: g == 0 && k == 0, fitsInput: holdsSample}
				// Find the services whose outputs the step reads. If one may give several items and they are read
				// together, the tensors need not fit (fitsInput nil).
				for _, name := range step.Reads {
					source := stepOf(segments, name)
					m.readServices = append(m.readServices, source.Services()[0])
					if name != step.EachOf && (source.CountVaries || source.EachOf >= 0) {
						m.fitsInput = nil
					}
				}
				if items := itemsAtEnd(segments, g, k); items > 0 {
					app.answerParts = append(app.answerParts, answerPart{segment: int32(g), name: step.Name, service: step.Services()[0], module: names[step.Name], maxItems: items})
				}
				out = append(out, m)
			}
		}
		s.apps = append(s.apps, app)
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

// itemsAtEnd returns how many items of step k of segment g a request's answer must have space for, if the request may
// end with that step. It returns 1 if the step runs once, and 0 if no request ends with it, because another step reads
// it or its segment always leads to another segment.
func itemsAtEnd(segments []flows.Segment, g, k int) int32 {
	segment, s := &segments[g], &segments[g].Steps[k]
	isReadBy := func(o flows.Step) bool { return o.EachOf == s.Name || slices.Contains(o.Reads, s.Name) }
	isOpen := func(to int32) bool { return to >= 0 && segments[to].MaxVisits == 0 }
	// A request ends after a segment that branches to the end (-1), or only to segments with a limit of visits: at the
	// limit they are closed.
	mayEnd := slices.Contains(segment.BranchTargets, -1) || !slices.ContainsFunc(segment.BranchTargets, isOpen)
	switch {
	case !mayEnd || slices.ContainsFunc(segment.Steps[k+1:], isReadBy):
		return 0
	case s.EachOf >= 0:
		i := slices.IndexFunc(segment.Steps, func(o flows.Step) bool { return o.Name == s.EachOf })
		return segment.Steps[i].MaxItems()
	}
	return s.MaxItems()
}

// Join completes the setup of the answerer after the models are loaded, when their tensors are known: it gives
// applications the tensors that their requests begin and end with, and binds the steps before and behind models, the
// values that conditions read, and what decides the paths of requests. compile calls it.
func (f *applicationAnswerer) Join() error {
	c, s := f.core, &f.store.Apps
	s.core, s.graphs, s.workflows = c, flows.GraphTablesOf(c.Tables), flows.WorkflowTablesOf(c.Tables)
	if s.workflows != nil {
		s.control, _ = c.Control.(*flows.WorkflowControl)
	}

	// Plans of other kinds.
	if s.graphs == nil && s.control == nil {
		s.workflows = nil
		c.ServedModels.JoinTensors(c.Tables, c.Services)
		return nil
	}

	// Bind the steps before and behind the models, then the values of conditions.
	s.serviceSteps = make([]boundSteps, len(c.Services))
	modules := s.listModules()
	for _, bind := range []func(m *moduleBinding) error{s.bindPostStep, s.bindPreSteps, s.bindValues} {
		for i := range modules {
			m := &modules[i]
			if err := bind(m); err != nil {
				return &document.Error{Path: m.path, Found: fmt.Sprintf("application %s, module %s: %v", s.apps[m.app].name, m.declaration.Name, err)}
			}
		}
	}

	// Bind the answers.
	for a := range s.apps {
		if err := s.bindAnswer(a); err != nil {
			return &document.Error{Path: fmt.Sprintf("flow.applications[%d]", a), Found: fmt.Sprintf("application %s: %v", s.apps[a].name, err)}
		}
	}
	// With an engine without models, requests follow the plan's chances.
	s.drawsPaths = c.Options.HasRandomOutputs()
	switch {
	case s.graphs != nil && c.Options.Engine == "replay":
		s.outcomeDraws = seeded.New(c.Options.Seed, "executor/ways")
	case s.workflows != nil && s.drawsPaths:
		s.control.SetChoices(flows.NewRandomChoices(s.workflows, c.Tables, c.Options.Seed))
	case s.workflows != nil:
		s.control.SetChoices(flows.NewConditionChoices(s.workflows, f.conditionValue, f.failCondition))
	}
	return nil
}

// bindPostStep binds the step behind the models of module m, which converts their outputs, and sets the models' outputs
// to those of the step. Modules that share a model share its step. If the module has several models (its routes), they
// must take and give the same tensors.
func (s *applications) bindPostStep(m *moduleBinding) error {
	app := &s.apps[m.app]
	for _, service := range m.services {
		if !slices.Contains(app.services, service) {
			app.services = append(app.services, service)
		}
		model, bound := s.core.Services[service], &s.serviceSteps[service]
		modelOutputs := model.Outputs
		if bound.modelOutputs != nil {
			modelOutputs = bound.modelOutputs
		}
		stepOutputs, postStep, err := steps.BindPost(m.declaration.Post, &steps.Tensors{ModelInputs: turn.SpecsOf(model.Inputs), ModelOutputs: turn.SpecsOf(modelOutputs)})
		if err == nil && postStep != nil && bound.postStep == nil {
			bound.postStep, bound.modelOutputs = postStep, model.Outputs
			model.Outputs, err = turn.TensorsOf(stepOutputs)
		}
		if err != nil {
			return err
		}

		// All routes must have the same tensors.
		if first := s.core.Services[m.services[0]]; !sameShapes(first.Inputs, model.Inputs) || !sameShapes(first.Outputs, model.Outputs) {
			return fmt.Errorf("its routes %s and %s take or give other tensors", first.Name, model.Name)
		}
	}
	return nil
}

// sameShapes returns true if tensors can replace others, whatever their names.
func sameShapes(a, b []turn.Tensor) bool {
	return slices.EqualFunc(a, b, func(a, b turn.Tensor) bool { return a.Datatype == b.Datatype && slices.Equal(a.Shape, b.Shape) })
}

// bindPreSteps binds the step before each model of module m, which makes the model's inputs from the tensors that the
// module reads, and returns an error if they do not fit. For the module where requests enter it also sets the inputs and
// parameters that clients send.
func (s *applications) bindPreSteps(m *moduleBinding) error {
	application, pre := s.core.ServedModels.Models[m.app], m.declaration.Pre
	for _, service := range m.services {
		inputs := s.core.Services[service].Inputs
		t := steps.Tensors{ModelInputs: turn.SpecsOf(inputs)}

		// The first module determines what clients send.
		if m.isEntry {
			clientInputs, err := steps.ClientSpecs(pre, &t)
			if err == nil {
				application.Inputs, err = turn.TensorsOf(clientInputs)
			}
			if err != nil {
				return err
			}
			if m.step != nil {
				application.Inputs[0].Text = steps.SendsText(pre) || pre == "" && inputs[0].Text
				application.Inputs = withItems(application.Inputs, m.step.MaxItems())
			}
			application.Parameters = s.apps[m.app].parameters
		}

		// What the module reads.
		t.ClientInputs = turn.SpecsOf(application.Inputs)
		takesText := inputs[0].Text
		// texts says that all that the module reads is text, someText that the model or one of these is text.
		texts, someText := len(m.readServices) > 0 || application.Inputs[0].Text, takesText
		for _, source := range m.readServices {
			outputs := s.core.Services[source].Outputs
			texts, someText = texts && len(outputs) == 1 && outputs[0].Text, someText || outputs[0].Text
			t.ModuleInputs = append(t.ModuleInputs, turn.SpecsOf(outputs)...)
		}
		reads := t.ModuleInputs
		if len(m.readServices) == 0 {
			reads = t.ClientInputs
		}
		// Check that the tensors fit the model, or that a step makes them fit. A text may have any length. With random
		// outputs tensors need not fit.
		asText := texts && len(reads) == 1 && takesText || someText && s.core.Options.HasRandomOutputs()
		switch {
		case m.outcomes > int(steps.PathCount(m.declaration.Post)) && !s.computesOutcomes && !s.core.Options.HasRandomOutputs():
			return fmt.Errorf("it has %d ways on, and no step behind its model that tells them apart", m.outcomes)
		case pre == "" && m.fitsInput != nil && !asText && !slices.EqualFunc(reads, t.ModelInputs, m.fitsInput):
			return fmt.Errorf("it reads %v and its model takes %v: name a step before it (%v)", reads, t.ModelInputs, formats.PreSteps)
		}

		// Bind the step.
		if err := s.readPassages(m.declaration, &t); err != nil {
			return err
		}
		if err := s.bindPreStep(service, m, &t); err != nil {
			return err
		}
	}
	return nil
}

// bindPreStep binds the step before a service's model for one application, or for one generation step of a
// workflow, if it is not yet bound. Two modules that share it must agree on its name and on what they read.
func (s *applications) bindPreStep(service int32, m *moduleBinding, t *steps.Tensors) (err error) {
	bound, index, passages := &s.serviceSteps[service], int32(m.app), formats.Passages{}
	if m.step != nil {
		index = s.preStepIndex(index, m.step.GenerationStep)
	}
	for len(bound.preSteps) <= int(index) {
		bound.preSteps = append(bound.preSteps, preStep{})
	}
	preStep, declaration := &bound.preSteps[index], m.declaration
	if declaration.Passages != nil {
		passages = *declaration.Passages
	}
	switch {
	case bound.isBound && bound.postName != declaration.Post || preStep.isBound && (preStep.name != declaration.Pre || preStep.passages != passages || declaration.Pre != "" && len(preStep.readBytes) != len(t.ModuleInputs)):
		return fmt.Errorf("another module of the model %s has other steps or passages, or reads otherwise", s.core.Services[service].Name)
	case preStep.isBound:
		return nil
	}

	// Bind it.
	bound.isBound, bound.postName, preStep.isBound, preStep.name, preStep.passages = true, declaration.Post, true, declaration.Pre, passages
	for i := range t.ModuleInputs {
		preStep.readBytes = append(preStep.readBytes, int(t.ModuleInputs[i].BytesAt(1)))
	}
	preStep.run, err = steps.BindPre(declaration.Pre, t)
	return err
}

// preStepIndex returns the index of a step before a model among those of its service: one for each application,
// and behind them one for each generation step. ask is the generation step's number plus one, or 0 for none.
func (s *applications) preStepIndex(app, ask int32) int32 {
	if ask > 0 {
		return int32(len(s.apps)) + ask - 1
	}
	return app
}

// preStepAt returns the step before a service's model at an index that preStepIndex gave. If it has none, it
// returns nil.
func (s *applications) preStepAt(service, index int32) *preStep {
	if s.serviceSteps == nil || int(index) >= len(s.serviceSteps[service].preSteps) || s.serviceSteps[service].preSteps[index].run == nil {
		return nil
	}
	return &s.serviceSteps[service].preSteps[index]
}

// readPassages sets in t the passages (texts with vectors) in which module m looks up the nearest ones, and how many it
// takes. The file is read once for all modules, from the folder of models. A module that looks up none leaves t as it
// is. The engine replay reads no file and has no passages.
func (s *applications) readPassages(m *formats.Module, t *steps.Tensors) error {
	if m.Passages == nil {
		return nil
	}
	t.PassageCount = m.Passages.Nearest
	if s.core.Options.Engine == "replay" {
		t.Passages = steps.NoPassages()
		return nil
	}

	// Read the file, unless another module has.
	path := filepath.Join(s.core.Options.ModelsDir, m.Passages.File)
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

// withItems returns the tensors of a step that has up to `items` items (boxes of an image, say) for each sample: with a
// dimension of that size after the batch, and bytes to match. With one item or fewer it returns the list itself;
// otherwise the caller's list is not changed.
func withItems(list []turn.Tensor, items int32) []turn.Tensor {
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

// outcomeOf returns the branch that a task's request takes after the task: the result of the step behind its model or,
// for a graph under the engine replay, one that is drawn by the plan's chances. app is the index of the request's
// application.
func (u *TaskStore) outcomeOf(task, app int32) int32 {
	s := &u.Apps
	if s.outcomeDraws == nil {
		return u.facts[task].outcome
	}
	for i := range s.graphs.Apps[app].Nodes {
		n := &s.graphs.Apps[app].Nodes[i]
		if n.Service == u.Tasks.List[task].Service && len(n.OutcomeChances) > 0 {
			return n.OutcomeAt(s.outcomeDraws.Float64())
		}
	}
	return 0
}

// runPostStep runs the step behind a model (it turns the model's outputs into the module's) for the k-th task of a
// batch. It reads the task's part of the batch's outputs, writes facts.outputs, which has the tensors `outputs` one
// after the other, and sets facts.outcome to the step's result. If the service has no such step, it returns false.
func (s *applications) runPostStep(service int32, facts *taskFacts, k int, out turn.BatchOutputs, outputs []turn.Tensor) bool {
	if s.serviceSteps == nil || s.serviceSteps[service].postStep == nil {
		return false
	}
	bound := &s.serviceSteps[service]
	s.modelOutputs, s.stepOutputs = s.modelOutputs[:0], s.stepOutputs[:0]
	for i := range bound.modelOutputs {
		n := bound.modelOutputs[i].Bytes
		s.modelOutputs = append(s.modelOutputs, out.Output(i)[k*n:][:n])
	}
	// Divide the task's memory among the outputs of the step.
	rest := facts.outputs
	for i := range outputs {
		s.stepOutputs = append(s.stepOutputs, rest[:outputs[i].Bytes:outputs[i].Bytes])
		rest = rest[outputs[i].Bytes:]
	}
	facts.outcome = bound.postStep(s.stepOutputs, s.modelOutputs)
	return true
}
