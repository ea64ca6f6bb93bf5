package turn

import (
	"fmt"
	"slices"

	"inferplan/executor/httplimit"
	"inferplan/executor/oip"
	"inferplan/formats"
	"inferplan/policy"
)

// servedModels are the models that clients may ask for. They are complete before the first request.
type servedModels struct {
	Models     []*Model
	ClassNames *formats.Classes
	bucketSets map[string]*bucketSet // by name whose requests run in length buckets
	Catalog    *oip.Catalog
}

// modelsOf returns a served model for each entry of t.Models, in that order. Each SLO class of a model (requests with a
// deadline of their own) is an entry, with its own queue, deadline and statistics. family is true for gear plans, whose
// models clients see as one.
func modelsOf(t *policy.Tables, metrics *Metrics, family bool) (served servedModels) {
	var keys []formats.ModelClass
	for i := range t.Models {
		m := &t.Models[i]
		keys = append(keys, m.Key())
		served.Models = append(served.Models, &Model{
			Index: int32(i), Name: m.Name, Class: m.Class, Label: m.Key().String(), Slo: m.SLO,
			Stats: newModelStats(m.Name), metrics: metrics.newModelMetrics(m.Key()), inFamily: family,
		})
	}
	served.ClassNames = formats.NewClasses(keys)
	return served
}

// servicesOf returns a model for each service of a plan in which requests have several tasks. A service is what a task
// asks for, such as one module of an application; it has tensors and statistics of its own.
func servicesOf(t *policy.Tables, metrics *Metrics) (services []*Model) {
	for i := range t.Services {
		name := t.Services[i].Name
		services = append(services, &Model{Index: int32(i), Name: name, Label: name, Stats: newModelStats(name), metrics: metrics.newModelMetrics(formats.ModelClass{Model: name})})
	}
	return services
}

// JoinTensors gives models that consist of several services, such as a cascade, the inputs of their first and the
// outputs of their last pipeline, which clients see.
func (s *servedModels) JoinTensors(t *policy.Tables, services []*Model) {
	for _, m := range s.Models {
		first, last := t.PipelinesOf(m.Index)
		m.Inputs, m.Outputs = services[t.Pipelines[first].Service].Inputs, services[t.Pipelines[last-1].Service].Outputs
	}
}

// FindModel returns the model and class that a request asks for. The server has checked both against an earlier catalog,
// but another plan may be in force by now.
func (s *servedModels) FindModel(req *oip.Request) (*Model, *oip.Error) {
	if i, ok := s.ClassNames.Find(req.Model, req.Class); ok {
		return s.Models[i], nil
	}
	if s.ClassNames.ClassesOf(req.Model) == nil {
		return nil, httplimit.NotFound("model %q is not in the plan in force", req.Model)
	}
	return nil, httplimit.Invalid("class", "model %q has no class %q in the plan in force", req.Model, req.Class)
}

// ClassesOf returns the served models of a name that clients use: one for each SLO class. If the name stands for length
// buckets (models compiled for one input length each), it returns the classes of all of them.
func (s *servedModels) ClassesOf(name string) []*Model {
	var out []*Model
	if set := s.bucketSets[name]; set != nil {
		for i := range set.buckets {
			out = append(out, s.ClassesOf(set.buckets[i].model)...)
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

// checkSameTensors returns an error if the inputs or outputs of m differ from those of the first class of its name:
// clients see the SLO classes as one model.
func (s *servedModels) checkSameTensors(m *Model) error {
	first := s.ClassesOf(m.Name)[0]
	isSame := func(a, b Tensor) bool {
		return a.Name == b.Name && a.Datatype == b.Datatype && slices.Equal(a.Shape, b.Shape)
	}
	if !slices.EqualFunc(m.Inputs, first.Inputs, isSame) || !slices.EqualFunc(m.Outputs, first.Outputs, isSame) {
		return fmt.Errorf("%w: %s and %s differ in their inputs or outputs", ErrPlan, first.Label, m.Label)
	}
	return nil
}

// AddStatistics adds the statistics of one class to the row of its model, or a new row if the model has none.
// Clients see one row per model.
func AddStatistics(rows []oip.ModelStatistics, s oip.ModelStatistics) []oip.ModelStatistics {
	i := slices.IndexFunc(rows, func(r oip.ModelStatistics) bool { return r.Name == s.Name })
	if i < 0 {
		return append(rows, s)
	}
	rows[i].Merge(&s)
	return rows
}
