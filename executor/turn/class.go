package turn

import (
	"fmt"
	"slices"

	"inferplan/executor/oip"
	"inferplan/formats"
	"inferplan/policy"
)

// servedModels are the models that clients may ask for. They are complete before the first request.
type offer struct {
	Models  []*Model
	Named   *formats.Classes
	sizes   map[string]*sizes // by name whose requests run in length buckets
	Catalog *oip.Catalog
}

// modelsOf returns a model for each entry of the plan. Each SLO class of a model is one, with its own queue, deadline
// and statistics.
func modelsOf(t *policy.Tables, own *Metrics, family bool) (s offer) {
	var keys []formats.ModelClass
	for i := range t.Models {
		m := &t.Models[i]
		keys = append(keys, m.Key())
		s.Models = append(s.Models, &Model{
			Index: int32(i), Name: m.Name, Class: m.Class, Label: m.Key().String(), Slo: m.SLO,
			Stats: newModelStats(m.Name), metrics: own.model(m.Key()), family: family,
		})
	}
	s.Named = formats.NewClasses(keys)
	return s
}

// servicesOf returns a model for each service: what tasks ask for has tensors and statistics of its own.
func servicesOf(t *policy.Tables, own *Metrics) (list []*Model) {
	for i := range t.Services {
		name := t.Services[i].Name
		list = append(list, &Model{Index: int32(i), Name: name, Label: name, Stats: newModelStats(name), metrics: own.model(formats.ModelClass{Model: name})})
	}
	return list
}

// JoinTensors gives models the inputs of their first and the outputs of their last pipeline.
func (s *offer) Join(t *policy.Tables, services []*Model) {
	for _, m := range s.Models {
		first, last := t.PipelinesOf(m.Index)
		m.Inputs, m.Outputs = services[t.Pipelines[first].Service].Inputs, services[t.Pipelines[last-1].Service].Outputs
	}
}

// FindModel returns the model and class that a request asks for. The server has checked both against an earlier catalog,
// but another plan may be in force by now.
func (s *offer) Find(req *oip.Request) (*Model, *oip.Error) {
	if i, ok := s.Named.Find(req.Model, req.Class); ok {
		return s.Models[i], nil
	}
	if s.Named.Of(req.Model) == nil {
		return nil, oip.NotFound("model %q is not in the plan in force", req.Model)
	}
	return nil, oip.Invalid("class", "model %q has no class %q in the plan in force", req.Model, req.Class)
}

// ClassesOf returns the classes of a model, or of all buckets of a name.
func (s *offer) ClassesOf(name string) []*Model {
	var out []*Model
	if of := s.sizes[name]; of != nil {
		for i := range of.buckets {
			out = append(out, s.ClassesOf(of.buckets[i].model)...)
		}
		return out
	}
	for _, m := range s.Models {
		if m.Name == name {
			out = append(out, m)
		}
	}
	return out
}

// checkSameTensors returns an error if the classes of a model differ in their tensors: clients see one model.
func (s *offer) sameTensors(m *Model) error {
	first := s.ClassesOf(m.Name)[0]
	same := func(a, b Tensor) bool {
		return a.Name == b.Name && a.Datatype == b.Datatype && slices.Equal(a.Shape, b.Shape)
	}
	if !slices.EqualFunc(m.Inputs, first.Inputs, same) || !slices.EqualFunc(m.Outputs, first.Outputs, same) {
		return fmt.Errorf("%w: %s and %s differ in their inputs or outputs", ErrPlan, first.Label, m.Label)
	}
	return nil
}

// AddStatistics adds the statistics of a class to the row of its model.
func AddStatistics(rows []oip.ModelStatistics, s oip.ModelStatistics) []oip.ModelStatistics {
	i := slices.IndexFunc(rows, func(r oip.ModelStatistics) bool { return r.Name == s.Name })
	if i < 0 {
		return append(rows, s)
	}
	rows[i].Merge(&s)
	return rows
}
