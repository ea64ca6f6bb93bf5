package profiler

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// refusals holds the errors of models that were left out.
type refusals []error

// refuse is called when a model cannot be opened or run. An error of its file is kept, and the run goes on without
// the model. Any other error is returned, and ends the run.
func (l *refusals) refuse(r *runner, err error) error {
	if !errors.Is(err, ErrInput) {
		return err
	}
	*l = append(*l, err)
	if len(r.options.Models) > 1 {
		r.progress.warn("", fmt.Sprintf("left out: %s", strings.TrimPrefix(err.Error(), ErrInput.Error()+": ")))
	}
	return nil
}

// noModel returns the error for a run of which every model was refused.
func (l refusals) noModel() error {
	if len(l) == 1 {
		return l[0]
	}
	return inputError("none of the %d models can be used, for the reasons above", len(l))
}

// checkAllUsed returns an error if the options give a dimension, bucket or value for an input that no opened model
// has, which is mostly a typing error. If a model was left out of the run, it returns nil, because the names may
// belong to that model. Names have the form INPUT or MODEL:INPUT.
func checkAllUsed(r *runner) error {
	if len(r.refusals) > 0 {
		return nil
	}

	// Collect the names of all models, and of all inputs with and without their model. The empty name is a value for any input.
	knownInputs, models := map[string]bool{"": true}, map[string]bool{}
	for _, j := range r.jobs {
		models[j.info.baseModel] = true
		for _, s := range j.info.inputs {
			knownInputs[s.Name], knownInputs[j.info.baseModel+":"+s.Name] = true, true
		}
		for _, c := range j.info.constants {
			knownInputs[c.Name], knownInputs[j.info.baseModel+":"+c.Name] = true, true
		}
	}

	// Collect the names that options give.
	var requested []string
	collect := func(model, input string) {
		if model != "" {
			input = model + ":" + input
		}
		requested = append(requested, input)
	}
	for model, dims := range r.options.Dims {
		for input := range dims {
			collect(model, input)
		}
	}
	for model, list := range r.options.Buckets {
		// All buckets of a model name the same inputs.
		for input := range list[0] {
			collect(model, input)
		}
	}
	for model, list := range r.options.Values {
		for input := range list {
			collect(model, input)
		}
	}

	// Refuse the first name that no model has.
	slices.Sort(requested)
	for _, name := range requested {
		if knownInputs[name] {
			continue
		}
		// A shape without an input is for the only input of the model.
		if model, input, ok := strings.Cut(name, ":"); ok && input == "" {
			if models[model] {
				continue
			}
			return inputError("a shape or value for the model %q, which is not there; there are %s", model, strings.Join(slices.Sorted(maps.Keys(models)), ", "))
		}
		delete(knownInputs, "")
		return inputError("a shape or value for the input %q, which no model has; there are %s", name, strings.Join(slices.Sorted(maps.Keys(knownInputs)), ", "))
	}
	return nil
}
