package executor

import (
	"fmt"
	"slices"

	"inferplan/executor/oip"
	"inferplan/formats"
	"inferplan/policy"
)

// offer is what clients may ask for. It is complete before the first request.
type offer struct {
	models  []*model
	named   *formats.Classes
	sizes   map[string]*sizes // names whose requests run in length buckets
	catalog *oip.Catalog
}

// modelsOf makes a model of each entry of the plan: each SLO class of a model
// is one, with its own queue, deadline and figures.
func modelsOf(t *policy.Tables, own *metrics, family bool) (s offer) {
	var keys []formats.ModelClass
	for i := range t.Models {
		m := &t.Models[i]
		keys = append(keys, m.Key())
		s.models = append(s.models, &model{
			index: int32(i), name: m.Name, class: m.Class, label: m.Key().String(), slo: m.SLO,
			stats: newModelStats(m.Name), metrics: own.model(m.Key()), family: family,
		})
	}
	s.named = formats.NewClasses(keys)
	return s
}

// servicesOf makes a model of each service: what tasks ask for has tensors and
// figures of its own.
func servicesOf(t *policy.Tables, own *metrics) (list []*model) {
	for i := range t.Services {
		name := t.Services[i].Name
		list = append(list, &model{index: int32(i), name: name, label: name, stats: newModelStats(name), metrics: own.model(formats.ModelClass{Model: name})})
	}
	return list
}

// join gives models the tensors of what their requests begin and end with: the
// first and the last of their pipelines.
func (s *offer) join(t *policy.Tables, services []*model) {
	for _, m := range s.models {
		first, last := t.PipelinesOf(m.index)
		m.inputs, m.outputs = services[t.Pipelines[first].Service].inputs, services[t.Pipelines[last-1].Service].outputs
	}
}

// find is the model and class that a request asks for. The server has checked
// both against the catalog of a moment ago; the plan may be another by now.
func (s *offer) find(req *oip.Request) (*model, *oip.Error) {
	if i, ok := s.named.Find(req.Model, req.Class); ok {
		return s.models[i], nil
	}
	if s.named.Of(req.Model) == nil {
		return nil, oip.NotFound("model %q is not in the plan in force", req.Model)
	}
	return nil, oip.Invalid("class", "model %q has no class %q in the plan in force", req.Model, req.Class)
}

// classesOf are the classes of a model, or of all buckets of a name.
func (s *offer) classesOf(name string) []*model {
	var out []*model
	if of := s.sizes[name]; of != nil {
		for i := range of.buckets {
			out = append(out, s.classesOf(of.buckets[i].model)...)
		}
		return out
	}
	for _, m := range s.models {
		if m.name == name {
			out = append(out, m)
		}
	}
	return out
}

// sameTensors checks that the classes of a model take and give the same
// tensors: clients see one model.
func (s *offer) sameTensors(m *model) error {
	first := s.classesOf(m.name)[0]
	same := func(a, b tensor) bool {
		return a.name == b.name && a.datatype == b.datatype && slices.Equal(a.shape, b.shape)
	}
	if !slices.EqualFunc(m.inputs, first.inputs, same) || !slices.EqualFunc(m.outputs, first.outputs, same) {
		return fmt.Errorf("%w: %s and %s differ in their inputs or outputs", ErrPlan, first.label, m.label)
	}
	return nil
}

// addStatistics adds those of a class to the row of its model.
func addStatistics(rows []oip.ModelStatistics, s oip.ModelStatistics) []oip.ModelStatistics {
	i := slices.IndexFunc(rows, func(r oip.ModelStatistics) bool { return r.Name == s.Name })
	if i < 0 {
		return append(rows, s)
	}
	rows[i].Merge(&s)
	return rows
}
