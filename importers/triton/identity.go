package triton

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/triton"
	"inferplan/formats/triton/configpb"
)

// identity says which part of which model a configuration is.
type identity struct {
	model    formats.ModelClass
	pipeline string // names the pipeline of a part; empty if the model is whole
	blocks   [2]int // of a part
}

// identities returns which part of which model each configuration of a repository is, by name.
func (r *reader) identities(models []triton.Model) (map[string]identity, error) {
	byName := map[string]identity{}
	for _, m := range models {
		id, err := statedIdentity(&m)
		if err != nil {
			return nil, err
		}
		byName[m.Config.Name] = id
	}
	for _, m := range models {
		if m.Config.GetEnsembleScheduling() == nil {
			continue
		}
		if err := r.readEnsemble(&m, models, byName); err != nil {
			return nil, err
		}
	}
	return byName, nil
}

// statedIdentity returns what the parameters of a configuration say that it is. Without any it is the whole model of
// its name.
func statedIdentity(m *triton.Model) (identity, error) {
	value := func(key string) string { return m.Config.Parameters[key].GetStringValue() }
	id := identity{model: formats.ModelClass{Model: m.Config.Name}}
	if name := value(triton.ModelParameter); name != "" {
		id.model = formats.ModelClass{Model: name, Class: value(triton.ClassParameter)}
	}
	text := value(triton.BlocksParameter)
	if text == "" {
		return id, nil
	}
	first, end, _ := strings.Cut(text, "-")
	var err1, err2 error
	id.blocks[0], err1 = strconv.Atoi(first)
	id.blocks[1], err2 = strconv.Atoi(end)
	id.pipeline = value(triton.PipelineParameter)
	if err1 != nil || err2 != nil || id.blocks[0] < 0 || id.blocks[1] <= id.blocks[0] || id.pipeline == "" {
		return id, &document.Error{File: m.File, Path: "parameters." + triton.BlocksParameter, Found: document.Quote(text), Expected: "blocks such as 0-5, and " + triton.PipelineParameter}
	}
	return id, nil
}

// readEnsemble says of the steps of an ensemble which blocks of the ensemble's model they are, if that is a model of
// the profile: each step ends where the profile has a cut of the tensors that it puts out. An ensemble of another name
// is one of whole models. Steps that say themselves what they are stay so.
func (r *reader) readEnsemble(m *triton.Model, models []triton.Model, byName map[string]identity) error {
	profiled := r.profile.FindModel(m.Config.Name)
	steps := m.Config.GetEnsembleScheduling().Step
	for i, s := range steps {
		if !slices.ContainsFunc(models, func(o triton.Model) bool {
			return o.Config.Name == s.ModelName && o.Config.GetEnsembleScheduling() == nil
		}) {
			return &document.Error{File: m.File, Path: fmt.Sprintf("ensemble_scheduling.step[%d].model_name", i), Found: document.Quote(s.ModelName), Expected: "a model of the repository that is no ensemble"}
		}
	}
	if profiled == nil {
		if len(steps) > 0 && byName[steps[0].ModelName].pipeline == "" {
			r.note("the ensemble %s is no model of the profile: its steps are read as models of their own", m.Config.Name)
		}
		return nil
	}
	ordered, err := orderSteps(m)
	if err != nil {
		return err
	}
	nextBlock := 0
	for i, s := range ordered {
		id := byName[s.ModelName]
		if id.pipeline != "" && id.pipeline != m.Config.Name {
			if id.model.Model == m.Config.Name {
				continue // a part of an export
			}
			return &document.Error{File: m.File, Path: "ensemble_scheduling", Found: document.Quote(s.ModelName) + ", which is a step of " + id.pipeline + ", too", Expected: "steps of this ensemble alone"}
		}
		end := len(profiled.Blocks)
		if i < len(ordered)-1 {
			if end = cutAfter(profiled, s); end <= nextBlock {
				return &document.Error{File: m.File, Path: "ensemble_scheduling", Found: "the outputs " + strings.Join(outputsOf(s), ", ") + " of the step " + s.ModelName, Expected: "the tensors of a cut of " + m.Config.Name + " in the profile",
					Hint: "an ensemble of different models has a name of its own: name the models as in the profile"}
			}
		}
		byName[s.ModelName] = identity{formats.ModelClass{Model: m.Config.Name}, m.Config.Name, [2]int{nextBlock, end}}
		nextBlock = end
	}
	return nil
}

// orderSteps returns the steps of an ensemble in the order in which tensors pass through them: each takes all that it
// needs from the one before, and the first from the request.
func orderSteps(m *triton.Model) ([]*configpb.ModelEnsembling_Step, error) {
	steps := slices.Clone(m.Config.GetEnsembleScheduling().Step)
	available := map[string]bool{}
	for _, in := range m.Config.Input {
		available[in.Name] = true
	}
	var ordered []*configpb.ModelEnsembling_Step
	for len(steps) > 0 {
		i := slices.IndexFunc(steps, func(s *configpb.ModelEnsembling_Step) bool {
			for _, tensor := range s.InputMap {
				if !available[tensor] {
					return false
				}
			}
			return true
		})
		if i < 0 {
			return nil, &document.Error{File: m.File, Path: "ensemble_scheduling", Found: "steps that need tensors of several others", Expected: "steps in a row, each with the outputs of the one before",
				Hint: "an ensemble of different models has a name of its own: name the models as in the profile"}
		}
		clear(available)
		for _, tensor := range steps[i].OutputMap {
			available[tensor] = true
		}
		ordered, steps = append(ordered, steps[i]), slices.Delete(steps, i, i+1)
	}
	return ordered, nil
}

// cutAfter returns the number of blocks up to the cut of the tensors that a step puts out, or 0 if there is no such cut.
func cutAfter(m *formats.ProfileModel, s *configpb.ModelEnsembling_Step) int {
	outputs := outputsOf(s)
	for b := range m.Blocks {
		tensors := document.Map(m.Blocks[b].Cut, func(t *formats.TensorInfo) string { return t.Name })
		slices.Sort(tensors)
		if len(tensors) > 0 && slices.Equal(tensors, outputs) {
			return b + 1
		}
	}
	return 0
}

// outputsOf returns the names of the outputs of a step's model that the ensemble uses, sorted.
func outputsOf(s *configpb.ModelEnsembling_Step) []string {
	return slices.Sorted(maps.Keys(s.OutputMap))
}
