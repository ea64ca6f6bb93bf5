package tasks

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"inferplan/engine"
	"inferplan/executor/oip"
	"inferplan/executor/steps"
	"inferplan/executor/turn"
	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/seeded"
	flows "inferplan/policy/flow"
)

// flowSteps are what is done before and behind the models of a plan's modules
// (package steps), and what its applications answer. The zero value does nothing.
type flowSteps struct {
	own      *flows.Tables
	apps     []flowApp                  // by model
	Flows    *segmented                 // of workflows; nil: of graphs
	of       []serviceStep              // by service
	draws    *rand.Rand                 // of ways, where an engine without models tells none
	passages map[string]*steps.Passages // by file
	// Room for a sample's tensors.
	client, read, made, dst [][]byte
}

// serviceStep are the steps of a service. Modules that share a model share the step
// behind it. The step before it is the application's own.
type serviceStep struct {
	bound  bool
	post   string
	behind steps.Post
	gives  []turn.Tensor // of its model, where a step is behind it
	pres   []preStep
}

// preStep is the step before a service's model in an application.
type preStep struct {
	bound    bool
	Pre      string
	passages formats.Passages
	before   steps.Pre // nil: there is none
	Reads    []int     // bytes of the tensors that it reads
}

// place returns where the step before a model stands among those of its service: one for each
// application, and one for each module that asks a language model, by its number plus one.
func (s *flowSteps) place(app, ask int32) int32 {
	if ask > 0 && s.Flows != nil {
		return int32(len(s.Flows.Apps)) + ask - 1
	}
	return app
}

// PreOf is the step before a service's model in an application; nil: there is none.
func (s *flowSteps) PreOf(service, app int32) *preStep {
	if s.of == nil || int(app) >= len(s.of[service].pres) || s.of[service].pres[app].before == nil {
		return nil
	}
	return &s.of[service].pres[app]
}

// flowApp is an application as clients see it.
type flowApp struct {
	services []int32
	ends     []flowEnd
}

// flowEnd is a module behind which there is nothing: what it gives is part of the
// answer, from the output first on.
type flowEnd struct {
	service int32
	module  string
	first   int
}

// ensemble is the part of the answer of applications that clients see: what they
// send and are given, and what is done between models.
type ensemble struct {
	turn.Plain
	c       *turn.Core
	made    *taskTable
	Modules moduleMetrics
}

// Join gives applications the tensors of what their requests begin and end with,
// and binds the steps of their modules.
func (f *ensemble) Join() error {
	c, s := f.c, &f.made.Steps
	s.own = flows.Of(c.Tables)
	if own := flows.WorkflowsOf(c.Tables); own != nil && len(own.Apps) > 0 {
		return f.joinSegments(own)
	}
	if s.own == nil {
		c.Served.Join(c.Tables, c.Services)
		return nil
	}
	s.of = make([]serviceStep, len(c.Services))
	if c.Options.Engine == "replay" {
		s.draws = seeded.New(c.Options.Seed, "executor/ways")
	}
	asked := formats.FlowOf(c.Plan).Applications
	for a := range s.own.Apps {
		app := flowApp{}
		for _, i := range s.own.Apps[a].Order {
			if err := f.bind(a, i, &asked[a].Modules[i]); err != nil {
				return atModule(fmt.Sprintf("flow.applications[%d].modules[%d]", a, i), asked[a].Model, asked[a].Modules[i].Name, err)
			}
			if own := s.own.Apps[a].Nodes[i].Service; !slices.Contains(app.services, own) {
				app.services = append(app.services, own)
			}
		}
		if err := app.answers(&s.own.Apps[a], c.Services, c.Served.Models[a]); err != nil {
			return atModule(fmt.Sprintf("flow.applications[%d]", a), asked[a].Model, "", err)
		}
		s.apps = append(s.apps, app)
	}
	return nil
}

// atModule says at which module of which application err is; module is empty for the
// application's answer.
func atModule(path, application, module string, err error) error {
	if module != "" {
		application += ", module " + module
	}
	return &document.Error{Path: path, Found: fmt.Sprintf("application %s: %v", application, err)}
}

// bind binds the steps of a module. Those that it reads are bound already.
func (f *ensemble) bind(a int, node int32, m *formats.Module) (err error) {
	c, app := f.c, &f.made.Steps.own.Apps[a]
	n := &app.Nodes[node]
	service, to := c.Services[n.Service], &f.made.Steps.of[n.Service]
	gives := service.Outputs
	if to.gives != nil {
		gives = to.gives
	}
	t := steps.Tensors{Takes: turn.SpecsOf(service.Inputs), Gives: turn.SpecsOf(gives)}
	served := c.Served.Models[a]
	if node == 0 {
		sent, err := steps.Sent(m.Pre, &t)
		if err == nil {
			served.Inputs, err = turn.TensorsOf(sent)
		}
		if err != nil {
			return err
		}
	}
	t.Client = turn.SpecsOf(served.Inputs)
	for _, e := range n.In {
		t.Reads = append(t.Reads, turn.SpecsOf(c.Services[app.Nodes[e.From].Service].Outputs)...)
	}
	switch {
	case len(n.Ways) > int(steps.Ways(m.Post)) && c.Options.Judge == nil && !c.Options.MadeUp():
		return fmt.Errorf("it has %d ways on, and no step behind its model that tells them apart", len(n.Ways))
	case m.Pre == "" && node > 0 && len(app.Nodes[node].In) == 1 && !slices.EqualFunc(t.Reads, t.Takes, sameSample):
		return fmt.Errorf("it reads %v and its model takes %v: name a step before it (%v)", t.Reads, t.Takes, formats.PreSteps)
	}
	if err = f.readPassages(m, &t); err != nil {
		return err
	}
	if err = f.before(n.Service, a, m, &t); err != nil {
		return err
	}
	return f.behind(n.Service, m, &t)
}

// before binds the step before a service's model in an application, once.
func (f *ensemble) before(service int32, app int, m *formats.Module, t *steps.Tensors) (err error) {
	to := &f.made.Steps.of[service]
	for len(to.pres) <= app {
		to.pres = append(to.pres, preStep{})
	}
	own, passages := &to.pres[app], formats.Passages{}
	if m.Passages != nil {
		passages = *m.Passages
	}
	switch {
	case to.bound && to.post != m.Post || own.bound && (own.Pre != m.Pre || own.passages != passages || m.Pre != "" && len(own.Reads) != len(t.Reads)):
		return fmt.Errorf("another module of the model %s has other steps or passages, or reads otherwise", f.c.Services[service].Name)
	case own.bound:
		return nil
	}
	to.bound, to.post, own.bound, own.Pre, own.passages = true, m.Post, true, m.Pre, passages
	for i := range t.Reads {
		own.Reads = append(own.Reads, int(t.Reads[i].BytesAt(1)))
	}
	own.before, err = steps.BindPre(m.Pre, t)
	return err
}

// behind binds the step behind a service's model, once.
func (f *ensemble) behind(service int32, m *formats.Module, t *steps.Tensors) error {
	own, to := f.c.Services[service], &f.made.Steps.of[service]
	made, behind, err := steps.BindPost(m.Post, t)
	if err != nil || behind == nil || to.behind != nil {
		return err
	}
	to.behind, to.gives = behind, own.Outputs
	own.Outputs, err = turn.TensorsOf(made)
	return err
}

// sameSample tells whether a sample of a tensor can stand in another's place.
func sameSample(a, b engine.Spec) bool { return a.Type == b.Type && a.BytesAt(1) == b.BytesAt(1) }

// answers finds what an application answers: what the modules give behind which
// there is nothing. With several of them the names begin with the module's.
func (p *flowApp) answers(app *flows.App, services []*turn.Model, m *turn.Model) error {
	for i := range app.Nodes {
		if n := &app.Nodes[i]; len(n.Out) == 0 {
			p.ends = append(p.ends, flowEnd{service: n.Service, module: n.Name})
		}
	}
	if len(p.ends) > 64 {
		return fmt.Errorf("%d modules at its ends, expected at most 64", len(p.ends))
	}
	m.Outputs = nil
	for i := range p.ends {
		e := &p.ends[i]
		e.first = len(m.Outputs)
		for _, o := range services[e.service].Outputs {
			if len(p.ends) > 1 {
				o.Name = e.module + "." + o.Name
			}
			m.Outputs = append(m.Outputs, o)
		}
	}
	return nil
}

// way is the way on from a task: what the step behind its model told, or drawn
// where an engine without models has no say.
func (s *flowSteps) way(ta *flowTask, app int32) int32 {
	if s.draws == nil {
		return ta.way
	}
	for i := range s.own.Apps[app].Nodes {
		n := &s.own.Apps[app].Nodes[i]
		if n.Service != ta.Service || len(n.Ways) == 0 {
			continue
		}
		return n.Way(s.draws.Float64())
	}
	return 0
}

// then runs the step behind a task's model; false: there is none.
func (s *flowSteps) then(ta *flowTask, k int, out turn.Outputs, outs []turn.Tensor) bool {
	if s.of == nil || s.of[ta.Service].behind == nil {
		return false
	}
	own := &s.of[ta.Service]
	s.made, s.dst = s.made[:0], s.dst[:0]
	for i := range own.gives {
		n := own.gives[i].Bytes
		s.made = append(s.made, out.Output(i)[k*n:][:n])
	}
	to := ta.Made
	for i := range outs {
		s.dst = append(s.dst, to[:outs[i].Bytes:outs[i].Bytes])
		to = to[outs[i].Bytes:]
	}
	ta.way = own.behind(s.dst, s.made)
	return true
}

// Fill runs the step before a task's model.
func (f *ensemble) Fill(task int32, i int, dst []byte) bool {
	s, ta := &f.made.Steps, &f.made.List[task]
	if s.of == nil {
		return false
	}
	q := f.c.Ledger.At(ta.Request)
	if q == nil || q.Job.Answered {
		clear(dst)
		return true
	}
	own := s.PreOf(ta.Service, s.place(q.Job.Model.Index, ta.Ask))
	if own == nil {
		return false
	}
	s.client, s.read = s.client[:0], s.read[:0]
	for k := range q.Job.Inputs {
		s.client = append(s.client, q.Job.Input(int(q.Sample), k))
	}
	for _, in := range ta.Inputs {
		if in < 0 {
			continue
		}
		for k := range f.c.Services[f.made.List[in].Service].Outputs {
			s.read = append(s.read, f.made.output(in, k))
		}
	}
	if len(s.read) != len(own.Reads) || slices.ContainsFunc(s.read, func(b []byte) bool { return b == nil }) {
		f.c.Ledger.Fail(q.Job, fmt.Errorf("module %s reads %d tensors, of which some are not there", f.c.Services[ta.Service].Label, len(s.read)))
		clear(dst)
		return true
	}
	own.before(i, ta.item, dst, s.client, s.read)
	return true
}

// Needs are the services of an application.
func (f *ensemble) Needs(model int32) []int32 {
	s := &f.made.Steps
	switch {
	case s.Flows != nil:
		return s.Flows.Apps[model].services
	case s.apps == nil:
		return nil
	}
	return s.apps[model].services
}

// answer takes what a task gave as part of the answer, if nothing is behind it.
func (f *ensemble) answer(t int32, r *flowRequest) {
	ta := &f.made.List[t]
	q := f.c.Ledger.At(ta.Request)
	if f.made.Steps.apps == nil || q.Job.Answered {
		return
	}
	for i, e := range f.made.Steps.apps[q.Job.Model.Index].ends {
		if e.service != ta.Service {
			continue
		}
		for k := range f.c.Services[e.service].Outputs {
			f.lay(q, e.first+k, f.made.output(t, k))
		}
		r.ends |= 1 << i
	}
}

// lay writes one of a request's outputs.
func (f *ensemble) lay(q *turn.Request, i int, data []byte) {
	size := q.Job.Model.Outputs[i].Bytes
	to := q.Job.Outputs[i][int(q.Sample)*size:][:size]
	if copy(to, data) < size {
		clear(to[len(data):])
	}
}

// lack notes that a request has none of an output: zeros where other samples of its
// client's request have one.
func (f *ensemble) lack(q *turn.Request, i int) {
	f.lay(q, i, nil)
	q.Job.Without[i]++
}

// complement completes an answer: parts that the request did not come to are left
// out, and named in the response.
func (f *ensemble) complement(slot int32, q *turn.Request, r *flowRequest) {
	switch {
	case q.Job.Program != nil: // it has had its answers
		return
	case f.made.Steps.Flows != nil:
		f.conclude(slot, q)
		return
	}
	if f.made.Steps.apps == nil {
		for i := range q.Job.Model.Outputs {
			f.lay(q, i, f.made.output(r.last, i))
		}
		return
	}
	for i, e := range f.made.Steps.apps[q.Job.Model.Index].ends {
		if r.ends>>i&1 == 1 {
			continue
		}
		for k := range f.c.Services[e.service].Outputs {
			f.lack(q, e.first+k)
		}
		told(q).passedOver.add(q, e.module)
	}
}

// endsOf is what is told of a job's answer, beside its tensors: which modules at the
// end its samples did not come to, which gave the answer, and how many items they
// gave.
type endsOf struct{ passedOver, answeredBy, items words }

// words are names, with several samples as SAMPLE:NAME.
type words []byte

// told is what is told of a request's job.
func told(q *turn.Request) *endsOf {
	side, _ := q.Job.Side.(*endsOf)
	if side == nil {
		side = &endsOf{}
		q.Job.Side = side
	}
	return side
}

func (p *words) add(q *turn.Request, name string) {
	if len(*p) > 0 {
		*p = append(*p, ',')
	}
	if q.Job.Samples > 1 {
		*p = fmt.Appendf(*p, "%d:", q.Sample)
	}
	*p = append(*p, name...)
}

// Parameters name the modules whose part of the answer is left out, because the way
// of the request did not lead there, the one that gave the answer where several may,
// and how many items there are.
func (f *ensemble) Parameters(j *turn.Job) map[string]oip.Param {
	side, ok := j.Side.(*endsOf)
	if !ok {
		return nil
	}
	out := map[string]oip.Param{}
	for _, p := range []struct {
		name string
		text words
	}{{"passed_over", side.passedOver}, {"answered_by", side.answeredBy}, {"items", side.items}} {
		if len(p.text) > 0 {
			out[p.name] = string(p.text)
		}
	}
	return out
}
